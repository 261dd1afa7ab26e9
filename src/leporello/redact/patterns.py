"""Small helpers for patterns and plain searches that run over megabytes."""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def any_of(words: Iterable[str]) -> str:
    """Return a pattern for any of these words that decides one character at a time."""
    ordered = sorted(set(words))
    if "" in ordered:
        longer = [word for word in ordered if word]
        return f"(?:{any_of(longer)})?" if longer else ""
    branches = [
        re.escape(first) + any_of(word[1:] for word in group)
        for first, group in groupby(ordered, key=lambda word: word[0])
    ]
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"


def places_of(text: str, needle: str) -> Iterator[int]:
    """Yield where a needle stands; several times faster than a pattern that begins with it."""
    position = text.find(needle)
    while position >= 0:
        yield position
        position = text.find(needle, position + len(needle))
