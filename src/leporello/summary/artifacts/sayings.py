"""Sentences that decide, demand or forbid something."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from leporello.summary.artifacts.spots import sentence_at, spots

if TYPE_CHECKING:
    from collections.abc import Iterator

_SHORTEST, _LONGEST = 8, 300
_SHORTEST_CJK = 4
_MOST = 1_000
_DECIDES = (
    "decided", "decision", "instead of", "rather than", "going with", "go with", "i'll use", "i will use", "we'll use",
    "let's use", "i chose", "we chose", "opted", "best approach", "switch to", "switched to", "stick with", "i'm using",
    "we agreed", "agreed to", "because", "决定", "改用", "采用", "选用", "而不是", "改为", "换成",
)  # fmt: skip
_WEAK = re.compile(r"\bbecause\b")
_OWN_CHOICE = re.compile(
    r"\b(?:i|we|i'll|i'm|we'll|let's)\b.*\b(?:us(?:e|ed|ing)|keep|kept|add(?:ed)?|chang|made|make|put|moved?)",
    re.IGNORECASE,
)
_DEMANDS = (
    "must", "never", "always", "don't", "do not", "dont ", "only", "prefer", "should not", "shouldn't", "make sure",
    "ensure", "avoid", "instead of", "required", "at least", "at most", "no more than", "please use", "use ", "keep ",
    "without ", "cannot", "can't", "not allowed", "forbidden", "important:", "no need",
    "必须", "不要", "禁止", "只能", "总是", "请用", "务必", "不得", "不能", "一定要", "优先", "避免", "不许",
    "请勿", "别",
)  # fmt: skip
_DEMANDS_STRICTLY = re.compile(
    r"\b(?:must(?: not|n't)?|never|always|don'?t|do not|shouldn'?t|should not|make sure|ensure|avoid|required"
    r"|prefer(?:s|red|ably)?|at least|at most|no more than|please (?:use|keep)|not allowed|forbidden"
    r"|instead of|without)\b|\bimportant:|^(?:please )?(?:use|keep|only)\b"
    r"|\bonly\b.{0,40}\b(?:use|if|when|want|change|touch|edit|for)\b|\b(?:use|want)\b.{0,30}\bonly\b"
    r"|必须|不要|禁止|只能|总是(?=用|使用|先|要|在|保持)|^总是|请用|务必|不得|不能|一定要|优先|避免|不许|请勿|别(?:再|用|改|动|碰|忘)",
    re.IGNORECASE,
)
_NO_DEMAND = re.compile(
    r"\b(?:i|it|we|he|she|they|that|this|which) (?:don'?t|do not|can'?t|cannot)\b "
    r"(?:know|think|see|understand|remember|have|work)",
    re.IGNORECASE,
)
_PASTED = re.compile(r"^\d{1,5}[:|→\t]|^[\"'#]|^\w*(?:Error|Exception):|[({=,]$|^\W*(?:raise|assert|return|if|elif)\b")
_MARKS = re.compile(r"^(?:[\s•>#|-]|\*(?!\*)|\[[ x]\])+|[\s>#|-]+$")
"""What stands before and behind a sentence in a list, a quotation or a table."""
_PAIRED = ("**", "*", "`")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]")


def decisions_at(text: str) -> Iterator[tuple[int, str]]:
    """Yield (position, sentence) for the sentences of a text that decide something."""
    for position, sentence in _sentences(text, _DECIDES):
        if not _is_weak(sentence) or _OWN_CHOICE.search(sentence):
            yield position, sentence


def demands_at(text: str) -> Iterator[tuple[int, str]]:
    """Yield (position, sentence) for the sentences of a text that demand or forbid, in their order."""
    for position, sentence in _sentences(text, _DEMANDS):
        if _DEMANDS_STRICTLY.search(sentence) and not _NO_DEMAND.search(sentence) and not _PASTED.search(sentence):
            yield position, sentence


def _sentences(text: str, cues: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    lowered = text.lower()
    same_length = text if len(lowered) == len(text) else lowered
    seen: set[str] = set()
    for position in sorted(position for cue in cues for position in spots(lowered, cue, most=_MOST)):
        sentence = _bare(sentence_at(same_length, position))
        shortest = _SHORTEST_CJK if _CJK.search(sentence) else _SHORTEST
        if (
            sentence not in seen
            and shortest <= len(sentence) <= _LONGEST
            and not sentence.endswith((":", "{", "?", "？"))
        ):
            seen.add(sentence)
            yield position, sentence


def _bare(sentence: str) -> str:
    """Return a sentence without marks around it; of bold type and code no half is left."""
    bare = _MARKS.sub("", sentence)
    for mark in _PAIRED:
        if bare.count(mark) % 2:
            bare = bare.removeprefix(mark) if bare.startswith(mark) else bare.removesuffix(mark)
    return bare.strip()


def _is_weak(sentence: str) -> bool:
    lowered = sentence.lower()
    return not any(cue in lowered for cue in _DECIDES if not _WEAK.search(cue))
