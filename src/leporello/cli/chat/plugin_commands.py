"""Runs the slash commands that plugins register."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

from leporello.engine import ForeignCall

if TYPE_CHECKING:
    from leporello.plugins import Command


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
