"""The reference agent: a loop that can be read in one sitting, and tools that are bounded to a workspace folder."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leporello.agent.events import (
        ConfirmationWanted,
        Retrying,
        TextPiece,
        ThinkingPiece,
        ToolFinished,
        ToolOutput,
        ToolStarted,
        TurnEnded,
    )
    from leporello.agent.factory import open_agent, system_prompt
    from leporello.agent.interrupt import stop_on_interrupt
    from leporello.agent.loop import Agent
    from leporello.agent.model import MainModel
    from leporello.agent.retry import RetryPolicy
    from leporello.agent.route import MainRoute, main_route
    from leporello.agent.tools import Tool, Toolbox, Workspace, default_tools, simple_tool

_HOMES = {
    "Agent": "loop",
    "ConfirmationWanted": "events",
    "MainModel": "model",
    "MainRoute": "route",
    "RetryPolicy": "retry",
    "Retrying": "events",
    "TextPiece": "events",
    "ThinkingPiece": "events",
    "Tool": "tools",
    "ToolFinished": "events",
    "ToolOutput": "events",
    "ToolStarted": "events",
    "Toolbox": "tools",
    "TurnEnded": "events",
    "Workspace": "tools",
    "default_tools": "tools",
    "main_route": "route",
    "open_agent": "factory",
    "simple_tool": "tools",
    "stop_on_interrupt": "interrupt",
    "system_prompt": "factory",
}

__all__ = [
    "Agent",
    "ConfirmationWanted",
    "MainModel",
    "MainRoute",
    "RetryPolicy",
    "Retrying",
    "TextPiece",
    "ThinkingPiece",
    "Tool",
    "ToolFinished",
    "ToolOutput",
    "ToolStarted",
    "Toolbox",
    "TurnEnded",
    "Workspace",
    "default_tools",
    "main_route",
    "open_agent",
    "simple_tool",
    "stop_on_interrupt",
    "system_prompt",
]


def __getattr__(name: str) -> object:
    """Import a name from its module when it is first used: the chat shows its help without all of them."""
    if name not in _HOMES:
        raise AttributeError(f"module 'leporello.agent' has no attribute {name!r}")
    value: object = getattr(import_module(f"leporello.agent.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
