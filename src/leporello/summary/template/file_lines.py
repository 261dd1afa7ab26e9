"""The lines of Relevant Files: a path, the names that were used with it, and what happened to it."""

from __future__ import annotations

import re
from typing import NamedTuple

_FILE_NOTE = re.compile(r"`? (?:—|–|-) |`?: |`? (?=\()")
_ACTION = re.compile(r"(created|written|deleted|moved|run|read in part|read|listed|searched|in errors)(?: (\d+)×)?$")

READ_IN_PART = "read in part"
ABOUT_WORDS = "about "
"""What stands before words that stood beside a path, where its line has no names that did."""


class FileNote(NamedTuple):
    """What a line says about a file: names and other remarks, and what happened to it, how often."""

    said: list[str]
    happened: dict[str, int]

    def __str__(self) -> str:
        return ", ".join([*self.said, *(times(what, count) for what, count in self.happened.items())])


def split_file_line(line: str) -> tuple[str, str]:
    """Split a line of Relevant Files into the path and what is said about it."""
    match = _FILE_NOTE.search(line)
    path, note = (line[: match.start()], line[match.end() :]) if match else (line, "")
    return path.strip().strip("`*"), note.strip()


def file_line(path: str, note: str) -> str:
    """Write a line of Relevant Files."""
    return f"{path} — {note}" if note else path


def read_note(note: str) -> FileNote:
    """Take apart what is said about a file; what happened is added up."""
    said: list[str] = []
    happened: dict[str, int] = {}
    for clause in filter(None, note.split(", ")):
        if match := _ACTION.match(clause):
            happened[match[1]] = happened.get(match[1], 0) + int(match[2] or 1)
        elif clause not in said:
            said.append(clause)
    return FileNote(said, happened)


def times(what: str, count: int) -> str:
    """Say how often something happened, when it was more than once."""
    return f"{what} {count}×" if count > 1 else what
