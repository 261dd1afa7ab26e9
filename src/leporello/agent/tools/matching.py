"""Ways to find a pattern in lines: literally, as a glob, or as a regular expression that is stopped in time."""

from __future__ import annotations

import re
import warnings
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Protocol

from leporello.errors import QueryError, ToolError
from leporello.store.search.regex import Expression, OutOfTimeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

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


@contextmanager
def regex(pattern: str, *, ignore_case: bool, seconds: float, clock: Callable[[], float]) -> Iterator[Matcher]:
    """Find a regular expression; `OutOfTimeError` when it takes longer than so many seconds."""
    try:
        with Expression(_with_case(pattern, ignore_case=ignore_case), seconds=seconds, clock=clock) as expression:
            yield expression.positions
    except QueryError as error:
        raise ToolError(str(error)) from error


def _with_case(pattern: str, *, ignore_case: bool) -> str:
    """Return the expression with the case that is wanted; one that sets flags of its own is left as it is."""
    exact = f"(?-i:{pattern})"
    return exact if not ignore_case and _is_expression(pattern) and _is_expression(exact) else pattern


def _is_expression(pattern: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        return False
    return True


__all__ = ["Matcher", "OutOfTimeError", "literal", "matches_glob", "name_matcher", "regex"]
