"""terminal: a shell command in the workspace, with the user's consent."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from leporello.agent.tools.bounds import bounded, can_bound, writable_folders
from leporello.agent.tools.environment import command_environment, deny_inspection
from leporello.agent.tools.process import Ran, run
from leporello.agent.tools.text import one_line
from leporello.agent.tools.tool import Action, Tool
from leporello.errors import ToolError
from leporello.messages.visible import spelled_out

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from leporello.agent.tools.tool import Stop, Wrote
    from leporello.agent.tools.workspace import Spot, Workspace

_DENIED: Final = "ermission denied"
_SHELLS: Final = ("/bin/bash", "/bin/sh")
_HINT: Final = "to see it, run it again with head, tail or grep, or write it to a file and use read_file"

_PARAMETERS: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "command": {"type": "string", "description": "The shell command.", "minLength": 1, "maxLength": 20_000},
        "timeout": {
            "type": "integer",
            "description": "The longest time in seconds.",
            "minimum": 1,
            "maximum": 600,
            "default": 120,
        },
        "workdir": {
            "type": "string",
            "description": "The folder to run it in, relative to the workspace.",
            "minLength": 1,
            "default": ".",
        },
    },
    "required": ["command"],
    "additionalProperties": False,
}


def terminal(
    workspace: Workspace,
    *,
    environ: Mapping[str, str] = os.environ,
    writable: Iterable[Path] = (),
    unbounded: bool = False,
) -> Tool:
    """Make the tool for a workspace; commands see the harmless part of `environ`.

    Where the system can enforce it (`can_bound`), they may write only to the workspace, to temporary and cache folders
    and to `writable`, unless they are `unbounded`. This process can no longer be inspected by them, nor by a debugger.
    """
    environment = command_environment(environ)
    deny_inspection()
    places = [] if unbounded or not can_bound() else writable_folders(workspace.root, environment, writable)

    def prepare(command: str, timeout: int, workdir: str) -> Action:
        if "\0" in command:
            raise ToolError("a command cannot hold a NUL character")
        spot = workspace.resolve(workdir)
        place = workspace.root.joinpath(*spot.parts)
        if not place.is_dir():
            raise ToolError(f"workdir: {spot} is not a folder of the workspace")

        def watch(stop: Stop, wrote: Wrote) -> str:
            line = bounded(_shell(command), places) if places else _shell(command)
            ran = run(line, folder=place, environment=environment, seconds=timeout, stop=stop, wrote=wrote)
            return _report(ran, is_bounded=bool(places))

        def do(stop: Stop) -> str:
            return watch(stop, lambda _: None)

        return Action(title=_title(command, spot), detail=spelled_out(command), do=do, watch=watch, asks=True)

    return Tool(
        name="terminal",
        description="Run a shell command in the workspace folder and return what it prints, with its exit code. "
        "There is no input and no screen: use commands that neither ask nor page. All that a command starts ends with "
        "it. The user may be asked first.",
        parameters=_PARAMETERS,
        prepare=prepare,
    )


def _shell(command: str) -> list[str]:
    return [next(shell for shell in _SHELLS if Path(shell).exists()), "-c", command]


def _title(command: str, spot: Spot) -> str:
    first, _, more = command.strip().partition("\n")
    where = f" in {spot}" if spot.parts else ""
    return f"run{where}: {one_line(spelled_out(first))}{' …' if more else ''}"


def _report(ran: Ran, *, is_bounded: bool) -> str:
    lines = [text] if (text := ran.output.text(_HINT).rstrip("\n")) else []
    if is_bounded and ran.exit_code and _DENIED in "".join(lines):
        lines.append("[commands may write only to the workspace and to temporary and cache folders]")
    if ran.ended:
        lines.append(f"[ended early, {ran.ended}]")
    if ran.left_behind:
        lines.append("[processes that it left running were ended]")
    return "\n".join([*lines, f"[exit code {ran.exit_code}]"])
