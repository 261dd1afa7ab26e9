"""Updating an earlier summary with what came after it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from leporello.summary.template.budget import add_up_left_out
from leporello.summary.template.file_lines import FileNote, file_line, read_note, split_file_line
from leporello.summary.template.shape import Sections, line_key, name_in, unique

if TYPE_CHECKING:
    from collections.abc import Iterable

_COUNTED = re.compile(r" \((\d+)×\)$")
_WORD = re.compile(r"[A-Za-z0-9_./-]{2,}|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]")
_ENOUGH_SHARED = 0.6
_NOTE_LENGTH = 500


def merge(old: Sections, new: Sections) -> Sections:
    """Update an earlier summary: newer wins, work in progress gets done, nothing stands twice.

    Goals, constraints, decisions and exact values accumulate, and a line that comes up again counts as recent. Steps
    that lay ahead are replaced by newer ones. Work in progress stays so only while nothing newer is in progress.
    """
    news = [*new.done, *new.in_progress]
    open_work = _not_covered(old.in_progress, news)
    moved, still = (open_work, []) if new.in_progress else ([], open_work)
    return add_up_left_out(
        Sections(
            goal=unique([*old.goal, *new.goal]),
            constraints=unique([*old.constraints, *new.constraints]),
            done=_added_up([*old.done, *moved, *new.done]),
            in_progress=unique([*still, *new.in_progress]),
            blocked=_added_up([*_not_covered(old.blocked, [*news, *new.blocked]), *new.blocked]),
            decisions=unique([*old.decisions, *new.decisions]),
            files=_merged_files([*old.files, *new.files]),
            next_steps=unique(new.next_steps or _not_covered(old.next_steps, new.done)),
            critical=_added_up([*not_renewed(old.critical, new.critical), *new.critical]),
        )
    )


def _merged_files(lines: Iterable[str]) -> tuple[str, ...]:
    """Keep one line per path: what happened is added up, what is said about it is kept."""
    notes: dict[str, str] = {}
    named: dict[str, str] = {}
    for line in lines:
        path, note = (name, "") if (name := name_in(line)) else split_file_line(line)
        named[path] = line
        notes[path] = ", ".join(filter(None, [note, notes.pop(path, "")]))
    return tuple(file_line(path, _bounded(notes[path])) if notes[path] else named[path] for path in notes)


def _bounded(note: str) -> str:
    """Add up what happened; of what is said, the first clauses stay: the newest, and of those the most salient."""
    said, happened = read_note(note)
    kept: list[str] = []
    for clause in said:
        if len(clause) + sum(map(len, kept)) <= _NOTE_LENGTH:
            kept.append(clause)
    return str(FileNote(kept, happened))


def not_renewed(old: Iterable[str], new: Iterable[str]) -> list[str]:
    """Return the older lines without those of names that a newer line tells of."""
    renewed = {name_in(line) for line in new} - {""}
    return [line for line in old if name_in(line) not in renewed]


def _added_up(lines: Iterable[str]) -> tuple[str, ...]:
    """Keep each line once, where it stands last, with the sum of the counts at its end."""
    counts: dict[str, int] = {}
    texts: dict[str, str] = {}
    for line in lines:
        match = _COUNTED.search(line)
        text = line[: match.start()] if match else line
        key = line_key(text)
        counted = int(match[1]) if match else 0
        counts[key] = counts.get(key, 0) + counted if counted and key in counts else max(counted, counts.get(key, 0))
        texts.pop(key, None)
        texts[key] = text
    return tuple(f"{text} ({counts[key]}×)" if counts[key] > 1 else text for key, text in texts.items())


def _not_covered(lines: Iterable[str], others: Iterable[str]) -> list[str]:
    """Return the lines that none of the others covers."""
    known = [_words(other) for other in others]
    return [line for line in lines if not any(_covers(other, _words(line)) for other in known)]


def _covers(words: frozenset[str], wanted: frozenset[str]) -> bool:
    return bool(wanted) and len(words & wanted) >= _ENOUGH_SHARED * len(wanted)


def _words(line: str) -> frozenset[str]:
    return frozenset(_WORD.findall(line.casefold()))
