"""Slash commands that plugins register, whichever engine is chosen."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

from leporello.engine import ForeignCall
from leporello.plugins.discover import BUILT_IN
from leporello.plugins.hermes.host import serve
from leporello.plugins.make import Making
from leporello.plugins.search import Search

if TYPE_CHECKING:
    from leporello.config import Config
    from leporello.plugins import Command


def enabled_commands(config: Config) -> tuple[dict[str, Command], list[str]]:
    """Let the enabled plugins register, and return their commands and what went wrong on the way."""
    if not config.plugins.enabled:
        return {}, []
    serve(config)
    search = Search(BUILT_IN, config, Making.of(config, {}))
    search.registered()
    return search.commands, [*map(str, search.failures), *search.notes]


def call(command: Command, argument: str) -> str:
    """Run a command and return what the user is shown; a failure is a text too, for it is a plugin's."""
    foreign = ForeignCall()
    try:
        with foreign:
            answer: Any = command.handler(argument)
            if inspect.isawaitable(answer):
                answer = asyncio.run(_awaited(answer))
    except BaseException as error:
        if not foreign.blames(error):
            raise
        return f"/{command.name} of the plugin '{command.plugin}' failed: {type(error).__name__}: {error}"
    return "" if answer is None else str(answer)


async def _awaited(answer: Any) -> Any:
    return await answer
