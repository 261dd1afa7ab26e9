"""search_files: which files are called so, and which lines say so."""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from leporello.agent.tools.matching import Matcher, OutOfTimeError, literal, matches_glob, name_matcher, regex
from leporello.agent.tools.text import counted, one_line
from leporello.agent.tools.tool import Action, Tool
from leporello.agent.tools.workspace import open_file
from leporello.errors import ToolError
from leporello.messages.visible import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leporello.agent.tools.tool import Stop
    from leporello.agent.tools.workspace import Spot, Workspace

SECONDS: Final = 10.0
MOST_CHARACTERS: Final = 30_000
LARGEST_FILE: Final = 5_000_000
PASSED_OVER: Final = frozenset({
    ".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", ".tox",
    ".mypy_cache", ".ruff_cache", ".pytest_cache",
})  # fmt: skip
_DEEPEST: Final = 100
_EXCERPT: Final = 240
_BEFORE: Final = 80
_LONGEST_PATH: Final = 4_000

_PARAMETERS: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "pattern": {
            "type": "string",
            "description": "What to look for: a text, or with regex a regular expression of Python. "
            "For names also a glob such as *.py",
            "minLength": 1,
            "maxLength": 1_000,
        },
        "target": {
            "type": "string",
            "enum": ["content", "files"],
            "description": "Search the lines of files, or the names of files.",
            "default": "content",
        },
        "path": {"type": "string", "description": "The folder or file to search.", "minLength": 1, "default": "."},
        "file_glob": {"type": "string", "description": "Only files whose name or path matches, such as *.py or docs/*"},
        "regex": {"type": "boolean", "description": "Take the pattern as a regular expression.", "default": False},
        "ignore_case": {"type": "boolean", "description": "Do not distinguish capital letters.", "default": False},
        "limit": {
            "type": "integer",
            "description": "How many results to return.",
            "minimum": 1,
            "maximum": 500,
            "default": 50,
        },
        "offset": {"type": "integer", "description": "How many results to pass over.", "minimum": 0, "default": 0},
    },
    "required": ["pattern"],
    "additionalProperties": False,
}


def search_files(
    workspace: Workspace, *, seconds: float = SECONDS, clock: Callable[[], float] = time.monotonic
) -> Tool:
    """Make the tool for a workspace; a search ends at its time limit with what it found."""

    def prepare(path: str, **query: Any) -> Action:
        spot = workspace.resolve(path)
        search = _Search(workspace=workspace, spot=spot, query=_Query(**query), seconds=seconds, clock=clock)
        what = "names" if query["target"] == "files" else "lines"
        return Action(title=f"search {what} in {spot} for {one_line(query['pattern'])}", do=search.run)

    return Tool(
        name="search_files",
        description="Search the workspace: lines of text files, or names of files. Folders of version control, caches "
        "and installed packages are passed over unless path names them.",
        parameters=_PARAMETERS,
        prepare=prepare,
    )


@dataclass(frozen=True, kw_only=True)
class _Query:
    """What is looked for."""

    pattern: str
    target: str
    file_glob: str | None
    regex: bool
    ignore_case: bool
    limit: int
    offset: int


class _File(NamedTuple):
    """A file on the way: the open folder it is in, its name there, and its path in the workspace."""

    folder: int
    name: str
    path: str


@dataclass(kw_only=True)
class _Tally:
    """What was found and what was passed over; room for text runs out."""

    query: _Query
    results: list[str] = field(default_factory=list)
    seen: int = 0
    searched: int = 0
    passed: dict[str, int] = field(default_factory=dict)
    room: int = MOST_CHARACTERS

    @property
    def full(self) -> bool:
        return self.seen > self.query.offset + len(self.results)

    def add(self, line: str) -> None:
        self.seen += 1
        if self.seen > self.query.offset and len(self.results) < self.query.limit and self.room > 0:
            self.results.append(line)
            self.room -= len(line) + 1

    def pass_over(self, why: str) -> None:
        self.passed[why] = self.passed.get(why, 0) + 1


@dataclass(frozen=True, kw_only=True)
class _Search:
    """One search through a folder, from the first file to the last, the limit or the time."""

    workspace: Workspace
    spot: Spot
    query: _Query
    seconds: float
    clock: Callable[[], float]

    def run(self, stop: Stop) -> str:
        tally, ended = _Tally(query=self.query), ""
        deadline = self.clock() + self.seconds
        try:
            matcher = self._matcher()
            for file in self._files(tally):
                if tally.full or stop.is_set():
                    break
                if self.clock() > deadline:
                    raise OutOfTimeError  # noqa: TRY301 - the same end as that of an expression
                if file is not None:
                    self._look_at(file, matcher, tally)
        except OutOfTimeError:
            ended = (
                f"the search was stopped after {self.seconds:g} s; narrow it with path or file_glob, or make it simpler"
            )
        return "\n".join([*tally.results, self._closing(tally, ended)])

    def _matcher(self) -> Matcher:
        pattern, ignore_case = self.query.pattern, self.query.ignore_case
        if self.query.regex:
            return regex(pattern, ignore_case=ignore_case, seconds=self.seconds, clock=self.clock)
        make = name_matcher if self.query.target == "files" else literal
        return make(pattern, ignore_case=ignore_case)

    def _files(self, tally: _Tally) -> Iterator[_File | None]:
        """Yield the files to look at, in the order of their paths; links are not followed.

        None stands for what is passed over: the caller can end the search there too.
        """
        status = self.workspace.status(self.spot)
        if status is None:
            raise ToolError(f"there is no {self.spot}; search_files with target files finds it by its name")
        glob = self.query.file_glob
        for file in self._walk(tally) if stat.S_ISDIR(status.st_mode) else self._alone():
            is_wanted = file is not None and (not glob or matches_glob(file.path, glob))
            yield file if is_wanted else None

    def _alone(self) -> Iterator[_File]:
        with self.workspace.folder(self.spot.parts[:-1]) as folder:
            yield _File(folder, self.spot.parts[-1], "/".join(self.spot.parts))

    def _walk(self, tally: _Tally) -> Iterator[_File | None]:
        with self.workspace.folder(self.spot.parts) as top:
            unreadable = lambda _: tally.pass_over("unreadable folder(s)")  # noqa: E731 - said where it is used
            for place, folders, names, folder in os.fwalk(".", dir_fd=top, onerror=unreadable):
                depth = place.count("/")
                folders[:] = sorted(name for name in folders if name not in PASSED_OVER) if depth < _DEEPEST else []
                above = "/".join([*self.spot.parts, *place.split("/")[1:]])
                yield None
                for name in sorted(names):
                    yield _File(folder, name, f"{above}/{name}" if above else name)

    def _look_at(self, file: _File, matcher: Matcher, tally: _Tally) -> None:
        tally.searched += 1
        if self.query.target == "files":
            if matcher([file.path])[0] >= 0:
                tally.add(one_line(file.path, _LONGEST_PATH))
            return
        lines = _lines_of(file, tally)
        for number, position in enumerate(matcher(lines) if lines else (), 1):
            if position >= 0:
                tally.add(f"{one_line(file.path, _LONGEST_PATH)}:{number}: {_excerpt(lines[number - 1], position)}")

    def _closing(self, tally: _Tally, ended: str) -> str:
        found = counted(len(tally.results), "result") if tally.results else "nothing found"
        parts = [f"{found}, {counted(tally.searched, 'file')} searched"]
        if tally.passed:
            parts.append("passed over: " + ", ".join(f"{number:,} {why}" for why, number in tally.passed.items()))
        if tally.full:
            parts.append(
                f"there are more: go on with offset {self.query.offset + len(tally.results)} or narrow the search"
            )
        return f"[{'; '.join([*parts, ended] if ended else parts)}]"


def _lines_of(file: _File, tally: _Tally) -> list[str]:
    """Return the lines of a text file; what is not searched is counted."""
    try:
        with open_file(file.folder, file.name, file.path) as descriptor:
            if os.fstat(descriptor).st_size > LARGEST_FILE:
                tally.pass_over("larger than 5 MB")
                return []
            with os.fdopen(descriptor, "rb", closefd=False) as stream:
                data = stream.read(LARGEST_FILE)
    except (ToolError, FileNotFoundError):
        tally.pass_over("link, special or unreadable")
        return []
    if b"\0" in data:
        tally.pass_over("binary")
        return []
    return data.decode("utf-8", "replace").split("\n")


def _excerpt(line: str, position: int) -> str:
    start = max(0, position - _BEFORE)
    part = line[start : start + _EXCERPT].strip()
    return visible(f"{'…' if start else ''}{part}{'…' if len(line) > start + _EXCERPT else ''}")
