"""The extractive summary, top to bottom: read, gather, fill the template, update the earlier one, fit, redact."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from leporello.redact import redact
from leporello.summary.artifacts import collect_turns
from leporello.summary.artifacts.reading import read_turns
from leporello.summary.artifacts.sayings import demands_at
from leporello.summary.artifacts.spots import sentence_at, spots
from leporello.summary.extract import context, progress
from leporello.summary.extract.story import Story, is_trivial, read_story
from leporello.summary.extract.wording import one_line
from leporello.summary.outline import outline
from leporello.summary.template import NAMES, Sections, cut, merge, parse, render, trim, unique
from leporello.summary.template.shape import answered

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leporello.redact import Redacted, RedactedMessage
    from leporello.summary.artifacts import Artifacts
    from leporello.summary.artifacts.reading import ReadTurn
    from leporello.summary.outline import Outline

FIRST_REQUEST: Final = "First request of these turns: "
LATER_REQUEST: Final = "Then: "
LATEST_REQUEST: Final = "Latest instruction of these turns, quoted as history: "
REQUEST_LABEL: Final = re.compile(f"^(?:{FIRST_REQUEST}|First request: |{LATER_REQUEST}|{LATEST_REQUEST})")
"""What stands before a request, also in older summaries."""

_LATER_REQUESTS = 4
_REQUEST_LENGTH, _FIRST_LENGTH, _LINE_LENGTH = 160, 500, 260
_GOAL_SHARE = 3
_DEMANDS_PER_TURN, _SPOKEN_LENGTH = 12, 20_000
_DECISIONS, _PASSAGES = 40, 8
_FOCUS_WORD = re.compile(r"[A-Za-z0-9_./-]{3,}|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]{2,}")
_COMMON = frozenset({"the", "and", "for", "with", "that", "this", "from", "about", "focus", "keep", "please", "all"})


def extract_summary(
    messages: Sequence[RedactedMessage],
    *,
    budget_tokens: int,
    previous: str = "",
    focus: str = "",
    instructions: str = "",
    names_listed: bool = False,
) -> Redacted:
    """Summarise messages without a model, in the template and within a token budget.

    `previous` is an earlier summary that this one updates and replaces. What speaks of `focus`, or of the words in
    `instructions`, is kept longest. With `names_listed` names of no file are left out, and those that only stood in
    outputs. The result is deterministic, holds no known secrets, and is "" when there is nothing to tell.
    """
    turns = list(read_turns(messages))
    words = _focus_words(f"{focus} {instructions}")
    old = parse(previous)
    asked = _open_request(old)
    new = _filled(turns, outline(messages), budget_tokens, words, asked=asked, names_listed=names_listed)
    return redact(render(trim(_updated(old, new), budget_tokens, focus=words)))


def _filled(
    turns: Sequence[ReadTurn], older: Outline, budget: int, focus: Sequence[str], *, asked: str, names_listed: bool
) -> Sections:
    """Fill the template from the turns alone; the oldest of very many are searched in outline."""
    story = read_story(turns)
    artifacts = collect_turns((turn for turn in turns if turn.at >= older.stop), older)
    newest = [turn for turn in turns if turn.at >= older.stop]
    exact = context.exact_sections(newest, artifacts, budget, names_listed=names_listed)
    blocked = progress.blocked(story, artifacts)
    filled = Sections(
        goal=tuple(_goal(story, budget)),
        constraints=tuple(_constraints(turns)),
        done=tuple(line for line in progress.done(story, artifacts, asked) if line not in blocked),
        in_progress=tuple(progress.in_progress(story)),
        blocked=tuple(blocked),
        decisions=tuple(_decisions(artifacts)),
        files=exact.files,
        next_steps=tuple(progress.next_steps(story, artifacts)),
        critical=(*exact.critical, *_passages(turns, focus)),
    )
    return Sections(**{name: unique(getattr(filled, name)) for name in NAMES})


def _goal(story: Story, budget: int) -> list[str]:
    """Tell how the request developed, with the latest instruction as it was given."""
    requests = story.requests
    if not requests:
        return []
    later = [request for request in requests[1:-1] if not is_trivial(request)]
    lines = [FIRST_REQUEST + one_line(requests[0], _FIRST_LENGTH)] if len(requests) > 1 else []
    lines += [LATER_REQUEST + one_line(request, _REQUEST_LENGTH) for request in later[-_LATER_REQUESTS:]]
    return [*lines, LATEST_REQUEST + " ".join(cut(requests[-1], budget // _GOAL_SHARE).split())]


def _constraints(turns: Iterable[ReadTurn]) -> list[str]:
    """Return what the user demanded or forbade; of one turn, which may be pasted, a bounded part."""
    asked = [turn.text[:_SPOKEN_LENGTH] for turn in turns if turn.role in ("user", "system")]
    ends = list(accumulate(len(text) + 1 for text in asked))
    taken: Counter[int] = Counter()
    lines: list[str] = []
    for position, sentence in demands_at("\n".join(asked)):
        turn = bisect_right(ends, position)
        taken[turn] += 1
        if taken[turn] <= _DEMANDS_PER_TURN:
            lines.append(one_line(sentence, _LINE_LENGTH))
    return lines


def _decisions(artifacts: Artifacts) -> list[str]:
    return [
        ("the user: " if trace.role == "user" else "") + one_line(trace.text, _LINE_LENGTH)
        for trace in artifacts.decisions[-_DECISIONS:]
    ]


def _passages(turns: Sequence[ReadTurn], focus: Sequence[str]) -> list[str]:
    """Return the sentences that speak most of the focus, as they were said."""
    found: dict[str, int] = {}
    for turn in turns if focus else ():
        for text in (turn.text, *(result.text for result in turn.results)):
            lowered = text.lower()
            if len(lowered) != len(text):
                continue
            for position in (position for word in focus for position in spots(lowered, word, most=20)):
                sentence = one_line(sentence_at(text, position).strip(" -*#>"), _LINE_LENGTH)
                found[sentence] = sum(word in sentence.lower() for word in focus)
    best = sorted(found, key=lambda sentence: found[sentence], reverse=True)[:_PASSAGES]
    return [f"about the focus: {sentence}" for sentence in found if sentence in best]


def _open_request(old: Sections) -> str:
    """Return the request of an earlier summary that was not answered yet, or ""."""
    is_open = any(line in progress.NOT_ANSWERED for line in old.next_steps)
    return REQUEST_LABEL.sub("", old.goal[-1]) if is_open and old.goal else ""


def _updated(old: Sections, new: Sections) -> Sections:
    """Update the earlier summary; its latest instruction becomes part of how the request developed.

    It is open no longer when something was said in answer, or asked after it.
    """
    if old == Sections():
        return new
    if new.goal or any(answered(line) is not None for line in new.done):
        old = replace(old, next_steps=tuple(line for line in old.next_steps if line not in progress.NOT_ANSWERED))
    merged = merge(old, replace(new, critical=()))
    return replace(
        merged, goal=_developed(old.goal, new.goal), critical=context.merge_values(merged.critical, new.critical)
    )


def _developed(old: Sequence[str], new: Sequence[str]) -> tuple[str, ...]:
    """Join two goals: the first request of all, a few of the later ones, the latest instruction."""
    if not new:
        return tuple(old)
    earlier = [*old, *new[:-1]]
    first = earlier[:1]
    later = [LATER_REQUEST + one_line(REQUEST_LABEL.sub("", line), _REQUEST_LENGTH) for line in earlier[1:]]
    later = [line for line in dict.fromkeys(later) if not is_trivial(line.removeprefix(LATER_REQUEST))]
    first = [
        FIRST_REQUEST + line.removeprefix(LATEST_REQUEST) if line.startswith(LATEST_REQUEST) else line for line in first
    ]
    return (*first, *later[-_LATER_REQUESTS:], new[-1])


def _focus_words(focus: str) -> list[str]:
    words = (word.lower().strip("./-") for word in _FOCUS_WORD.findall(focus))
    return [word for word in dict.fromkeys(words) if word and word not in _COMMON]
