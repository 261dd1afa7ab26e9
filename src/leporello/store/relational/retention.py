"""Retention: what is too old goes, idle branches first, then the oldest messages, or all of a conversation."""

# ruff: noqa: S608 - statements are put together from constants; values are always bound

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from leporello.store.records import ROOT
from leporello.store.relational.branch_path import head_of
from leporello.store.relational.current_window import current_window
from leporello.store.relational.deletion import BATCH, Deletions, described, hide_range
from leporello.store.relational.rows import checked, chunks, find, is_time, placeholders

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leporello.store.records import Deletion
    from leporello.store.relational.dialect import Connection
    from leporello.store.relational.rows import ConversationRow, Hidden

TOO_OLD: Final = "older than allowed"


class Retention(Deletions):
    """Forgetting what is old."""

    def gc(self, *, older_than: float, owner: str | None = None, dry_run: bool = False) -> list[Deletion]:
        """Delete what is older than this many seconds: whole conversations, and the oldest messages of the others.

        Of a conversation that stays, branches on which nothing was said since then go first, unless the head or another
        one that stays goes on from them. Messages that the current window of the head shows stay, and so do its system
        messages.
        """
        cutoff = self._clock() - older_than
        with self._db.read() as connection:
            planned = [plan for plan in _outdated(connection, cutoff, owner) if plan is not None]
            whole = {(key, who) for key, who, first, _ in planned if first is None}
            idle = [(key, who, *_idle(connection, number, cutoff)) for key, who, number in _forked(connection, owner)]
        deleted = [
            self._delete_branches(key, who, branches, numbers, dry_run=dry_run)
            for key, who, branches, numbers in idle
            if branches and (key, who) not in whole
        ]
        for key, who, first, last in planned:
            gone = self.delete(key, owner=who, last=last, first=first, reason=TOO_OLD, dry_run=dry_run)
            counted = {seq for name, owner_, _, numbers in idle for _, seq in numbers if (name, owner_) == (key, who)}
            twice = sum(seq <= last for seq in counted) if dry_run and last is not None else 0
            deleted.append(replace(gone, messages=gone.messages - twice))
        return deleted

    def _delete_branches(
        self, conversation: str, owner: str, branches: Sequence[int], numbers: list[tuple[int, int]], *, dry_run: bool
    ) -> Deletion:
        """Delete branches that no other one goes on from, with the messages that were said on them."""
        for start in range(0, len(branches) if not dry_run else 0, BATCH):
            batch = branches[start : start + BATCH]
            with self._db.write() as connection:
                found = find(connection, conversation, owner)
                hidden = _hide_branches(connection, found, batch, self._clock()) if found else []
            for each in hidden:
                self.remove(each)
        return described(conversation, owner, numbers)


def _outdated(
    connection: Connection, cutoff: float, owner: str | None
) -> list[tuple[str, str, int | None, int | None] | None]:
    """Return key, owner and range of what is older than a moment; no range means everything."""
    where = "" if owner is None else " AND owner = ?"
    rows = connection.execute(
        f"SELECT key, owner, id, updated FROM conversations WHERE deleted IS NULL{where} ORDER BY id",
        () if owner is None else (checked(owner),),
    ).fetchall()
    return [_oldest_prefix(connection, cutoff, *row) for row in rows]


def _oldest_prefix(
    connection: Connection, cutoff: float, key: str, owner: str, number: int, updated: float
) -> tuple[str, str, int | None, int | None] | None:
    young = connection.execute(
        "SELECT min(seq) FROM messages WHERE conversation = ? AND kind = 0 AND time >= ?", (number, cutoff)
    ).fetchone()[0]
    if young is None:
        return (key, owner, None, None) if is_time(updated) and updated < cutoff else None
    shown = _first_shown(connection, number)
    last = (young if shown is None else min(young, shown)) - 1
    old = connection.execute(
        "SELECT 1 FROM messages WHERE conversation = ? AND kind = 0 AND seq <= ? LIMIT 1", (number, last)
    ).fetchone()
    return (key, owner, 1, last) if old else None


def _first_shown(connection: Connection, conversation: int) -> int | None:
    """Return the lowest seq of the messages in the current window of the head."""
    window = current_window(connection, conversation, head_of(connection, conversation))
    ids = [int(item["m"][1:]) for item in window.items if "m" in item]
    seqs = [
        connection.execute("SELECT seq FROM messages WHERE id = ? AND kind = 0", (number,)).fetchone() for number in ids
    ]
    return min((row[0] for row in seqs if row), default=None)


def _forked(connection: Connection, owner: str | None) -> list[tuple[str, str, int]]:
    """Return key, owner and number of the conversations with several branches."""
    where = "" if owner is None else " AND owner = ?"
    return connection.execute(
        "SELECT key, owner, id FROM conversations c WHERE deleted IS NULL"
        f" AND EXISTS (SELECT 1 FROM branches b WHERE b.conversation = c.id AND b.id <> ?){where} ORDER BY id",
        (ROOT,) if owner is None else (ROOT, checked(owner)),
    ).fetchall()


def _idle(connection: Connection, conversation: int, cutoff: float) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the branches that nothing was said on since a moment, and their messages by number and seq."""
    rows = connection.execute(
        "SELECT id, parent, used FROM branches WHERE conversation = ? ORDER BY id DESC", (conversation,)
    ).fetchall()
    parents = {branch: parent for branch, parent, _ in rows}
    needed = {ROOT}
    for branch in [head_of(connection, conversation), *(branch for branch, _, used in rows if used >= cutoff)]:
        above: int | None = branch
        while above is not None and above not in needed:
            needed.add(above)
            above = parents.get(above)
    idle = [branch for branch, _, _ in rows if branch not in needed]
    numbers = [
        row
        for chunk in chunks(idle)
        for row in connection.execute(
            f"SELECT id, seq FROM messages WHERE conversation = ? AND kind = 0 AND branch IN ({placeholders(chunk)})",
            (conversation, *chunk),
        )
    ]
    return idle, numbers


def _hide_branches(
    connection: Connection, found: ConversationRow, branches: Sequence[int], now: float
) -> list[Hidden | None]:
    """Hide the messages of branches, and remove the branches; those that were continued meanwhile stay."""
    used = {row[0] for row in connection.execute("SELECT parent FROM branches WHERE conversation = ?", (found.id,))}
    gone = [branch for branch in branches if branch not in used - set(branches) and branch != found.head]
    if not gone:
        return []
    within = f"conversation = ? AND branch IN ({placeholders(gone)})"
    rows = connection.execute(f"SELECT id FROM messages WHERE {within} AND kind = 0", (found.id, *gone)).fetchall()
    numbers = [number for (number,) in rows]
    hidden = [hide_range(connection, found, chunk, TOO_OLD, now) for chunk in chunks(numbers)]
    for table in ("windows", "handed_out", "leases", "known"):
        connection.execute(f"DELETE FROM {table} WHERE {within}", (found.id, *gone))
    connection.execute(
        f"DELETE FROM branches WHERE conversation = ? AND id IN ({placeholders(gone)})", (found.id, *gone)
    )
    connection.execute("UPDATE conversations SET messages = messages - ? WHERE id = ?", (len(numbers), found.id))
    return hidden
