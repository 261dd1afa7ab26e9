"""The window of a branch, worked out from its rows: as it was saved last, with what was added to it since."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from leporello.store.protocol import Window
from leporello.store.sqlite.part import number_of
from leporello.store.sqlite.path import fork_of, is_on, path_of, rows_on

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from leporello.store.protocol import WindowItem


def last_request(connection: sqlite3.Connection, conversation: int) -> int:
    """Return the number of the newest row of the journal."""
    row = connection.execute("SELECT max(number) FROM requests WHERE conversation = ?", (conversation,)).fetchone()
    return row[0] or 0


def current_window(connection: sqlite3.Connection, conversation: int, branch: int, upto: int | None = None) -> Window:
    """Return the window of a branch as it was saved, with what the requests since then added.

    A branch that was never folded goes on from the window that it was forked with. `upto` is the last row of the
    journal that counts, None the newest.
    """
    last = last_request(connection, conversation) if upto is None else upto
    row = connection.execute(
        "SELECT version, number, items FROM windows WHERE conversation = ? AND branch = ? AND number <= ?"
        " ORDER BY number DESC LIMIT 1",
        (conversation, branch, last),
    ).fetchone()
    if row:
        version, number, saved = row
        return Window(version=version, items=_grown(connection, conversation, branch, json.loads(saved), number, last))
    fork = fork_of(connection, conversation, branch)
    start = _forked_window(connection, conversation, branch)
    after = fork.request if fork else 0
    return replace(start, items=_grown(connection, conversation, branch, list(start.items), after, last))


def _grown(
    connection: sqlite3.Connection, conversation: int, branch: int, items: list[WindowItem], after: int, upto: int
) -> tuple[WindowItem, ...]:
    """Return a window with what the requests of its branch added to it."""
    for keep, added in connection.execute(
        "SELECT keep, added FROM requests WHERE conversation = ? AND branch = ? AND number > ? AND number <= ?"
        " ORDER BY number",
        (conversation, branch, after, upto),
    ):
        items[keep:] = json.loads(added)
    return tuple(items)


def _forked_window(connection: sqlite3.Connection, conversation: int, branch: int) -> Window:
    """Return the window that a branch was forked with; a root begins with an empty one.

    It is the newest one of its parent in which whatever was written stands for messages of the new path only, cut
    before the first message that is not on it.
    """
    fork = fork_of(connection, conversation, branch)
    if fork is None:
        return Window()
    upto = fork.request
    rows = connection.execute(
        "SELECT version, number, folded_to, items FROM windows WHERE conversation = ? AND branch = ? AND number <= ?"
        " ORDER BY number DESC",
        (conversation, fork.parent, upto),
    )
    for version, number, noted, saved in rows:
        items = json.loads(saved)
        folded = folded_to(connection, conversation, fork.parent, items) if noted is None else noted
        if folded <= fork.place:
            grown = _grown(connection, conversation, fork.parent, items, number, upto)
            return Window(version=version, items=_cut(connection, conversation, branch, grown))
        upto = number - 1
    above = fork_of(connection, conversation, fork.parent)
    start = _forked_window(connection, conversation, fork.parent)
    after = above.request if above else 0
    grown = _grown(connection, conversation, fork.parent, list(start.items), after, upto)
    return replace(start, items=_cut(connection, conversation, branch, grown))


def _cut(
    connection: sqlite3.Connection, conversation: int, branch: int, items: Sequence[WindowItem]
) -> tuple[WindowItem, ...]:
    """Return the items of a window up to the first message that is not on the path of a branch."""
    path = path_of(connection, conversation, branch)
    for index, item in enumerate(items):
        number = number_of(item["m"], "m") if "m" in item else None
        row = connection.execute(
            "SELECT kind, branch, place, seq, gone FROM messages WHERE id = ? AND conversation = ?",
            (number, conversation),
        ).fetchone()
        if number is not None and (row is None or not (row[0] or is_on(path, *row[1:]))):
            return tuple(items[:index])
    return tuple(items)


def folded_to(connection: sqlite3.Connection, conversation: int, branch: int, items: Sequence[WindowItem]) -> float:
    """Return the place of the newest message that a window does not show: what was written stands for none behind it.

    What was said after the window's newest message is not looked at.
    """
    shown = {number_of(item["m"], "m") for item in items if "m" in item}
    newest = max((number for number in shown if number is not None), default=None)
    path = path_of(connection, conversation, branch)
    where, values = ("", ()) if newest is None else (" AND id <= ?", (newest,))
    rows = rows_on(connection, conversation, path, "id, place", where, values, newest_first=True)
    return next((float(place) for number, place in rows if number not in shown), float("-inf"))


def tops_of(items: Sequence[WindowItem]) -> list[str]:
    """Return the nodes that stand in a window."""
    return [item["n"] for item in items if "n" in item]
