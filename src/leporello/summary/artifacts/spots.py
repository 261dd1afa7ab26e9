"""Finding places in long texts fast: plain substrings first, anything cleverer only around a hit."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_REACH = 400
_SENTENCE_END = re.compile(r"[.!?](?=\s)|[。！？!?；]|\n")


def spots(text: str, word: str, *, most: int = 300) -> Iterator[int]:
    """Yield where a word stands, about once per line, and bounded: from both ends of the text."""
    position, found = text.find(word), 0
    while position >= 0 and found < most:
        yield position
        found += 1
        line_end = text.find("\n", position + 1, position + _REACH)
        position = text.find(word, line_end if line_end >= 0 else position + _REACH)
    if position >= 0:
        yield from _from_the_end(text, word, position, most)


def _from_the_end(text: str, word: str, stop: int, most: int) -> Iterator[int]:
    end = len(text)
    for _ in range(most):
        position = text.rfind(word, stop, end)
        if position < 0:
            return
        yield position
        line_start = text.rfind("\n", stop, position)
        end = line_start if line_start >= 0 else max(stop, position - _REACH)


def line_at(text: str, position: int) -> str:
    """Return the line around a position, or the part of it next to the position when it is very long."""
    start = text.rfind("\n", max(0, position - _REACH), position) + 1
    if not start:
        start = max(0, position - _REACH // 4) if position > _REACH else 0
    end = text.find("\n", position, position + _REACH)
    line = text[start : end if end >= 0 else position + _REACH]
    return line if not start or text[start - 1] == "\n" else "…" + line.partition(" ")[2]


def whole_line(text: str, position: int) -> str:
    """Return the line around a position."""
    end = text.find("\n", position)
    return text[text.rfind("\n", 0, position) + 1 : end if end >= 0 else len(text)]


def sentence_at(text: str, position: int) -> str:
    """Return the sentence around a position, bounded on both sides."""
    start, end = max(0, position - _REACH), min(len(text), position + _REACH)
    for match in _SENTENCE_END.finditer(text, start, end):
        if match.start() >= position:
            end = match.end()
            break
        start = match.end()
    return " ".join(text[start:end].split())
