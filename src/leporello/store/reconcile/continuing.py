"""A list that goes on from where the conversation stood: followed message by message, without any search.

It begins with the list that an engine handed out last, or with the first message, and each message of it is the next
stored one. So what it has behind the last stored message is new, even when it repeats something that was said before.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leporello.store.reconcile.known import is_derived, is_row, is_shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from leporello.store.reconcile.known import History, Origins, Row
    from leporello.store.reconcile.seen import Seen


@dataclass(frozen=True, kw_only=True)
class Continued:
    """How far a list is stored: what its messages stand for, where the new ones begin, and behind which place."""

    known: dict[int, Origins]
    new: int
    place: float


def continued(history: History, seen: Sequence[Seen], emitted: Mapping[str, tuple[Origins, ...]]) -> Continued | None:
    """Follow a list through everything that is stored; None when it leaves something out or has something else."""
    start, known, place = _handed_out(history, seen)
    rows = history.following(place)
    keys = Counter(item.call_key for item in seen)
    for index in range(start, len(seen)):
        item = seen[index]
        made = emitted.get(item.fingerprint)
        if item.system or is_derived(made):
            continue
        row = next(rows, None)
        if row is None:
            return Continued(known=known, new=index, place=place or 0.0)
        stretch = _stretch(item, row, rows, made or (), unique=keys[item.call_key] == 1)
        if stretch is None:
            return None
        known[index] = tuple(row.id for row in stretch)
        place = stretch[-1].place
    return Continued(known=known, new=len(seen), place=place or 0.0) if next(rows, None) is None else None


def _handed_out(history: History, seen: Sequence[Seen]) -> tuple[int, dict[int, Origins], float | None]:
    """Return how far a list is the one that an engine handed out, what it stands for, and where that history ends."""
    handed = history.handed_out()
    if handed is None or all(item.system for item in seen[: len(handed.marks)]) or len(seen) < len(handed.marks):
        return 0, {}, None
    rows = {row.id: row for row in history.rows((), (), {handed.newest, *(i for ids in handed.origins for i in ids)})}
    if handed.newest not in rows:
        return 0, {}, None
    known: dict[int, Origins] = {}
    for index, (mark, origins) in enumerate(zip(handed.marks, handed.origins, strict=True)):
        item = seen[index]
        row = rows.get(origins[0]) if len(origins) == 1 else None
        if item.fingerprint != mark and not (row and is_shortened(item, row)):
            return 0, {}, None
        live = tuple(id_ for id_ in origins if id_ in rows)
        if live and not item.system:
            known[index] = live
    return len(handed.marks), known, rows[handed.newest].place


def _stretch(item: Seen, row: Row, rows: Iterator[Row], made: tuple[Origins, ...], *, unique: bool) -> list[Row] | None:
    """Return the rows that a message stands for, from `row` on, or None."""
    several = max((ids for ids in made if ids[:1] == (row.id,)), key=len, default=())
    stretch = [row]
    while several and stretch[-1].id != several[-1]:
        following = next(rows, None)
        if following is None:
            return None
        stretch.append(following)
    same = item.fingerprint == row.fingerprint or (unique and is_row(item, row))
    return stretch if several or same else None
