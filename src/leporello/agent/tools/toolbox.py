"""The tools of an agent together: their schemas, and one way to carry out a call that never raises."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leporello.agent.tools.environment import own_secrets, without_secrets
from leporello.agent.tools.read_file import read_file
from leporello.agent.tools.search_files import search_files
from leporello.agent.tools.terminal import terminal
from leporello.agent.tools.text import Clip, Limits
from leporello.agent.tools.write_file import write_file
from leporello.errors import ToolError
from leporello.messages.visible import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path
    from typing import Any

    from leporello.agent.tools.tool import Action, Stop, Tool, Wrote
    from leporello.agent.tools.workspace import Workspace
    from leporello.agent.tools.write_file import FileWritten
    from leporello.messages.types import ToolCall

_LIMITS = Limits(head_bytes=40_000, tail_bytes=60_000, head_lines=2_500, tail_lines=2_500)
"""For the answers of all tools, whatever limits they have themselves."""
_LONGEST_LINE = 10_000
"""How many characters of a line without an end are kept for a display."""


@dataclass(frozen=True, kw_only=True)
class ToolOutcome:
    """What the model is told, and whether the call failed."""

    text: str
    failed: bool = False


def default_tools(
    workspace: Workspace,
    *,
    environ: Mapping[str, str] = os.environ,
    writable: Iterable[Path] = (),
    unbounded: bool = False,
    on_written: Callable[[FileWritten], None] = lambda _: None,
) -> list[Tool]:
    """Make the tools that every agent has; `writable` and `unbounded` are for commands, see `terminal`.

    `on_written` is told of every file that `write_file` has written.
    """
    commands = terminal(workspace, environ=environ, writable=writable, unbounded=unbounded)
    return [commands, read_file(workspace), write_file(workspace, on_written=on_written), search_files(workspace)]


class Toolbox:
    """Tools by name; our own secrets are taken out of their answers."""

    def __init__(self, tools: Iterable[Tool], *, environ: Mapping[str, str] = os.environ) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            if tool.name in self._tools:
                raise ValueError(f"there are two tools called {tool.name!r}")
            self._tools[tool.name] = tool
        self._secrets = own_secrets(environ)

    def schemas(self) -> list[dict[str, Any]]:
        """Return what a request offers to the model, always in the same order."""
        return [tool.schema() for tool in self._tools.values()]

    def prepare(self, call: ToolCall) -> Action | ToolOutcome:
        """Return what a call would do, or the failed outcome of one that cannot be done."""
        try:
            return self._tool(call.name).action(_arguments(call))
        except Exception as error:  # noqa: BLE001 - whatever a tool does wrong with its arguments, the model is told
            return self._failure(error)

    def do(self, action: Action, stop: Stop, wrote: Wrote | None = None) -> ToolOutcome:
        """Carry out an action; a failure is an outcome too. `wrote` takes the lines that a command writes meanwhile."""
        try:
            if action.watch is None or wrote is None:
                text = action.do(stop)
            else:
                text = action.watch(stop, _Lines(lambda line: wrote(without_secrets(line, self._secrets))))
            return ToolOutcome(text=self._clean(text))
        except Exception as error:  # noqa: BLE001 - a tool's failure is an answer, not the end of the conversation
            return self._failure(error)

    def _tool(self, name: str) -> Tool:
        if name not in self._tools:
            raise ToolError(f"there is no tool {visible(name[:80])!r}. These exist: {', '.join(self._tools)}")
        return self._tools[name]

    def _failure(self, error: Exception) -> ToolOutcome:
        if isinstance(error, ToolError):
            text = str(error)
        elif isinstance(error, OSError):
            where = f"{visible(os.fsdecode(error.filename))}: " if isinstance(error.filename, (str, bytes)) else ""
            text = f"{where}{error.strerror or error}"
        else:
            text = f"{type(error).__name__}: {error}"
        return ToolOutcome(text=self._clean(f"Error: {text}"), failed=True)

    def _clean(self, text: str) -> str:
        clip = Clip(limits=_LIMITS)
        clip.add(text.encode("utf-8", "replace"))
        return without_secrets(clip.text(), self._secrets)


class _Lines:
    """Passes output on line by line: a secret must not pass because it came in two pieces."""

    def __init__(self, wrote: Wrote) -> None:
        self._wrote = wrote
        self._open = ""

    def __call__(self, text: str) -> None:
        *lines, self._open = (self._open + text).split("\n")
        if lines:
            self._wrote("".join(f"{line}\n" for line in lines))
        if len(self._open) > _LONGEST_LINE:
            self._open = self._open[-_LONGEST_LINE:]


def _arguments(call: ToolCall) -> Any:
    """Return the arguments as the model wrote them: what is no JSON is said, not taken for no arguments."""
    if call.arguments or not call.raw.strip():
        return call.arguments
    try:
        return json.loads(call.raw)
    except (ValueError, RecursionError) as error:
        raise ToolError(f"the arguments of {call.name} are no JSON: {error}. Send one JSON object") from error
