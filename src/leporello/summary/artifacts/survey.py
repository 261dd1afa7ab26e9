"""What the outline of old turns leaves behind: everything is searched as a few long texts, nothing turn by turn.

Of what was said it is the decisions, and where the outline has calls also the exact values; of calls the files that
their arguments name; of outputs the error lines at their ends. How often something occurred is counted in stretches of
turns rather than in messages.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from leporello.summary.artifacts.errors import errors_at
from leporello.summary.artifacts.files import clean, mentions, verb_of
from leporello.summary.artifacts.reading import MARKED, NOTICE, spoken
from leporello.summary.artifacts.words import HANDED_OVER, SPOKEN, Passage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leporello.summary.outline import Outline

Row: TypeAlias = tuple[int, str, str]


class Called(NamedTuple):
    """What calls of one tool did to which files, and how often; action "" is a mention."""

    at: int
    action: str
    paths: dict[str, int]


SEARCHED = 400_000
"""Characters of all outputs together that are searched for errors; each output has an equal share of them."""

_STRETCH, _LONG_STRETCH = 64, 1_000
_MOST_MENTIONED = 300
_PATH = re.compile(
    r'"(?:path|file|file_path|filepath|filename|target_file|notebook_path|relative_path|absolute_path)"'
    r'\s*:\s*"([^"\\\n]{1,300})"'
)
_ERROR_HINTS = ("rror", "RROR", "xception", "FAIL", "panic", "atal:", "ot found")


def said(outline: Outline, start: int, stop: int) -> Iterator[Passage]:
    """Yield what was said from one index up to another, by role, a stretch of turns at a time."""
    first, last = (bisect_left(outline.said, (index,)) for index in (start, stop))
    for stretch in _stretches(outline.said[first:last]):
        held: dict[str, list[str]] = {}
        for _, role, text in stretch:
            held.setdefault(role, []).append(text)
        for role, texts in held.items():
            yield from _said(stretch[-1][0], role, texts)


def _stretches(rows: list[Row], length: int = _STRETCH) -> Iterator[list[Row]]:
    return (rows[start : start + length] for start in range(0, len(rows), length))


def _said(index: int, role: str, texts: list[str]) -> Iterator[Passage]:
    """Yield what one role said as one text; one by one when a host or a compaction may have written some of it."""
    together = "\n".join(texts)
    if not any(sign in together for sign in MARKED):
        yield Passage(at=index, rank=SPOKEN, role=role, text=together)
        return
    for text in texts:
        who, words = spoken(role, text)
        if words:
            yield Passage(at=index, rank=HANDED_OVER if who == NOTICE else SPOKEN, role=who, text=words)


def called(outline: Outline) -> Iterator[Called]:
    """Yield what the arguments of calls name, a long stretch of turns at a time."""
    for stretch in _stretches(outline.calls, _LONG_STRETCH):
        by_tool: dict[str, list[str]] = {}
        for _, name, raw in stretch:
            by_tool.setdefault(name, []).append(raw)
        for name, raws in by_tool.items():
            found = _PATH.findall("\n".join(raws))
            paths = {path: count for given, count in Counter(found).items() if (path := _path(given))}
            yield Called(at=stretch[-1][0], action=verb_of(name), paths=paths)
            if len(found) < len(raws):
                yield Called(at=stretch[-1][0], action="", paths=_mentioned(raws))


def _mentioned(raws: list[str]) -> dict[str, int]:
    """Return the newest paths in arguments that do not say what is a file, such as commands."""
    others = [raw for raw in raws if not _PATH.search(raw)]
    words = Counter([word for raw in others for word in raw.split() if "/" in word or "." in word])
    paths: Counter[str] = Counter()
    for word, _, path in mentions("\n".join(list(words)[-_MOST_MENTIONED:])):
        paths[path] += words[word]
    return paths


def _path(given: str) -> str:
    return "" if "://" in given else clean(given)


def errors(outline: Outline) -> Iterator[tuple[int, str]]:
    """Yield (index, line) for the error lines at the ends of outputs."""
    share = SEARCHED // max(1, len(outline.outputs))
    # Whole lines only: half of an error is a wrong one.
    texts = [text if len(text) <= share else text[-share:].partition("\n")[2] for _, text in outline.outputs]
    ends = list(accumulate([len(text) + 1 for text in texts]))
    for position, line in errors_at("\n".join(texts), _ERROR_HINTS):
        yield outline.outputs[bisect_right(ends, position)][0], line
