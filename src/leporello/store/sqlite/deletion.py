"""Deleting messages on purpose: by conversation, by range, by age.

A tombstone takes the place of the rows and carries the chain over the gap, so that the rest can still be proven. Large
deletions go in short transactions, each of which leaves a consistent store.
"""

from __future__ import annotations

# ruff: noqa: S608 - statements are put together from constants; values are always bound
from typing import TYPE_CHECKING, Final

from leporello.errors import StoreError
from leporello.store.codec import payload_keys
from leporello.store.protocol import Deletion
from leporello.store.search.prepare import prepared_text
from leporello.store.sqlite.index import row_text, take_from_index
from leporello.store.sqlite.part import Conversation, Part, checked, find, placeholders
from leporello.store.sqlite.reading import load
from leporello.store.sqlite.windows import current_window

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

BATCH: Final = 200
_OF_A_CONVERSATION = (
    "windows",
    "requests",
    "artifacts",
    "emitted",
    "handed_out",
    "forgotten",
    "jobs",
    "leases",
    "covers",
    "nodes",
)


class Deletions(Part):
    """Forgetting, on purpose and visibly."""

    def delete(
        self,
        conversation: str,
        *,
        owner: str = "",
        first: int | None = None,
        last: int | None = None,
        reason: str = "deleted",
        dry_run: bool = False,
    ) -> Deletion:
        """Delete a conversation, or a range of its messages by seq, and leave a tombstone.

        Of a range, published summaries stay: they are what the model remembers. A conversation goes with everything.
        """
        with self._db.read() as connection:
            found = find(connection, conversation, owner)
            if found is None:
                raise StoreError(f"there is no conversation {conversation!r}.", place=self._db.place)
            whole = first is None and last is None
            numbers = _chosen(connection, found, first or 0, found.next_seq if last is None else last, systems=whole)
        if not dry_run:
            self._delete(conversation, owner, numbers, reason, whole=whole)
        seqs = [seq for _, seq in numbers]
        return Deletion(
            conversation=conversation,
            owner=owner,
            messages=len(numbers),
            first_seq=min(seqs, default=0),
            last_seq=max(seqs, default=0),
            whole=whole,
        )

    def gc(self, *, older_than: float, owner: str | None = None, dry_run: bool = False) -> list[Deletion]:
        """Delete what is older than so many seconds: whole conversations, and the oldest messages of the others.

        Messages that a conversation's current window shows stay, and so do its system messages.
        """
        cutoff = self._clock() - older_than
        with self._db.read() as connection:
            planned = [plan for plan in _outdated(connection, cutoff, owner) if plan is not None]
        return [
            self.delete(key, owner=who, last=last, first=first, reason="older than allowed", dry_run=dry_run)
            for key, who, first, last in planned
        ]

    def _delete(
        self, conversation: str, owner: str, numbers: list[tuple[int, int]], reason: str, *, whole: bool
    ) -> None:
        for start in range(0, len(numbers), BATCH):
            batch = [number for number, _ in numbers[start : start + BATCH]]
            with self._db.write() as connection:
                found = find(connection, conversation, owner)
                if found:
                    connection.execute("PRAGMA secure_delete = ON")
                    _bury(connection, found, batch, reason, self._clock())
        with self._db.write() as connection:
            found = find(connection, conversation, owner)
            if found and whole:
                _forget(connection, found.id, self._clock())
            elif found and numbers:
                _drop_unpublished(connection, found.id, numbers[0][1], numbers[-1][1])
        with self._db.plain() as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()


def _chosen(
    connection: sqlite3.Connection, found: Conversation, first: int, last: int, *, systems: bool
) -> list[tuple[int, int]]:
    """Return the messages of a range, by number and seq; system messages only when everything goes."""
    kinds = "" if systems else " AND kind = 0"
    return connection.execute(
        f"SELECT id, seq FROM messages WHERE conversation = ? AND seq BETWEEN ? AND ?{kinds} ORDER BY seq",
        (found.id, first, last),
    ).fetchall()


def _outdated(
    connection: sqlite3.Connection, cutoff: float, owner: str | None
) -> list[tuple[str, str, int | None, int | None] | None]:
    """Return key, owner and range of what is older than a moment; no range means everything."""
    where = "" if owner is None else " AND owner = ?"
    rows = connection.execute(
        f"SELECT key, owner, id, updated FROM conversations WHERE deleted IS NULL{where} ORDER BY id",
        () if owner is None else (checked(owner),),
    ).fetchall()
    return [_oldest_prefix(connection, cutoff, *row) for row in rows]


def _oldest_prefix(
    connection: sqlite3.Connection, cutoff: float, key: str, owner: str, number: int, updated: float
) -> tuple[str, str, int | None, int | None] | None:
    young = connection.execute(
        "SELECT min(seq) FROM messages WHERE conversation = ? AND kind = 0 AND time >= ?", (number, cutoff)
    ).fetchone()[0]
    if young is None:
        return (key, owner, None, None) if updated < cutoff else None
    shown = _first_shown(connection, number)
    last = (young if shown is None else min(young, shown)) - 1
    old = connection.execute(
        "SELECT 1 FROM messages WHERE conversation = ? AND kind = 0 AND seq <= ? LIMIT 1", (number, last)
    ).fetchone()
    return (key, owner, 1, last) if old else None


def _first_shown(connection: sqlite3.Connection, conversation: int) -> int | None:
    """Return the lowest seq of the messages in the current window."""
    ids = [int(item["m"][1:]) for item in current_window(connection, conversation).items if "m" in item]
    seqs = [
        connection.execute("SELECT seq FROM messages WHERE id = ? AND kind = 0", (number,)).fetchone() for number in ids
    ]
    return min((row[0] for row in seqs if row), default=None)


def _bury(connection: sqlite3.Connection, found: Conversation, numbers: Sequence[int], reason: str, now: float) -> None:
    """Take messages out, and put tombstones in their place."""
    stored = load(connection, numbers)
    texts = [
        (number, row_text(prepared_text(row.message), found.id, found.owner))
        for number, row in stored.items()
        if not row.system
    ]
    take_from_index(connection, texts)
    rows = connection.execute(
        "SELECT id, seq, chain, refs, fingerprint, call_key FROM messages"
        f" WHERE id IN ({placeholders(numbers)}) ORDER BY seq",
        numbers,
    ).fetchall()
    for number, seq, chain, refs, mark, key in rows:
        connection.executemany(
            "INSERT OR IGNORE INTO forgotten (conversation, mark) VALUES (?, ?)",
            [(found.id, each) for each in (mark, key) if each],
        )
        before = _chain_before(connection, found.id, seq)
        _tombstone(connection, found.id, seq, before, chain, reason, now)
        connection.execute("DELETE FROM messages WHERE id = ?", (number,))
        connection.execute("DELETE FROM artifacts WHERE conversation = ? AND message = ?", (found.id, number))
        for payload in payload_keys(refs):
            connection.execute("UPDATE payloads SET uses = uses - 1 WHERE hash = ?", (payload,))
            connection.execute("DELETE FROM payloads WHERE hash = ? AND uses <= 0", (payload,))
    connection.execute("UPDATE conversations SET revision = revision + 1 WHERE id = ?", (found.id,))


def _chain_before(connection: sqlite3.Connection, conversation: int, seq: int) -> bytes:
    row = connection.execute(
        "SELECT chain FROM messages WHERE conversation = ? AND seq = ? UNION ALL"
        " SELECT chain_after FROM tombstones WHERE conversation = ? AND last_seq = ?",
        (conversation, seq - 1, conversation, seq - 1),
    ).fetchone()
    return row[0] if row else b""


def _tombstone(
    connection: sqlite3.Connection, conversation: int, seq: int, before: bytes, after: bytes, reason: str, now: float
) -> None:
    """Put a tombstone for one message, joined to the one before it when both have the same reason."""
    joined = connection.execute(
        "UPDATE tombstones SET last_seq = ?, messages = messages + 1, chain_after = ?, time = ?"
        " WHERE conversation = ? AND last_seq = ? AND reason = ?",
        (seq, after, now, conversation, seq - 1, reason),
    ).rowcount
    if not joined:
        connection.execute(
            "INSERT INTO tombstones (conversation, first_seq, last_seq, messages, chain_before, chain_after, reason,"
            " time) VALUES (?, ?, ?, 1, ?, ?, ?, ?)",
            (conversation, seq, seq, before, after, reason, now),
        )


def _forget(connection: sqlite3.Connection, conversation: int, now: float) -> None:
    """Remove everything that was kept beside the messages; the conversation stays as a name for its tombstones."""
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute(
        "DELETE FROM children WHERE parent IN (SELECT id FROM nodes WHERE conversation = ?)", (conversation,)
    )
    for table in _OF_A_CONVERSATION:
        connection.execute(f"DELETE FROM {table} WHERE conversation = ?", (conversation,))
    connection.execute("UPDATE conversations SET deleted = ?, meta = '{}' WHERE id = ?", (now, conversation))


def _drop_unpublished(connection: sqlite3.Connection, conversation: int, first: int, last: int) -> None:
    """Remove summaries over deleted messages that no window shows."""
    nodes = (
        "SELECT id FROM nodes WHERE conversation = ? AND state <> 'published' AND first_seq <= ? AND last_seq >= ?"
        " AND id NOT IN (SELECT child FROM children)"
    )
    values = (conversation, last, first)
    connection.execute(f"DELETE FROM children WHERE parent IN ({nodes})", values)
    connection.execute(f"DELETE FROM covers WHERE node IN ({nodes})", values)
    connection.execute(f"DELETE FROM nodes WHERE id IN ({nodes})", values)
