"""Windows and the journal: what the model saw, request by request.

A window is kept as it was after every compaction; the journal rows since then say how it grew. So a request costs what
it added, the window of any request can be shown, and a fork goes on from the newest window that fits its path.
"""

# ruff: noqa: S608 - statements are put together from constants; values are always bound

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from leporello.errors import CommitUnknownError, StaleWindowError
from leporello.store.records import JournalRow, StoredWindow
from leporello.store.relational.branch_path import ALL
from leporello.store.relational.current_window import current_window, folded_to, tops_of
from leporello.store.relational.nodes import mark_used, reachable
from leporello.store.relational.rows import Part, find, last_request, opened, placeholders, to_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from leporello.store.records import WindowItem
    from leporello.store.relational.dialect import Connection

_COLUMNS = "number, time, reason, keep, added, usage, cost_usd, prefix, report"


class Windows(Part):
    """What the model sees."""

    def window(self, conversation: str, *, owner: str = "", branch: int | None = None) -> StoredWindow:
        """Return the current window of a branch."""
        with self._db.read() as connection:
            found = find(connection, conversation, owner)
            return current_window(connection, found.id, branch or found.head) if found else StoredWindow()

    def window_at(self, conversation: str, number: int, *, owner: str = "") -> tuple[WindowItem, ...]:
        """Return the window as it was after the journal row with this number, on the branch of that row."""
        with self._db.read() as connection:
            found = find(connection, conversation, owner)
            row = connection.execute(
                "SELECT branch FROM requests WHERE conversation = ? AND number <= ? ORDER BY number DESC LIMIT 1",
                (found.id if found else 0, number),
            ).fetchone()
            return current_window(connection, found.id, row[0], number).items if found and row else ()

    def save_window(
        self,
        conversation: str,
        window: StoredWindow,
        request: JournalRow,
        *,
        owner: str = "",
        branch: int | None = None,
        used: Sequence[str] = (),
    ) -> StoredWindow:
        """Replace the window of a branch, write the journal row and take the nodes from the prepared ones, all at once.

        The row's `keep` and `added` are worked out from the two windows. Raises `StaleWindowError` when the window has
        another version than `window.version`.
        """
        numbers: list[int] = []
        with _telling(numbers), self._db.write() as connection:
            found = opened(connection, conversation, owner, self._clock())
            branch = branch or found.head
            before = current_window(connection, found.id, branch)
            if before.version != window.version:
                raise StaleWindowError(
                    f"the window of {conversation!r} has version {before.version}, not {window.version}.",
                    place=self._db.place,
                    hint="Read it again and decide anew.",
                )
            mark_used(connection, found.id, used, self._db.place)
            keep = _common(before.items, window.items)
            row = replace(request, keep=keep, added=tuple(window.items[keep:]))
            numbers.append(write_request(connection, found.id, row, self._clock(), branch))
            connection.execute(
                "INSERT INTO windows (conversation, branch, version, number, folded_to, nodes, items)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    found.id,
                    branch,
                    window.version + 1,
                    numbers[0],
                    folded_to(connection, found.id, branch, window.items),
                    len(reachable(connection, found.id, tops_of(window.items))),
                    to_json(window.items),
                ),
            )
        return StoredWindow(version=window.version + 1, items=tuple(window.items))

    def record_request(
        self, conversation: str, request: JournalRow, *, owner: str = "", branch: int | None = None
    ) -> int:
        """Write a journal row for a request that only added to the window's end; its version stays."""
        numbers: list[int] = []
        with _telling(numbers), self._db.write() as connection:
            found = opened(connection, conversation, owner, self._clock())
            numbers.append(write_request(connection, found.id, request, self._clock(), branch or found.head))
        return numbers[0]

    def journal(
        self,
        conversation: str,
        *,
        owner: str = "",
        reason: str | None = None,
        last: int | None = None,
        after: int = 0,
        upto: int | None = None,
        branch: int | None = None,
    ) -> list[JournalRow]:
        """Return journal rows, oldest first: the newest `last` of those behind number `after`, up to number `upto`.

        Without a branch, of all of them.
        """
        where, values = "", list[Any]()
        if reason is not None:
            where, values = " AND reason = ?", [reason]
        if branch is not None:
            where, values = f"{where} AND branch = ?", [*values, branch]
        if upto is not None:
            where, values = f"{where} AND number <= ?", [*values, upto]
        with self._db.read() as connection:
            found = find(connection, conversation, owner)
            rows = connection.execute(
                f"SELECT branch, {_COLUMNS} FROM requests WHERE conversation = ?{where} AND number > ?"
                " ORDER BY number DESC LIMIT ?",
                (found.id if found else 0, *values, after, ALL if last is None else last),
            ).fetchall()
        return [_request(row) for row in reversed(rows)]

    def spent(self, conversation: str, reasons: Sequence[str], *, owner: str = "") -> tuple[float, int]:
        """Add up the cost of journal rows with these reasons; returns it, and how many rows have none."""
        with self._db.read() as connection:
            found = find(connection, conversation, owner)
            cost, unpriced = connection.execute(
                "SELECT coalesce(sum(cost_usd), 0.0), count(*) - count(cost_usd) FROM requests"
                f" WHERE conversation = ? AND reason IN ({placeholders(reasons)})",
                (found.id if found else 0, *reasons),
            ).fetchone()
        return cost, unpriced


@contextmanager
def _telling(numbers: list[int]) -> Iterator[None]:
    """Let the error of a commit that was cut off tell which row of the journal was to be written."""
    try:
        yield
    except CommitUnknownError as error:
        error.row = numbers[0]
        raise


def write_request(connection: Connection, conversation: int, request: JournalRow, now: float, branch: int) -> int:
    """Write a row of the journal and return its number."""
    number = last_request(connection, conversation) + 1
    connection.execute(
        f"INSERT INTO requests (conversation, branch, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            conversation,
            branch,
            number,
            request.time or now,
            request.reason,
            request.keep,
            to_json(request.added),
            to_json(request.usage),
            request.cost_usd,
            request.prefix,
            to_json(request.report),
        ),
    )
    return int(number)


def _common(before: Sequence[WindowItem], after: Sequence[WindowItem]) -> int:
    """Return how many items two windows have in common at their front."""
    count = 0
    for old, new in zip(before, after, strict=False):
        if old != new:
            break
        count += 1
    return count


def _request(row: tuple[Any, ...]) -> JournalRow:
    branch, number, time, reason, keep, added, usage, cost, prefix, report = row
    return JournalRow(
        branch=branch,
        number=number,
        time=time,
        reason=reason,
        keep=keep,
        added=tuple(json.loads(added)),
        usage=json.loads(usage),
        cost_usd=cost,
        prefix=prefix,
        report=json.loads(report),
    )
