"""Making a summary fit: which lines go first, and how a line is cut."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from leporello.summary.template.file_lines import FileNote, file_line, read_note, split_file_line
from leporello.summary.template.shape import NAMES, Sections, answered, name_in, render
from leporello.tokens import count_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

# What was done, decided and planned can be told again from the files; what is exact cannot.
_IMPORTANCE = {
    "done": 1.0,
    "answers": 1.0,
    "decisions": 2.0,
    "blocked": 3.0,
    "in_progress": 3.0,
    "next_steps": 3.0,
    "files": 6.0,
    "critical": 6.0,
    "constraints": 9.0,
    "goal": 5.0,  # all but the latest, which stays longest of all
}
_EXACT = frozenset({"files", "critical", "constraints", "goal"})
# This many of the newest lines of the other sections are worth as much as something exact.
_NEWEST_KEPT = {"done": 8, "answers": 8, "decisions": 5, "blocked": 3, "in_progress": 4, "next_steps": 4}
_NEWEST_IMPORTANCE = 4.0
# What was decided and how a request ended is what a reader needs of older work. It is worth as much as what is exact.
_ACCOUNT_IMPORTANCE = {"answers": 6.5, "decisions": 6.0}
_ACCOUNT_HALF_LIFE = 4
_HALF_LIFE = 8
_LEFT_OUT = re.compile(r"\((\d+) older or lesser lines? left out\)")
_CUT_MARK = " […{} characters left out…] "
_LINE_OVERHEAD = 2
_NOTE_TOKENS = 16
_LONGEST_SHARE = 4
_LONGEST_GOAL_SHARE = 2


class _Line(NamedTuple):
    """A line with its place, so that it can be dropped."""

    section: str
    position: int
    text: str


def trim(sections: Sections, budget_tokens: int, *, focus: Iterable[str] = ()) -> Sections:
    """Shorten a summary to a token budget, the least important and oldest lines first, and say how many are left out.

    What was done, decided and planned goes before files, exact values, errors and constraints, but not the newest
    answers and decisions; the latest goal and lines that hold a word of `focus` go last. A file that was only named
    counts as little as an older decision, and names that belong to no file go before what is exact. A line that would
    fill the budget alone is cut, visibly.
    """
    if count_text(render(sections)) <= budget_tokens:
        return sections
    shortened = _with_short_lines(sections, budget_tokens)
    order = _drop_order(shortened, [word.casefold() for word in focus])
    dropped: set[tuple[str, int]] = set()
    result = shortened
    while (excess := count_text(render(result)) - budget_tokens) > 0 and order:
        excess += 0 if dropped else _NOTE_TOKENS
        while excess > 0 and order:
            line = order.pop()
            dropped.add((line.section, line.position))
            excess -= count_text(line.text) + _LINE_OVERHEAD
        result = _without(shortened, dropped)
    return result if excess <= 0 else Sections()


def cut(text: str, tokens: int) -> str:
    """Shorten a text to about `tokens` tokens: its beginning and its end, with a visible mark between them."""
    size = count_text(text)
    if size <= tokens:
        return text
    room = int(len(text) * max(tokens, 0) / size) - len(_CUT_MARK)
    if room <= 0:
        return text[: max(0, int(len(text) * max(tokens, 0) / size))]
    head, tail = room * 2 // 3, room - room * 2 // 3
    return text[:head].rstrip() + _CUT_MARK.format(len(text) - room) + text[len(text) - tail :].lstrip()


def add_up_left_out(sections: Sections, more: int = 0) -> Sections:
    """Keep one note about lines that were left out, as the last line, with the sum of what the notes said."""
    total = more + sum(int(match[1]) for line in sections.critical if (match := _LEFT_OUT.fullmatch(line)))
    lines = tuple(line for line in sections.critical if not _LEFT_OUT.fullmatch(line))
    note = (f"({total} older or lesser line{'s' if total > 1 else ''} left out)",) if total else ()
    return replace(sections, critical=(*lines, *note))


def _with_short_lines(sections: Sections, budget: int) -> Sections:
    """Cut every line that would fill too much of the budget alone."""
    most = budget // _LONGEST_SHARE
    short = {name: tuple(cut(line, most) for line in getattr(sections, name)) for name in NAMES}
    short["files"] = tuple(_shorter_file_line(line, most) for line in sections.files)
    if sections.goal:
        short["goal"] = (*short["goal"][:-1], cut(sections.goal[-1], budget // _LONGEST_GOAL_SHARE))
    return Sections(**short)


def _shorter_file_line(line: str, tokens: int) -> str:
    """Shorten a line of Relevant Files by whole names, the least salient of which stand last."""
    path, note = split_file_line(line)
    said, happened = read_note(note)
    while said and count_text(line) > tokens:
        said = said[: len(said) * 3 // 4]
        line = file_line(path, str(FileNote(said, happened)))
    return cut(line, tokens)


def _drop_order(sections: Sections, focus: Collection[str]) -> list[_Line]:
    """Return every line but the note, the first to go at the end."""
    ranked = []
    requests = [answered(line) for line in sections.done]
    for name in NAMES:
        lines: tuple[str, ...] = getattr(sections, name)
        for position, text in enumerate(lines):
            section, age = name, len(lines) - 1 - position
            if name == "done" and (request := requests[position]) is not None:
                newer = [later for later in requests[position + 1 :] if later is not None]
                if not request or request not in newer:  # what was said last in answer to it
                    section, age = "answers", len(newer)
            if not _LEFT_OUT.fullmatch(text):
                ranked.append((_rank(section, age, text, focus), _Line(name, position, text)))
    ranked.sort(key=lambda pair: pair[0], reverse=True)
    return [line for _, line in ranked]


def _rank(section: str, age: int, text: str, focus: Collection[str]) -> tuple[int, float]:
    """Say how long a line stays: a tier, and within it the section's importance, halved with age."""
    if section == "goal" and age == 0:
        return 3, 0.0
    named_only = section == "files" and " — " not in text
    weight = _IMPORTANCE["decisions" if named_only else section] / (1 + (section != "goal") * age / _HALF_LIFE)
    if focus and any(word in text.casefold() for word in focus):
        return 2, weight
    if section in _EXACT:
        return int(not (named_only or name_in(text))), weight
    if age >= _NEWEST_KEPT[section]:
        return 0, weight
    if section in _ACCOUNT_IMPORTANCE:
        return 1, _ACCOUNT_IMPORTANCE[section] / (1 + age / _ACCOUNT_HALF_LIFE)
    return 1, _NEWEST_IMPORTANCE / (1 + age / _HALF_LIFE)


def _without(sections: Sections, dropped: set[tuple[str, int]]) -> Sections:
    kept = {
        name: tuple(line for i, line in enumerate(getattr(sections, name)) if (name, i) not in dropped)
        for name in NAMES
    }
    return add_up_left_out(Sections(**kept), more=len(dropped))
