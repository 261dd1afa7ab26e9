"""Words that stand for each other, because an answer seldom repeats the words of its question.

Somebody asks about pets, and somebody had spoken of a puppy. The table is small and plain English; it only ever adds a
little to what a question's own words find.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from leporello.store.search.stem import stem


def related(term: str) -> tuple[str, ...]:
    """Return the stems of the words that are related to a stem."""
    return _table().get(term, ())


@cache
def _table() -> dict[str, tuple[str, ...]]:
    table: dict[str, dict[str, None]] = {}
    for line in files("leporello.store.search").joinpath("related.txt").read_text("utf-8").splitlines():
        heads, others = _line(line)
        for head in heads:
            table.setdefault(head, {}).update((other, None) for other in others if other != head)
    return {head: tuple(others) for head, others in table.items()}


def _line(line: str) -> tuple[list[str], list[str]]:
    """Read a line: which words are related, and to which others."""
    head, colon, rest = line.partition("#")[0].partition(":")
    words = list(map(stem, head.split()))
    return words, list(map(stem, rest.split())) if colon else words
