"""The folder that the tools work in: no path leads out of it.

A path is resolved component by component through open folders (`openat` with `O_NOFOLLOW`), never as a whole string by
the kernel. Links inside the workspace that stay inside are followed; those that lead out are refused, and a component
that is replaced by a link at the last moment is not followed but reported. The result is a `Spot`, which holds no link
and no `..`; opening it follows nothing at all.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from leporello.agent.tools.text import one_line
from leporello.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_MOST_LINKS: Final = 40
_LONGEST_PATH: Final = 4_000
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_LINK_IN_THE_WAY: Final = {errno.ELOOP, errno.EMLINK}
_KINDS: Final[tuple[tuple[Callable[[int], bool], str], ...]] = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISLNK, "a link"),
)


@dataclass(frozen=True, kw_only=True)
class Spot:
    """A place inside the workspace: names of folders and of a file, none of them a link when it was resolved."""

    parts: tuple[str, ...]

    def __str__(self) -> str:
        return one_line("/".join(self.parts), _LONGEST_PATH) or "."


class Workspace:
    """A folder as the tools see it; every path that they are given goes through `resolve`."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        given = Path(root)
        try:
            given = Path(os.path.abspath(given.expanduser()))  # noqa: PTH100 - `..` is taken as written, links follow
            self.root: Path = given.resolve(strict=True)
        except OSError as error:
            raise ToolError(f"the workspace {given} cannot be used: {error.strerror}") from error
        if not self.root.is_dir():
            raise ToolError(f"the workspace {given} is not a folder")
        self._names = {PurePosixPath(given), PurePosixPath(self.root)}

    def resolve(self, path: str) -> Spot:
        """Return the spot that a path of the model names, whether or not it exists; outside of it is a `ToolError`."""
        with ExitStack() as opened:
            return _Walk(self, path, opened).spot()

    @contextmanager
    def folder(self, spot: Sequence[str], *, create: bool = False) -> Iterator[int]:
        """Open a folder by its names, following nothing; with `create` missing ones are made."""
        with ExitStack() as opened:
            yield self._descended(tuple(spot), opened, create=create)

    @contextmanager
    def file(self, spot: Spot) -> Iterator[int]:
        """Open an ordinary file for reading; anything else is refused before it is opened."""
        name = spot.parts[-1] if spot.parts else "."
        with self.folder(spot.parts[:-1]) as parent, open_file(parent, name, str(spot)) as descriptor:
            yield descriptor

    def status(self, spot: Spot) -> os.stat_result | None:
        """Return what stands at a spot, None for nothing."""
        try:
            with self.folder(spot.parts[:-1]) as parent:
                return os.stat(spot.parts[-1] if spot.parts else ".", dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def relative(self, path: str, whole: str) -> list[str]:
        """Return the names of a path below the root; an absolute path must lead below it."""
        pure = PurePosixPath(path)
        if not pure.is_absolute():
            return path.split("/")
        for root in self._names:
            if pure.is_relative_to(root):
                return list(pure.relative_to(root).parts)
        raise self.outside(whole)

    def outside(self, path: str) -> ToolError:
        """Return the refusal of a path that leads out."""
        return ToolError(
            f"{one_line(path)} is outside the workspace. Use a path relative to the workspace, such as src/app.py"
        )

    def open_root(self, opened: ExitStack) -> int:
        """Open the workspace folder itself."""
        return _closing(opened, os.open(self.root, _FOLDER))

    def _descended(self, names: tuple[str, ...], opened: ExitStack, *, create: bool) -> int:
        current = self.open_root(opened)
        for place, name in enumerate(names):
            try:
                current = _closing(opened, _open_folder(current, name, create=create))
            except OSError as error:
                raise explained(error, str(Spot(parts=names[: place + 1]))) from error
        return current


class _Walk:
    """One path on its way through the workspace: open folders behind it, names still to come."""

    def __init__(self, workspace: Workspace, path: str, opened: ExitStack) -> None:
        _check(path)
        self._workspace = workspace
        self._path = path
        self._opened = opened
        self._todo = workspace.relative(path, path)
        self._folders = [workspace.open_root(opened)]
        self._names: list[str] = []
        self._links = 0

    def spot(self) -> Spot:
        while self._todo:
            name = self._todo.pop(0)
            if name == "..":
                self._up()
            elif name not in {"", "."} and not self._follow(name) and not self._down(name):
                return Spot(parts=(*self._names, name, *self._rest()))
        return Spot(parts=tuple(self._names))

    def _up(self) -> None:
        if not self._names:
            raise self._workspace.outside(self._path)
        self._names.pop()
        self._folders.pop()

    def _follow(self, name: str) -> bool:
        """Put the target of a link in its place; tell whether there was one."""
        try:
            target = os.readlink(name, dir_fd=self._folders[-1])
        except OSError as error:
            if error.errno in {errno.EINVAL, errno.ENOENT}:
                return False
            raise explained(error, one_line(self._path)) from error
        self._links += 1
        if self._links > _MOST_LINKS:
            raise ToolError(f"{one_line(self._path)} goes through too many links; they may point at each other")
        if target.startswith("/"):
            del self._folders[1:]
            self._names.clear()
        self._todo[:0] = self._workspace.relative(target, self._path)
        return True

    def _down(self, name: str) -> bool:
        """Enter a folder; False when this name is none: a file, or nothing yet."""
        try:
            self._folders.append(_closing(self._opened, os.open(name, _FOLDER, dir_fd=self._folders[-1])))
        except OSError as error:
            if error.errno in {errno.ENOENT, errno.ENOTDIR}:
                return False
            raise explained(error, one_line(self._path)) from error
        self._names.append(name)
        return True

    def _rest(self) -> tuple[str, ...]:
        """Return the names behind the first one that is no folder."""
        rest = tuple(name for name in self._todo if name not in {"", "."})
        if ".." in rest:
            raise ToolError(f"{one_line(self._path)} goes back with .. from a folder that does not exist")
        return rest


def explained(error: OSError, what: str) -> Exception:
    """Return a file error as an answer for the model; a missing file stays one, callers know what to do about it."""
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(error.errno, error.strerror, what)
    if error.errno in _LINK_IN_THE_WAY:
        return ToolError(f"{what} became a link while it was opened; try again")
    if error.errno == errno.ENOTDIR:
        return ToolError(f"{what} is not a folder")
    if error.errno == errno.ENAMETOOLONG:
        return ToolError(f"{what[:80]}… is too long a name")
    return ToolError(f"{what}: {error.strerror or error}")


@contextmanager
def open_file(parent: int, name: str, what: str) -> Iterator[int]:
    """Open an ordinary file in an open folder.

    It is looked at before it is opened, because opening a device may do something, and again afterwards, because it
    may have been replaced in between.
    """
    try:
        _refuse_special(os.stat(name, dir_fd=parent, follow_symlinks=False), what)
        descriptor = os.open(name, _FILE, dir_fd=parent)
    except OSError as error:
        raise explained(error, what) from error
    try:
        _refuse_special(os.fstat(descriptor), what)
        yield descriptor
    finally:
        os.close(descriptor)


def _refuse_special(status: os.stat_result, what: str) -> None:
    for is_kind, word in _KINDS:
        if is_kind(status.st_mode):
            raise ToolError(f"{what} is {word}, not an ordinary file")


def _open_folder(parent: int, name: str, *, create: bool) -> int:
    if create:
        with suppress(FileExistsError):  # what stands there is opened below, and refused if it is no folder
            os.mkdir(name, dir_fd=parent)
    return os.open(name, _FOLDER, dir_fd=parent)


def _closing(opened: ExitStack, descriptor: int) -> int:
    opened.callback(os.close, descriptor)
    return descriptor


def _check(path: str) -> None:
    if "\0" in path:
        raise ToolError("a path cannot hold a NUL character")
    if len(path) > _LONGEST_PATH:
        raise ToolError(f"the path has {len(path):,} characters; at most {_LONGEST_PATH:,} are taken")
    if path.startswith("~"):
        raise ToolError(
            f"{one_line(path)}: ~ is not expanded, your home is outside the workspace. "
            "For a file whose name begins with ~ write ./~name"
        )
    try:
        os.fsencode(path)
    except UnicodeEncodeError as error:
        raise ToolError("the path holds half a character (a lone surrogate)") from error
