"""How often terms occur in a text, without cutting the whole text into terms.

A few terms are looked for in many texts, some of them very long. A term's words all begin alike, so they are found by
plain substring search and only then stemmed and compared.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from leporello.store.search.prepare import folded_terms
from leporello.store.search.stem import openings, stem

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_COUNTED: Final = 16
"""Further occurrences hardly change a score."""

_LONGEST_ASCII, _LONGEST_OTHER = 60_000, 6_000  # characters; other scripts take ten times as long
_WORD: Final = re.compile(r"[^\x00-/:-`{-\x7f]+")
_GAP: Final = re.compile(r"[\x00-/:-`{-\x7f]*")


def readable(text: str) -> str:
    """Return the beginning of a text in a form in which its terms can be looked for."""
    if text.isascii():
        return text[:_LONGEST_ASCII].lower()
    return " ".join(folded_terms(text[:_LONGEST_OTHER]))


def has_words(phrases: Sequence[tuple[str, ...]], text: str) -> bool:
    """Tell whether all phrases of folded terms stand in a text, in the same forms."""
    if text.isascii():
        lowered = text.lower()
        return all(phrase[0] in lowered and _pattern(phrase).search(lowered) for phrase in phrases)
    folded = " ".join(("", *folded_terms(text), ""))
    return all(f" {' '.join(phrase)} " in folded for phrase in phrases)


@lru_cache(maxsize=256)
def _pattern(phrase: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"(?<![a-z0-9]){'[^a-z0-9]+'.join(map(re.escape, phrase))}(?![a-z0-9])")


def count(term: str, text: str) -> int:
    """Count how often a term, or a phrase of terms, occurs in a readable text; at most `MOST_COUNTED`."""
    first, *rest = term.split(" ")
    found = 0
    for opening in openings(first):
        position = text.find(opening)
        while position >= 0 and found < MOST_COUNTED:
            found += _stands_at(text, position, first, rest)
            position = text.find(opening, position + len(opening))
    return found


def _stands_at(text: str, position: int, first: str, rest: Sequence[str]) -> bool:
    if position and _WORD.match(text, position - 1):
        return False
    for term in (first, *rest):
        word = _WORD.match(text, position)
        if not word or stem(word[0]) != term:
            return False
        gap = _GAP.match(text, word.end())
        position = gap.end() if gap else word.end()
    return True
