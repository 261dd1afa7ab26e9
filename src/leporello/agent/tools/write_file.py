"""write_file: a whole file, or one passage of it, replaced in one step that cannot be seen half done."""

from __future__ import annotations

import difflib
import hashlib
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from leporello.agent.tools.text import counted
from leporello.agent.tools.tool import Action, Tool
from leporello.agent.tools.workspace import explained
from leporello.errors import ToolError
from leporello.messages.visible import visible

if TYPE_CHECKING:
    from collections.abc import Callable

    from leporello.agent.tools.tool import Stop
    from leporello.agent.tools.workspace import Spot, Workspace

MOST_BYTES: Final = 10_000_000
_DIFF_LINES: Final = 3_000
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PERMISSIONS, _WRITABLE, _DEFAULT_MODE, _PRIVATE_MODE = 0o777, 0o222, 0o666, 0o600

_PARAMETERS: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "The file, relative to the workspace folder.", "minLength": 1},
        "content": {"type": "string", "description": "The new text.", "maxLength": MOST_BYTES},
        "replaces": {
            "type": "string",
            "description": "A passage that stands exactly once in the file: only it is replaced by content. "
            "Without it content becomes the whole file.",
            "minLength": 1,
        },
    },
    "required": ["path", "content"],
    "additionalProperties": False,
}


@dataclass(frozen=True, kw_only=True)
class FileWritten:
    """A file that was written: `before` is what it held, None where there was none; `after` a hash of what it holds.

    Not `kept`: what it held was too large to be kept.
    """

    path: str
    before: bytes | None
    after: bytes
    kept: bool = True


def write_file(workspace: Workspace, *, on_written: Callable[[FileWritten], None] = lambda _: None) -> Tool:
    """Make the tool for a workspace; `on_written` is told of every file, so that it can be restored."""

    def prepare(path: str, content: str, replaces: str | None) -> Action:
        spot = workspace.resolve(path)
        old = _look(workspace, spot)
        new = content if replaces is None else _replaced(spot, old, replaces, content)
        data = _encoded(new)

        def do(stop: Stop) -> str:
            told = _write(workspace, spot, data, old)
            kept = old.status is None or old.data is not None
            on_written(FileWritten(path=str(spot), before=old.data, after=_hash(data), kept=kept))
            return told

        return Action(title=_title(spot, old, new), detail=_detail(old, new), do=do, asks=True)

    return Tool(
        name="write_file",
        description="Write a text file in the workspace, or replace one passage of it. Missing folders are made. "
        "The user may be asked first.",
        parameters=_PARAMETERS,
        prepare=prepare,
    )


def is_as_written(workspace: Workspace, written: FileWritten) -> bool:
    """Tell whether a file still holds what was written."""
    old = _look(workspace, workspace.resolve(written.path))
    return old.data is not None and _hash(old.data) == written.after


def restore(workspace: Workspace, path: str, before: bytes | None) -> None:
    """Let a file hold again what it held, or remove it where there was none."""
    spot = workspace.resolve(path)
    if before is not None:
        _write(workspace, spot, before, _look(workspace, spot))
        return
    *folders, name = spot.parts
    with workspace.folder(folders) as parent:
        _remove(parent, name)


def _hash(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


@dataclass(frozen=True, kw_only=True)
class _Old:
    """What stands at a spot: nothing (no status), text, or something that cannot be compared (no text).

    `data` are its bytes, None also for more than can be written.
    """

    status: os.stat_result | None = None
    text: str | None = None
    data: bytes | None = None

    def is_still(self, status: os.stat_result | None) -> bool:
        return _identity(self.status) == _identity(status)


def _identity(status: os.stat_result | None) -> tuple[int, ...] | None:
    return None if status is None else (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _look(workspace: Workspace, spot: Spot) -> _Old:
    if not spot.parts:
        raise ToolError("the workspace itself is a folder; name a file in it")
    if workspace.status(spot) is None:
        return _Old()
    with workspace.file(spot) as descriptor:
        status = os.fstat(descriptor)
        if not status.st_mode & _WRITABLE:
            raise ToolError(f"{spot} is read-only; ask the user before you change its mode")
        with os.fdopen(descriptor, "rb", closefd=False) as stream:
            data = stream.read(MOST_BYTES + 1)
    return _Old(status=status, text=_decoded(data), data=data if len(data) <= MOST_BYTES else None)


def _decoded(data: bytes) -> str | None:
    try:
        return data.decode("utf-8") if len(data) <= MOST_BYTES else None
    except UnicodeDecodeError:
        return None


def _replaced(spot: Spot, old: _Old, passage: str, content: str) -> str:
    text = old.text
    if text is None:
        what = "there is no file" if old.status is None else "there is no text of a size that can be edited in"
        raise ToolError(f"{what} {spot}; without replaces it is written anew")
    if "\r\n" in text and "\r\n" not in passage:
        passage, content = passage.replace("\n", "\r\n"), content.replace("\r\n", "\n").replace("\n", "\r\n")
    found = text.count(passage)
    if found == 1:
        return text.replace(passage, content)
    if not found:
        raise ToolError(f"the passage to replace is not in {spot}; read the file again and copy it exactly")
    raise ToolError(f"the passage to replace stands {found} times in {spot}; take more of the lines around it")


def _encoded(text: str) -> bytes:
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ToolError(f"content holds half a character (a lone surrogate) at position {error.start:,}") from error
    if len(data) > MOST_BYTES:
        raise ToolError(f"the file would have {len(data):,} bytes; at most {MOST_BYTES:,} are written")
    return data


def _title(spot: Spot, old: _Old, new: str) -> str:
    before = "new" if old.status is None else "replaces what is no text" if old.text is None else _lines(old.text)
    return f"write {spot} ({_lines(new)}{', was ' if old.text is not None else ', '}{before})"


def _lines(text: str) -> str:
    return counted(text.count("\n") + (bool(text) and not text.endswith("\n")), "line")


def _detail(old: _Old, new: str) -> str:
    """Return all that changes, as a difference where one can be made in reasonable time.

    A user can only agree to what can be seen: a host may shorten it, but must be able to show the rest.
    """
    before, after = _shown_lines(old.text or ""), _shown_lines(new)
    if old.text is None or len(before) + len(after) > _DIFF_LINES:
        return "\n".join(after)
    changed = list(difflib.unified_diff(before, after, "before", "after", lineterm="", n=2))
    return "\n".join(changed) or "nothing changes"


def _shown_lines(text: str) -> list[str]:
    """Return the lines of a text, safe to show; what else could end a line, or fails to, is seen too."""
    *lines, last = text.split("\n")
    ending = [last, "[no line end]"] if last else []
    return [visible(line) for line in [*lines, *ending]]


def _write(workspace: Workspace, spot: Spot, data: bytes, old: _Old) -> str:
    """Write beside the file and rename, so that a reader sees the old file or the new one."""
    *folders, name = spot.parts
    draft = f".leporello-{secrets.token_hex(8)}.part"
    with workspace.folder(folders, create=True) as parent:
        try:
            _write_draft(parent, draft, data, old.status)
            _refuse_change(parent, name, spot, old)
            os.replace(draft, name, src_dir_fd=parent, dst_dir_fd=parent)
        except OSError as error:
            raise explained(error, str(spot)) from error
        finally:
            _remove(parent, draft)
        os.fsync(parent)
    return f"wrote {spot}: {_lines(data.decode('utf-8', 'replace'))}, {len(data):,} bytes"


def _refuse_change(parent: int, name: str, spot: Spot, old: _Old) -> None:
    try:
        status: os.stat_result | None = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        status = None
    if not old.is_still(status):
        raise ToolError(f"{spot} was changed by another program meanwhile; nothing was written. Read it again")


def _write_draft(parent: int, draft: str, data: bytes, kept: os.stat_result | None) -> None:
    descriptor = os.open(draft, _NEW, _DEFAULT_MODE if kept is None else _PRIVATE_MODE, dir_fd=parent)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(data)
        stream.flush()
        if kept is not None:
            with suppress(PermissionError):  # only root can give a file to another user; others make it their own
                os.fchown(descriptor, kept.st_uid, kept.st_gid)
            os.fchmod(descriptor, kept.st_mode & _PERMISSIONS)
        os.fsync(descriptor)


def _remove(parent: int, draft: str) -> None:
    """Remove a draft that did not become the file."""
    with suppress(FileNotFoundError):
        os.unlink(draft, dir_fd=parent)
