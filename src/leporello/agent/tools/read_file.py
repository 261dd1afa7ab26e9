"""read_file: the lines of a text file, from anywhere in it, whatever its size."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from io import BufferedReader, FileIO
from typing import TYPE_CHECKING, Any, Final

from leporello.agent.tools.text import one_line
from leporello.agent.tools.tool import Action, Tool
from leporello.errors import ToolError
from leporello.messages.visible import visible

if TYPE_CHECKING:
    from leporello.agent.tools.tool import Stop
    from leporello.agent.tools.workspace import Spot, Workspace

MOST_LINES: Final = 2_000
MOST_CHARACTERS: Final = 40_000
LONGEST_LINE: Final = 2_000
_PIECE: Final = 65_536
_ENTRIES_SHOWN: Final = 100
_COUNTED_BYTES: Final = 64_000_000

_PARAMETERS: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "The file, relative to the workspace folder.", "minLength": 1},
        "offset": {"type": "integer", "description": "The first line to read.", "minimum": 1, "default": 1},
        "limit": {
            "type": "integer",
            "description": "How many lines to read.",
            "minimum": 1,
            "maximum": MOST_LINES,
            "default": 500,
        },
    },
    "required": ["path"],
    "additionalProperties": False,
}


def read_file(workspace: Workspace) -> Tool:
    """Make the tool for a workspace."""

    def prepare(path: str, offset: int, limit: int) -> Action:
        spot = workspace.resolve(path)
        return Action(title=f"read {spot}", do=lambda stop: _read(workspace, spot, offset, limit, stop))

    return Tool(
        name="read_file",
        description="Read lines of a text file in the workspace. The answer says how many lines there are; "
        "read on with offset.",
        parameters=_PARAMETERS,
        prepare=prepare,
    )


def _read(workspace: Workspace, spot: Spot, offset: int, limit: int, stop: Stop) -> str:
    status = workspace.status(spot)
    if status is None:
        raise ToolError(f"there is no file {spot}; search_files with target files finds it by its name")
    if stat.S_ISDIR(status.st_mode):
        return _listing(workspace, spot)
    with workspace.file(spot) as descriptor, BufferedReader(FileIO(descriptor, closefd=False), _PIECE) as stream:
        return _page(spot, stream, os.fstat(descriptor).st_size, offset, limit, stop)


def _listing(workspace: Workspace, spot: Spot) -> str:
    with workspace.folder(spot.parts) as folder, os.scandir(folder) as entries:
        names = sorted(entry.name + ("/" if entry.is_dir(follow_symlinks=False) else "") for entry in entries)
    lines = [f"{spot} is a folder; it holds {len(names):,}:", *map(one_line, names[:_ENTRIES_SHOWN])]
    if len(names) > _ENTRIES_SHOWN:
        lines.append(f"[… {len(names) - _ENTRIES_SHOWN:,} more; search_files with target files finds them …]")
    return "\n".join(lines)


def _page(spot: Spot, stream: BufferedReader[FileIO], size: int, offset: int, limit: int, stop: Stop) -> str:
    if b"\0" in stream.peek():
        raise ToolError(
            f"{spot} is a binary file of {size:,} bytes, not text; the terminal can look into it (file, xxd, strings)"
        )
    if not stream.peek():
        return f"{spot} is empty."
    if not _skip(stream, offset - 1, stop):
        raise ToolError(f"{spot} ends before line {offset:,}")
    lines = _lines(stream, limit, stop)
    last, rest = offset + len(lines) - 1, _count_rest(stream, size, stop)
    total = f"{last + rest:,}" if rest is not None else "many"
    head = f"{spot}, lines {offset:,} to {last:,} of {total}, {size:,} bytes"
    if any(line.changed for line in lines):
        head += " (control characters are shown as pictures, such as ␛)"
    more = [] if rest == 0 else [f"[read on with offset {last + 1}]"]
    return "\n".join([head, *(line.text for line in lines), *more])


def _skip(stream: BufferedReader[FileIO], lines: int, stop: Stop) -> bool:
    """Pass over lines, in pieces, because one may be longer than the memory; False when the file ends first."""
    while lines > 0:
        piece = stream.readline(_PIECE)
        if not piece or stop.is_set():
            return False
        lines -= piece.endswith(b"\n")
    return bool(stream.peek())


@dataclass(frozen=True, kw_only=True)
class _Line:
    """A line as it is shown; `changed` when a character in it was made visible."""

    text: str
    changed: bool


def _lines(stream: BufferedReader[FileIO], limit: int, stop: Stop) -> list[_Line]:
    """Read lines until there are enough of them, or enough characters."""
    lines: list[_Line] = []
    room = MOST_CHARACTERS
    while len(lines) < limit and room > 0 and not stop.is_set() and stream.peek():
        lines.append(_line(stream, stop))
        room -= len(lines[-1].text) + 1
    return lines


def _line(stream: BufferedReader[FileIO], stop: Stop) -> _Line:
    start = stream.readline(_PIECE)
    length, piece = len(start), start
    while piece and not piece.endswith(b"\n") and not stop.is_set():
        piece = stream.readline(_PIECE)
        length += len(piece)
    text = start.decode("utf-8", "replace").removesuffix("\n").removesuffix("\r")
    hidden = max(len(text), length - 1 if length > len(start) else 0) - LONGEST_LINE
    shown = visible(text[:LONGEST_LINE])
    note = f" [… {hidden:,} more characters in this line]" if hidden > 0 else ""
    return _Line(text=shown + note, changed=shown != text[:LONGEST_LINE])


def _count_rest(stream: BufferedReader[FileIO], size: int, stop: Stop) -> int | None:
    """Count the lines that follow; None when the file is too long for that."""
    if size > _COUNTED_BYTES:
        return None if stream.peek() else 0
    count, last = 0, b"\n"
    while (piece := stream.read(_PIECE)) and not stop.is_set():
        count += piece.count(b"\n")
        last = piece
    return count + (not last.endswith(b"\n"))
