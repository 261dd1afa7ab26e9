"""The window of a branch, worked out from its rows: as it was saved last, with what was added to it since."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from leporello.messages.fixed import FIXED_TEXTS
from leporello.store.records import StoredWindow
from leporello.store.relational.branch_path import Fork, fork_of, path_of, rows_on
from leporello.store.relational.rows import chunks, last_request, number_of, placeholders

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from leporello.store.records import WindowItem
    from leporello.store.relational.dialect import Connection


def current_window(connection: Connection, conversation: int, branch: int, upto: int | None = None) -> StoredWindow:
    """Return the window of a branch as it was saved, with what the requests since then added.

    A branch that was never folded goes on from the window that it was forked with. `upto` is the last row of the
    journal that counts, None the newest.
    """
    last = last_request(connection, conversation) if upto is None else upto
    row = next(_saved(connection, conversation, branch, last), None)
    if row:
        return row.window(_grown(connection, conversation, branch, row.items, row.number, last))
    fork = fork_of(connection, conversation, branch)
    start = _forked_window(connection, conversation, branch)
    items = _grown(connection, conversation, branch, list(start.items), fork.request if fork else 0, last)
    return replace(start, items=items)


class _Saved(NamedTuple):
    """A window as it was after a fold."""

    version: int
    number: int
    folded_to: float
    items: list[WindowItem]

    def window(self, items: tuple[WindowItem, ...]) -> StoredWindow:
        return StoredWindow(version=self.version, items=items, folded_to=self.folded_to)


def _saved(connection: Connection, conversation: int, branch: int, last: int) -> Iterator[_Saved]:
    """Walk the windows that were saved on a branch up to a row of the journal, the newest first."""
    rows = connection.execute(
        "SELECT version, number, folded_to, items FROM windows WHERE conversation = ? AND branch = ? AND number <= ?"
        " ORDER BY number DESC",
        (conversation, branch, last),
    )
    for version, number, noted, text in rows:
        items = json.loads(text)
        folded = folded_to(connection, conversation, branch, items) if noted is None else noted
        yield _Saved(version, number, folded, items)


def _grown(
    connection: Connection,
    conversation: int,
    branch: int,
    items: list[WindowItem],
    after: int,
    upto: int,
    *,
    only_longer: bool = False,
) -> tuple[WindowItem, ...]:
    """Return a window with what the requests of its branch added to it.

    With `only_longer` up to the first one that changed what was written, as a fold does whose window is not kept any
    more; what was said may have been told differently since.
    """
    for keep, added in connection.execute(
        "SELECT keep, added FROM requests WHERE conversation = ? AND branch = ? AND number > ? AND number <= ?"
        " ORDER BY number",
        (conversation, branch, after, upto),
    ):
        new = json.loads(added)
        if only_longer and keep < len(items) and any("m" not in item for item in (*items[keep:], *new)):
            break
        items[keep:] = new
    return tuple(items)


class _Level(NamedTuple):
    """One fork on the way up: from which row of the journal of the parent on, and up to which, its window grew."""

    fork: Fork
    after: int
    upto: int
    from_saved: bool


def _forked_window(connection: Connection, conversation: int, branch: int) -> StoredWindow:
    """Return the window that a branch was forked with; a root begins with an empty one.

    It is the newest one of its parent in which whatever was written stands for messages of the new path only, cut
    before the first message that is not on it. A parent that has none goes on from its own parent's.
    """
    levels: list[_Level] = []
    window = StoredWindow()
    fork = fork_of(connection, conversation, branch)
    while fork is not None:
        above = fork_of(connection, conversation, fork.parent)
        upto, base = fork.request, None
        for saved in _saved(connection, conversation, fork.parent, fork.request):
            if saved.folded_to <= fork.place:
                base = saved
                break
            upto = saved.number - 1
        if base is not None:
            levels.append(_Level(fork, base.number, upto, from_saved=True))
            window = base.window(tuple(base.items))
            break
        levels.append(_Level(fork, above.request if above else 0, upto, from_saved=False))
        fork = above
    items = window.items
    for fork, after, upto, from_saved in reversed(levels):
        grown = _grown(connection, conversation, fork.parent, list(items), after, upto, only_longer=not from_saved)
        items = _cut(connection, conversation, fork, grown)
    return replace(window, items=items)


def _cut(connection: Connection, conversation: int, fork: Fork, items: Sequence[WindowItem]) -> tuple[WindowItem, ...]:
    """Return the items of a window up to the first message behind a fork, without what stands in for a reply there."""
    numbers = [number for item in items if (number := number_of(item.get("m", ""), "m")) is not None]
    shared: set[int] = set()
    for chunk in chunks(numbers):
        rows = connection.execute(
            f"SELECT id FROM messages WHERE conversation = ? AND id IN ({placeholders(chunk)})"  # noqa: S608 - constants
            " AND (kind = 1 OR (place <= ? AND seq <= ? AND (gone IS NULL OR gone > ?)))",
            (conversation, *chunk, fork.place, fork.seq, fork.seq),
        )
        shared.update(number for (number,) in rows)
    end = next((at for at, item in enumerate(items) if "m" in item and int(item["m"][1:]) not in shared), len(items))
    while 0 < end < len(items) and items[end - 1].get("t") in FIXED_TEXTS:
        end -= 1
    return tuple(items[:end])


def folded_to(connection: Connection, conversation: int, branch: int, items: Sequence[WindowItem]) -> float:
    """Return the place of the newest message that a window does not show: what was written stands for none behind it.

    What was said after the newest message that the window knows of is not looked at.
    """
    known = {number_of(item["m"], "m") for item in items if "m" in item}
    newest = max((number for number in known if number is not None), default=None)
    shown = known - {number_of(item["m"], "m") for item in items if item.get("folded")}
    path = path_of(connection, conversation, branch)
    where, values = ("", ()) if newest is None else (" AND id <= ?", (newest,))
    rows = rows_on(connection, conversation, path, "id, place", where, values, newest_first=True)
    return next((float(place) for number, place in rows if number not in shown), float("-inf"))


def tops_of(items: Sequence[WindowItem]) -> list[str]:
    """Return the nodes that stand in a window."""
    return [item["n"] for item in items if "n" in item]
