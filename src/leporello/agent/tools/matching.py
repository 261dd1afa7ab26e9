"""Ways to find a pattern in lines: literally, as a glob, or as a regular expression that is stopped in time."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Protocol

from leporello.errors import QueryError, ToolError
from leporello.store.search.regex import Expression, OutOfTimeError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_GLOB = re.compile(r"[*?\[]")


class Matcher(Protocol):
    """Says for each line where the pattern begins in it, -1 for nowhere."""

    def __call__(self, lines: Sequence[str], /) -> list[int]:
        """Look through the lines."""


def literal(pattern: str, *, ignore_case: bool) -> Matcher:
    """Find a text as it stands."""
    if not ignore_case:
        return lambda lines: [line.find(pattern) for line in lines]
    wanted = pattern.casefold()
    return lambda lines: [line.casefold().find(wanted) for line in lines]


def name_matcher(pattern: str, *, ignore_case: bool) -> Matcher:
    """Find names: a pattern with *, ? or [ is a glob for the name or the whole path, others are part of the path."""
    if not _GLOB.search(pattern):
        return literal(pattern, ignore_case=ignore_case)
    return lambda paths: [0 if matches_glob(path, pattern, ignore_case=ignore_case) else -1 for path in paths]


def matches_glob(path: str, pattern: str, *, ignore_case: bool = False) -> bool:
    """Tell whether a glob fits a path or the name at its end."""
    if ignore_case:
        path, pattern = path.casefold(), pattern.casefold()
    return fnmatchcase(path, pattern) or fnmatchcase(path.rpartition("/")[2], pattern)


def regex(pattern: str, *, ignore_case: bool, seconds: float, clock: Callable[[], float]) -> Matcher:
    """Find a regular expression; `OutOfTimeError` when it takes longer than the given seconds."""
    try:
        expression = Expression(pattern, ignore_case=ignore_case, seconds=seconds, clock=clock)
    except QueryError as error:
        raise ToolError(str(error)) from error
    return lambda lines: [expression.position(line) for line in lines]


__all__ = ["Matcher", "OutOfTimeError", "literal", "matches_glob", "name_matcher", "regex"]
