"""The excerpt of a long output: both ends, and what is telling between them.

Nothing here reads line by line what it can find with one search, so that a long output costs a few passes over it.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import accumulate

_ENDS_SHARE = 0.35
_ERRORS_SHARE = 0.6
_MAX_LINE = 240
_LINE_MARK = 3
_ERROR_WORDS = (
    *("rror", "ERROR", "xception", "FAIL", "ailed", "raceback", "anic", "atal", "denied", "not found", "refused"),
    *("错误", "失败", "异常"),
)
_HITS_PER_WORD = 12
_SCORED_LINES = 100
_ODD_LINES = 16
_TELLING = re.compile(r"[\d/\\=]")
_DIGITS = str.maketrans("0123456789", "0" * 10)


def excerpt(text: str, limit: int) -> tuple[str, int]:
    """Return both ends of a long text and telling lines from between them, and how many characters are left out."""
    end = int(limit * _ENDS_SHARE)
    start = soft_end(text, 0, end)
    stop = len(text) - end
    stop = found + 1 if (found := text.find("\n", stop, stop + end // 2)) >= 0 else stop
    lines = _telling_lines(text[start:stop], limit - 2 * end)
    left_out = stop - start - sum(map(len, lines))
    kept = "".join(f"\n> {line}" for line in lines)
    return f"{text[:start].rstrip()}\n[... {left_out:,} characters left out ...]{kept}\n{text[stop:]}", left_out


def soft_end(text: str, start: int, stop: int) -> int:
    """Return the end of the last line, else of the last word, in the second half of the stretch, else its end."""
    for mark in ("\n", " "):
        found = text.rfind(mark, start + (stop - start) // 2, stop)
        if found > start:
            return found + 1
    return stop


def _telling_lines(text: str, room: int) -> list[str]:
    """Return, in their order, lines with errors and lines unlike the others, as many as there is room for."""
    chosen: dict[int, str] = {}
    for lines, share in ((_error_lines(text), room * _ERRORS_SHARE), (_odd_lines(text), room)):
        used = sum(len(line) + _LINE_MARK for line in chosen.values())
        for at, line in lines:
            if line in chosen.values():
                continue
            used += len(line) + _LINE_MARK
            if used > share:
                break
            chosen[at] = line
    return [chosen[at] for at in sorted(chosen)]


def _error_lines(text: str) -> list[tuple[int, str]]:
    """Return lines that report a failure, with their places: for each word the first and the last few."""
    found: dict[int, str] = {}
    for word in _ERROR_WORDS:
        for at in _hits(text, word):
            begin, line = _line_at(text, at)
            found.setdefault(begin, line)
    return list(found.items())


def _hits(text: str, word: str) -> list[int]:
    """Return the places of a word, one in a line; of very many the first and the last few."""
    first: list[int] = []
    start = 0
    while len(first) < _HITS_PER_WORD and (at := text.find(word, start)) >= 0:
        first.append(at)
        start = max(at + len(word), text.find("\n", at))
    last: list[int] = []
    stop = len(text)
    while len(first) == _HITS_PER_WORD and len(last) < _HITS_PER_WORD:
        stop = text.rfind(word, start, stop)
        if stop < 0:
            break
        last.append(stop)
    return first + last


def _line_at(text: str, at: int) -> tuple[int, str]:
    """Return where the line around a place begins and the line, no more than its surroundings when it is long."""
    begin = text.rfind("\n", 0, at) + 1
    stop = text.find("\n", at)
    stop = len(text) if stop < 0 else stop
    if stop - begin <= _MAX_LINE:
        return begin, text[begin:stop].strip()
    left = max(begin, at - _MAX_LINE // 2)
    right = min(stop, left + _MAX_LINE)
    return left, ("…" if left > begin else "") + text[left:right].strip() + ("…" if right < stop else "")


def _odd_lines(text: str) -> list[tuple[int, str]]:
    """Return lines whose shape (digits aside) occurs once, those with a number, a path or a value only.

    In a log of ten thousand similar lines these are the few that say something else; where all lines differ, an
    even sample of them.
    """
    lines = text.split("\n")
    shapes = text.translate(_DIGITS).split("\n")
    seen = Counter(shapes)
    odd = [number for number, shape in enumerate(shapes) if seen[shape] == 1]
    sample = odd[:: max(1, len(odd) // _SCORED_LINES)]
    telling = [number for number in sample if 0 < len(lines[number]) <= _MAX_LINE and _TELLING.search(lines[number])]
    ends = list(accumulate(map(len, lines)))
    return [
        (ends[number] - len(lines[number]) + number, lines[number].strip())
        for number in telling[:: max(1, len(telling) // _ODD_LINES)]
    ]
