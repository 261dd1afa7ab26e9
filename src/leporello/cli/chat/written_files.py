"""The files that `write_file` wrote in this chat, as they were before, so that an undo can restore them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from leporello.agent.loop import REFUSED
from leporello.agent.tools.write_file import FileWritten, is_as_written, restore
from leporello.errors import ToolError
from leporello.messages import tool_calls_of
from leporello.messages.visible import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from leporello.agent import Workspace
    from leporello.messages import Message

_MOST_BYTES: Final = 100_000_000
"""What is kept in memory at most; the oldest is given up first."""


class WrittenFiles:
    """Takes note of every file that is written, under the call that wrote it (`call`)."""

    def __init__(self) -> None:
        self.call = ""
        self._written: dict[str, FileWritten] = {}

    def note(self, written: FileWritten) -> None:
        """Take note of a file."""
        self._written[self.call] = written
        while sum(len(one.before or b"") for one in self._written.values()) > _MOST_BYTES:
            del self._written[next(iter(self._written))]

    def changed_by(self, taken: Sequence[Message], workspace: Workspace) -> ChangedFiles:
        """Return what the calls of some messages changed."""
        calls = [call for message in taken for call in tool_calls_of(message)]
        refused = {str(message.get("tool_call_id")) for message in taken if _begins(message, REFUSED)}
        commands = any(call.name == "terminal" and call.id not in refused for call in calls)
        changed = ChangedFiles(workspace=workspace, commands=commands)
        done = {str(message.get("tool_call_id")) for message in taken if not _begins(message, "Error:")}
        for call in calls:
            if call.name != "write_file" or call.id not in done:
                continue
            written = self._written.get(call.id)
            if written is not None and written.kept:
                changed.writes[written.path].append(written)
            else:
                changed.unknown.append(str(call.arguments.get("path", "?")))
        return changed


@dataclass(kw_only=True)
class ChangedFiles:
    """What a turn changed: files with what they held, files of which that is not known, and whether commands ran."""

    workspace: Workspace
    commands: bool
    writes: dict[str, list[FileWritten]] = field(default_factory=lambda: defaultdict(list))
    unknown: list[str] = field(default_factory=list)

    @property
    def restorable(self) -> list[str]:
        """The files that still hold what was written, so that restoring them loses nothing else."""
        return [path for path, writes in self.writes.items() if _is_as_written(self.workspace, writes[-1])]

    def lines(self) -> Iterator[str]:
        """Say what was changed."""
        whole = self.restorable
        for path, writes in self.writes.items():
            what = "written" if writes[0].before is not None else "made"
            since = "" if path in whole else ", and changed since then: it is left as it is"
            yield f"    {one_line(path)} was {what} in this turn{since}"
        for path in self.unknown:
            yield f"    {one_line(path)} was written in this turn; what it held before is not known here any more"
        if self.commands:
            yield "    commands ran in this turn; what they changed is not known, and stays"

    def restore(self) -> Iterator[str]:
        """Restore what can be restored, and say of each file what came of it."""
        for path in self.restorable:
            before = self.writes[path][0].before
            try:
                restore(self.workspace, path, before)
            except (ToolError, OSError) as error:
                yield f"    {one_line(path)} could not be restored: {error}"
            else:
                yield f"    {one_line(path)} {'is as it was' if before is not None else 'was removed'}"


def _is_as_written(workspace: Workspace, written: FileWritten) -> bool:
    try:
        return is_as_written(workspace, written)
    except (ToolError, OSError):  # removed, or no file any more
        return False


def _begins(message: Message, text: str) -> bool:
    return str(message.get("content", "")).startswith(text)
