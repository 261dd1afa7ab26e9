"""The part of a message that shows why it was found."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from leporello.store.search.proximity import closest, lower

if TYPE_CHECKING:
    from leporello.store.search.query import Query

SNIPPET_LENGTH: Final = 240
_BEFORE: Final = 80
_SPACE: Final = re.compile(r"\s+")


def snippet(query: Query, text: str) -> str:
    """Return one line of the text as written, around the place where the query, or most of it, stands."""
    return around(text, _first(query, text))


def around(text: str, position: int) -> str:
    """Return one line of the text around a position, with an ellipsis where it was cut."""
    start = max(0, min(position - _BEFORE, len(text) - SNIPPET_LENGTH))
    end = start + SNIPPET_LENGTH
    line = _SPACE.sub(" ", text[start:end]).strip()
    return f"{'…' if start else ''}{line}{'…' if end < len(text) else ''}"


def _first(query: Query, text: str) -> int:
    """Return where a phrase stands as written, or else where most of the words stand together."""
    if not query.question and len(query.phrases) == 1:
        written = lower(text).find(query.phrases[0].written.lower())
        if written >= 0:
            return written
    return closest(query.content, text)[0]
