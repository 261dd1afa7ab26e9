"""The plan for a list in which each message is the next stored one, from the first or from the last compaction on.

Everything behind the last stored message is new then, even when it repeats an earlier message.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from leporello.store.reconcile.plan import START, Plan, in_a_row, is_derived, is_row, is_shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from leporello.messages.listed_message import ListedMessage
    from leporello.store.reconcile.plan import BranchHistory, Emitted, Origins, StoredRow


def continuation_plan(history: BranchHistory, seen: Sequence[ListedMessage], emitted: Emitted) -> Plan | None:
    """Compare a list with the stored messages one by one; None when it lacks one or has another one."""
    start, known, place = _handed_out(history, seen)
    rows = history.between(place)
    keys = Counter(item.call_key for item in seen)
    said = [
        index
        for index in range(start, len(seen))
        if not (seen[index].system or is_derived(emitted.get(seen[index].fingerprint)))
    ]
    for number, index in enumerate(said):
        row = next(rows, None)
        if row is None:
            return Plan(known=known, added=in_a_row(said[number:], place))
        item = seen[index]
        stretch = _stretch(item, row, rows, emitted.get(item.fingerprint, ()), unique=keys[item.call_key] == 1)
        if stretch is None:
            return None
        known[index] = tuple(row.id for row in stretch)
        place = stretch[-1].place
    return Plan(known=known) if next(rows, None) is None else None


def _handed_out(history: BranchHistory, seen: Sequence[ListedMessage]) -> tuple[int, dict[int, Origins], float]:
    """Return the length of the list that an engine returned last, its origins, and the place where that history ends.

    (0, {}, START) when the list does not begin with it.
    """
    handed = history.handed_out()
    if handed is None or all(item.system for item in seen[: len(handed.marks)]) or len(seen) < len(handed.marks):
        return 0, {}, START
    rows = {row.id: row for row in history.rows((), (), {handed.newest, *(i for ids in handed.origins for i in ids)})}
    if handed.newest not in rows:
        return 0, {}, START
    known: dict[int, Origins] = {}
    for index, (mark, origins) in enumerate(zip(handed.marks, handed.origins, strict=True)):
        item = seen[index]
        row = rows.get(origins[0]) if len(origins) == 1 else None
        if item.fingerprint != mark and not (row and is_shortened(item, row)):
            return 0, {}, START
        live = tuple(id_ for id_ in origins if id_ in rows)
        if live and not item.system:
            known[index] = live
    return len(handed.marks), known, rows[handed.newest].place


def _stretch(
    item: ListedMessage, row: StoredRow, rows: Iterator[StoredRow], made: tuple[Origins, ...], *, unique: bool
) -> list[StoredRow] | None:
    """Return the rows behind a message, from `row` on; None when it is another message."""
    several = max((ids for ids in made if ids[:1] == (row.id,)), key=len, default=())
    stretch = [row]
    while several and stretch[-1].id != several[-1]:
        following = next(rows, None)
        if following is None:
            return None
        stretch.append(following)
    return stretch if several or is_row(item, row, unique=unique) else None
