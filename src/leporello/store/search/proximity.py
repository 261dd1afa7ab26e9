"""Where the words of a query stand closest together in a text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from leporello.store.search.prepare import folded_terms
from leporello.store.search.stem import openings, stem

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

STRETCH: Final = 160
"""Characters within which words stand together: about two lines."""

_MOST_PLACES: Final = 64  # of a term; further ones are not looked at
_LONGEST_READ: Final = 8_000_000
_WORD: Final = re.compile(r"[^\W_]+")


def closest(terms: Sequence[str], text: str) -> tuple[int, int]:
    """Return where the stretch with most of the terms begins, and how many it has; (0, 0) when none stands there.

    Of equal stretches the first is taken. A term is a stem, or several separated by spaces, of which the first counts.
    """
    lowered = lower(text)
    places = sorted((place, term) for term in terms for place in _places(term, lowered))
    best = start = 0
    last = 0
    counts: dict[str, int] = {}
    for end, (place, term) in enumerate(places):
        counts[term] = counts.get(term, 0) + 1
        while place - places[last][0] >= STRETCH:
            first = places[last][1]
            counts[first] -= 1
            if not counts[first]:
                del counts[first]
            last += 1
        if len(counts) > best or end == 0:
            best, start = len(counts), places[last][0]
    return start, best


def lower(text: str) -> str:
    """Return the beginning of a text in lower case, every character at its place."""
    read = text[:_LONGEST_READ]
    lowered = read.lower()
    return lowered if len(lowered) == len(read) else read


def _places(term: str, lowered: str) -> Iterator[int]:
    """Yield where words with the stem stand, a bounded number of them."""
    first = term.partition(" ")[0]
    found = 0
    for opening in openings(first):
        position = lowered.find(opening)
        while position >= 0 and found < _MOST_PLACES:
            if _stands_at(first, lowered, position):
                found += 1
                yield position
            position = lowered.find(opening, position + 1)


def _stands_at(stemmed: str, lowered: str, position: int) -> bool:
    if not stemmed.isascii():
        return True
    word = _WORD.match(lowered, position)
    begins = position == 0 or not _WORD.match(lowered, position - 1)
    return begins and word is not None and stem("".join(folded_terms(word[0]))) == stemmed
