"""What a chat says about itself: engine, model and window, caching, tools; and where a conversation was left."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from leporello import __version__
from leporello.cli import local_model
from leporello.config.home import default_path
from leporello.messages import role_of, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from leporello.cli.chat.factory import OpenedChat, Setting
    from leporello.session import Session

KEYS: Final = "/help shows the commands · Ctrl-C stops a turn · Ctrl-D leaves"


def greeting(opened: OpenedChat, *, local: bool) -> Iterator[str]:
    """Yield the lines at the start of a chat."""
    session, setting = opened.agent.session, opened.setting
    yield f"Leporello {__version__} · conversation {session.id}"
    if kept := resumed_line(opened):
        yield kept
    yield engine_line(session)
    yield model_line(opened)
    if local:
        yield f"limits   {local_model.LIMITS}"
    if session.caching:
        yield session.caching
    if setting.tools:
        names = ", ".join(schema["function"]["name"] for schema in opened.agent.toolbox.schemas())
        asks = "runs and writes without asking" if setting.yes else "asks before it runs or writes"
        yield f"tools    {names}; {asks}"
        yield f"folder   {setting.folder.resolve()}"
    yield KEYS


def resumed_line(opened: OpenedChat) -> str:
    """Say what a conversation that goes on has kept; "" when that is nothing."""
    return f"resumed  with the {_listed(opened.setting.kept)} it had" if opened.setting.kept else ""


def resuming(session_id: str, setting: Setting, *, local: bool) -> str:
    """Return the command that resumes a conversation, complete with where it is kept and how it was set up."""
    file = setting.config.path
    config = [] if file in (None, default_path()) else ["--config", str(file)]
    here = ["--local"] if local else []
    return shlex.join(["leporello", "chat", *here, "--session", session_id, *_store(setting), *config])


def searching(session_id: str, setting: Setting) -> str:
    """Return the command that searches a conversation."""
    return shlex.join(["leporello", "grep", "WORDS", "--conversation", session_id, *_store(setting)])


def _store(setting: Setting) -> list[str]:
    """Return the option that names the store, if the commands would take another one without it."""
    address = setting.address or (setting.config.store.url if setting.config.path != default_path() else None)
    return ["--store", address] if address else []


def _listed(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def engine_line(session: Session) -> str:
    """Say which engine this is, and when it folds."""
    usage = session.usage()
    folds = f", folds at {usage.folds_at:,} tokens" if usage.folds_at else ""
    return f"engine   {usage.engine}{folds}"


def model_line(opened: OpenedChat) -> str:
    """Say which model this is, who serves it, and its window."""
    route = opened.route
    return f"model    {route.model} ({route.who}), window {opened.agent.session.context_length:,} tokens"


def last_exchange(session: Session) -> list[tuple[str, str]]:
    """Return the newest message of the user and what was answered, each with who said it."""
    window = session.window
    start = next((at for at in reversed(range(len(window))) if role_of(window[at]) == "user"), None)
    if start is None:
        return []
    answer = next((text for message in reversed(window[start + 1 :]) if (text := _said(message))), "(no answer)")
    return [("you", text_of(window[start])), ("answer", answer)]


def _said(message: dict[str, object]) -> str:
    return text_of(message) if role_of(message) == "assistant" else ""
