"""What a tool is: a schema for the model, and an action that can be looked at before it is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from leporello.agent.tools.text import one_line
from leporello.messages.visible import spelled_out
from leporello.tool_arguments import checked


class Stop(Protocol):
    """Says whether the user wants the turn to end; a `threading.Event` does."""

    def is_set(self) -> bool:
        """Tell whether to end early."""


Do: TypeAlias = Callable[[Stop], str]
"""Does what was asked and returns the answer; it ends early when the user wants the turn to end."""

Wrote: TypeAlias = Callable[[str], None]
"""Takes what a running command writes, as it comes."""


@dataclass(frozen=True, kw_only=True)
class Action:
    """What a call is about to do.

    `title` is one line for people, `detail` what they need to see before they agree. With `asks` nothing happens
    until the user agreed. `watch`, if there is one, does the same as `do` and passes on what is written meanwhile.
    """

    title: str
    do: Do
    detail: str = ""
    asks: bool = False
    watch: Callable[[Stop, Wrote], str] | None = None


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A tool: its name, what the model is told of it, a JSON schema of its arguments, and how it prepares a call.

    `prepare` gets the checked arguments by name and returns an action, or raises `ToolError`. It changes nothing.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    prepare: Callable[..., Action]

    def schema(self) -> dict[str, Any]:
        """Return the tool as OpenAI's format has it."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}

    def action(self, arguments: Any) -> Action:
        """Check the arguments and return what the call would do; `ToolError` says what is right."""
        return self.prepare(**checked(self.name, self.parameters, arguments))


def simple_tool(
    name: str,
    description: str,
    run: Callable[..., str],
    parameters: Mapping[str, Any] | None = None,
    *,
    asks: bool = False,
) -> Tool:
    """Make a tool of a function that takes the arguments by name and returns a text."""

    def prepare(**arguments: Any) -> Action:
        shown = ", ".join(f"{key}={value!r}" for key, value in arguments.items() if value is not None)
        title = one_line(spelled_out(f"{name}({shown})"))
        return Action(title=title, detail=spelled_out(shown), do=lambda _: run(**arguments), asks=asks)

    schema = parameters or {"type": "object", "properties": {}, "additionalProperties": False}
    return Tool(name=name, description=description, parameters=schema, prepare=prepare)
