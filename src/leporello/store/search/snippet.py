"""The part of a message that shows why it was found."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from leporello.store.search.prepare import folded_terms
from leporello.store.search.stem import openings, stem

if TYPE_CHECKING:
    from leporello.store.search.query import Query

SNIPPET_LENGTH: Final = 240
_BEFORE: Final = 80
_LONGEST_READ: Final = 8_000_000
_SPACE: Final = re.compile(r"\s+")
_WORD: Final = re.compile(r"[^\W_]+")


def snippet(query: Query, text: str) -> str:
    """Return one line of the text as written, around the first place where the query stands."""
    return around(text, _first(query, text))


def around(text: str, position: int) -> str:
    """Return one line of the text around a position, with an ellipsis where it was cut."""
    start = max(0, min(position - _BEFORE, len(text) - SNIPPET_LENGTH))
    end = start + SNIPPET_LENGTH
    line = _SPACE.sub(" ", text[start:end]).strip()
    return f"{'…' if start else ''}{line}{'…' if end < len(text) else ''}"


def _first(query: Query, text: str) -> int:
    lowered = text[:_LONGEST_READ].lower()
    lowered = lowered if len(lowered) == len(text[:_LONGEST_READ]) else text[:_LONGEST_READ]
    written = [lowered.find(phrase.written.lower()) for phrase in query.phrases if len(phrase.written) > 1]
    if query.phrases and not query.question and written and max(written) >= 0:
        return min(position for position in written if position >= 0)
    places = [place for unit in query.content if (place := _place(unit, lowered)) >= 0]
    return _densest(places)


def _place(unit: str, lowered: str) -> int:
    """Return where a word with the stem first stands, -1 when nowhere."""
    first = unit.partition(" ")[0]
    for opening in openings(first):
        position = lowered.find(opening)
        while position >= 0:
            word = _WORD.match(lowered, position)
            begins = position == 0 or not _WORD.match(lowered, position - 1) or not first.isascii()
            if begins and (not first.isascii() or (word and stem("".join(folded_terms(word[0]))) == first)):
                return position
            position = lowered.find(opening, position + 1)
    return -1


def _densest(places: list[int]) -> int:
    """Return the place with most others close after it."""
    return max(
        sorted(places),
        key=lambda place: sum(0 <= other - place < SNIPPET_LENGTH - _BEFORE for other in places),
        default=0,
    )
