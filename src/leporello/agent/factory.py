"""An agent from the configuration: its model, its conversation, its tools."""

from __future__ import annotations

import os
from collections import deque
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from leporello.agent.loop import MAX_REQUESTS, Agent
from leporello.agent.model import MainModel
from leporello.agent.route import main_route, with_route
from leporello.agent.tools import Toolbox, Workspace, default_tools
from leporello.agent.turn_hooks import plugin_tools
from leporello.config import Config
from leporello.errors import PluginWarning, warn_caller
from leporello.plugins.enabled import EnabledPlugins
from leporello.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from leporello.agent.loop import Confirm
    from leporello.agent.tools import Tool
    from leporello.engine import ContextEngine
    from leporello.events import Event, Sink
    from leporello.store import Store


def open_agent(
    session_id: str | None = None,
    *,
    workspace: str | os.PathLike[str] = ".",
    model: str | None = None,
    provider: str | None = None,
    base_url: str | None = None,
    context_length: int | None = None,
    engine: str | ContextEngine | None = None,
    store: Store | str | os.PathLike[str] | None = None,
    config: Config | Mapping[str, Any] | str | os.PathLike[str] | None = None,
    system: str | None = None,
    tools: Iterable[Tool] = (),
    writable: Iterable[Path] = (),
    unbounded: bool = False,
    confirm: Confirm | None = None,
    max_requests: int = MAX_REQUESTS,
    on_event: Sink | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Agent:
    """Open an agent on a new conversation, or on the one called `session_id`, folded as it was.

    What is left out comes from config.yaml. `tools` are added to those for the workspace folder, whose commands may
    write there, to temporary and cache folders and to `writable`, or anywhere when they are `unbounded`. The session's
    events (compactions, usage) go to `on_event` at the moment they happen; without it they are yielded among the
    agent's own.
    """
    settings = Config.coerce(config)
    route = main_route(settings, model=model, provider=provider, base_url=base_url, environ=environ)
    own = default_tools(Workspace(workspace), environ=environ, writable=writable, unbounded=unbounded)
    tools = [*own, *tools]
    plugins = EnabledPlugins(settings)
    for problem in (*map(str, plugins.failures), *plugins.notes()):
        warn_caller(problem, PluginWarning)
    toolbox = Toolbox([*tools, *plugin_tools(plugins.tools, tools)], environ=environ)
    inbox: deque[Event] = deque()
    session = Session.open(
        session_id,
        engine=engine,
        store=store,
        config=with_route(settings, route, context_length),
        system=system_prompt() if system is None else system,
        dialect=route.dialect,
        platform="agent",
        on_event=on_event or inbox.append,
    )
    return Agent(
        session,
        MainModel(route),
        toolbox,
        confirm=confirm,
        max_requests=max_requests,
        inbox=inbox,
        hooks=plugins.hooks,
    )


@cache
def system_prompt() -> str:
    """Return the agent's system prompt; it names no date and no path, so that providers can cache it."""
    return files("leporello.agent").joinpath("prompts", "system.md").read_text("utf-8").strip()
