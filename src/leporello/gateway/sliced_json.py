"""Reads long JSON so that other threads run in between.

The decoder of `json` that is written in C holds the interpreter until it is done: 0.25 s for 32 MB of escapes. Here the
values are walked through by the one in Python, and a long text is read a slice at a time.
"""

from __future__ import annotations

import json
from json.decoder import scanstring  # type: ignore[attr-defined]
from json.scanner import py_make_scanner  # type: ignore[attr-defined]
from typing import Any, Final

_FIRST: Final = 256
_LONGEST: Final = 256 * 1024  # of slices: most texts are short, and a slice is copied
_ESCAPE: Final = len(r"\u0000")


class SlicedDecoder(json.JSONDecoder):
    """Reads what `json.JSONDecoder` reads, as that does, but never for long at a time.

    The name of a member, a number and white space are still read at once, and lists may be nested half as deeply.
    """

    def __init__(self, **hooks: Any) -> None:
        super().__init__(**hooks)
        self.parse_string = read_text
        self.scan_once: Any = py_make_scanner(self)


def read_text(source: str, start: int, strict: bool = True) -> tuple[str, int]:
    """Return the text that begins behind the quote before `start`, and where it ends."""
    pieces: list[str] = []
    place, length = start, _FIRST
    while len(source) - place > length:
        piece, place, ended = _slice(source, place, length, strict)
        pieces.append(piece)
        if ended:
            return "".join(pieces), place
        length = min(2 * length, _LONGEST)
    try:
        piece, end = scanstring(source, place, strict)
    except json.JSONDecodeError as error:
        if error.pos != place - 1:
            raise
        raise json.JSONDecodeError(error.msg, source, start - 1) from None  # it has no end, wherever it was cut
    return "".join([*pieces, piece]), end


def _slice(source: str, start: int, most: int, strict: bool) -> tuple[str, int, bool]:
    """Read up to a place that is inside of no escape: try the farthest one, then those before it."""
    for length in range(most, most - _ESCAPE, -1):
        try:
            piece, used = scanstring(source[start : start + length] + '"', 0, strict)
        except json.JSONDecodeError:
            continue
        if used <= length:
            return piece, start + used, True
        if "\ud800" <= piece[-1] <= "\udbff":  # one character may be written as two escapes
            return piece[:-1], start + length - _ESCAPE, False
        return piece, start + length, False
    piece, end = scanstring(source, start, strict)  # it is wrong: to be told where
    return piece, end, True
