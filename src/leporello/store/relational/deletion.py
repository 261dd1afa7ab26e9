"""Deleting messages on purpose: by conversation and by range.

What is deleted is hidden first: its rows move to a conversation without a name, and a tombstone takes their place
and carries the chain over the gap, so that the rest can still be proven. Then the rows are removed in short
transactions; a removal that was cut off is finished by `purge`, which also takes the words out of the index.
"""

from __future__ import annotations

# ruff: noqa: S608 - statements are put together from constants; values are always bound
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from leporello.errors import StoreError
from leporello.store.codec import payload_keys
from leporello.store.records import ROOT, Deletion
from leporello.store.relational.counters import recount
from leporello.store.relational.current_window import current_window, tops_of
from leporello.store.relational.nodes import reachable
from leporello.store.relational.rows import (
    ConversationRow,
    Hidden,
    Part,
    add_branch,
    chunks,
    find,
    last_request,
    placeholders,
    set_setting,
    setting,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leporello.store.relational.dialect import Connection

BATCH: Final = 200
_ATTEMPTS: Final = 3
_COUNTED_AT_ONCE: Final = 50  # branches, in one transaction
SLICE_ROWS: Final = 25

_ROWS_BESIDE: Final = {
    "requests": "number",
    "artifacts": "id",
    "jobs": "id",
    "emitted": "fingerprint",
    "forgotten": "mark",
    "tombstones": "first_seq",
    "windows": "version",
    "handed_out": "branch",
    "leases": "branch",
    "pins": "message",
    "known": "hash",
    "branches": "id",
}
"""What is kept beside messages and nodes, and the column that tells the rows of one conversation apart."""


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

        Of a range, summaries that a branch shows stay: they are what the model remembers. A conversation goes with
        everything.
        """
        with self._db.read() as connection:
            found = find(connection, conversation, owner)
            if found is None:
                raise StoreError(f"there is no conversation {conversation!r}.", place=self._db.place)
            whole = first is None and last is None
            numbers = _chosen(connection, found, first or 0, found.next_seq if last is None else last, systems=whole)
        if not dry_run and whole:
            self._delete_whole(conversation, owner, reason)
        elif not dry_run:
            self._delete_range(conversation, owner, numbers, reason)
        return described(conversation, owner, numbers, whole=whole)

    def remove_slice(self, hidden: Hidden) -> bool:
        """Remove some rows of a hidden conversation, and finally the conversation; return whether it is gone."""
        with self._db.read() as connection:
            numbers = [
                number
                for (number,) in connection.execute(
                    "SELECT id FROM messages WHERE conversation = ? ORDER BY id LIMIT ?", (hidden.id, SLICE_ROWS)
                )
            ]
            texts = connection.dialect.indexed(connection, hidden, numbers)
        with self._db.write() as connection:
            set_setting(connection, "removed", setting(connection, "removed") + 1)
            if numbers:
                _remove(connection, hidden, texts)
                return False
            return _forget(connection, hidden.id)

    def remove(self, hidden: Hidden | None) -> None:
        """Remove a hidden conversation."""
        while hidden and not self.remove_slice(hidden):
            pass

    def _delete_whole(self, conversation: str, owner: str, reason: str) -> None:
        with self._db.write() as connection:
            found = find(connection, conversation, owner)
            hidden = _hide_whole(connection, found, conversation, reason, self._clock()) if found else None
        self.remove(hidden)

    def _delete_range(self, conversation: str, owner: str, numbers: list[tuple[int, int]], reason: str) -> None:
        after: int | None = None
        for start in range(0, len(numbers), BATCH):
            batch = [number for number, _ in numbers[start : start + BATCH]]
            hidden = None
            with self._db.write() as connection:
                found = find(connection, conversation, owner)
                if found:
                    hidden = hide_range(connection, found, batch, reason, self._clock())
                    after = recount(connection, found.id, most=_COUNTED_AT_ONCE)
            self.remove(hidden)
        while after is not None:
            with self._db.write() as connection:
                found = find(connection, conversation, owner)
                after = recount(connection, found.id, after=after, most=_COUNTED_AT_ONCE) if found else None
        if numbers:
            self._drop_unshown(conversation, owner, numbers[0][1], numbers[-1][1])

    def _drop_unshown(self, conversation: str, owner: str, first: int, last: int) -> None:
        """Remove summaries over deleted messages that no branch shows; looked for before the lock is taken."""
        for attempt in range(_ATTEMPTS):
            with self._db.read() as connection:
                state, nodes = _unshown(connection, conversation, owner, first, last)
            with self._db.write() as connection:
                unchanged = _unshown(connection, conversation, owner)[0] == state
                if unchanged or attempt == _ATTEMPTS - 1:  # others may have folded meanwhile
                    _drop(connection, conversation, owner, nodes if unchanged else [])
                    return


def described(conversation: str, owner: str, numbers: list[tuple[int, int]], *, whole: bool = False) -> Deletion:
    """Describe the deletion of messages, which are given by number and seq."""
    seqs = [seq for _, seq in numbers]
    return Deletion(
        conversation=conversation,
        owner=owner,
        messages=len(numbers),
        first_seq=min(seqs, default=0),
        last_seq=max(seqs, default=0),
        whole=whole,
    )


def _chosen(
    connection: Connection, found: ConversationRow, first: int, last: int, *, systems: bool
) -> list[tuple[int, int]]:
    """Return the messages of a range, by number and seq; system messages only when everything goes."""
    kinds = "" if systems else " AND kind = 0"
    return connection.execute(
        f"SELECT id, seq FROM messages WHERE conversation = ? AND seq BETWEEN ? AND ?{kinds} ORDER BY seq",
        (found.id, first, last),
    ).fetchall()


def hide(connection: Connection, found: ConversationRow, now: float) -> Hidden:
    """Take a conversation's name and owner from it, so that it cannot be found, in constant time."""
    connection.execute(
        "UPDATE conversations SET owner = ?, key = ?, deleted = ? WHERE id = ?",
        (connection.dialect.hidden_owner, str(uuid4()), now, found.id),
    )
    connection.execute(
        "INSERT INTO purges (conversation, origin, owner, not_before) VALUES (?, ?, ?, ?)",
        (found.id, found.id, found.owner, now),
    )
    for table in ("jobs", "leases"):
        connection.execute(f"DELETE FROM {table} WHERE conversation = ?", (found.id,))
    return Hidden(found.id, found.id, found.owner)


def _hide_whole(connection: Connection, found: ConversationRow, key: str, reason: str, now: float) -> Hidden:
    """Hide a conversation, and give its name to a tombstone."""
    hidden = hide(connection, found, now)
    stub = connection.execute(
        "INSERT INTO conversations (owner, key, next_seq, chain, revision, created, updated, deleted)"
        " SELECT ?, ?, next_seq, chain, revision + 1, created, updated, deleted FROM conversations WHERE id = ?"
        " RETURNING id",
        (found.owner, key, found.id),
    ).fetchone()[0]
    add_branch(connection, stub, ROOT, now)
    if found.next_seq > 1:
        connection.execute(
            "INSERT INTO tombstones (conversation, first_seq, last_seq, messages, chain_before, chain_after, reason,"
            " time) VALUES (?, 1, ?, ?, ?, ?, ?, ?)",
            (stub, found.next_seq - 1, found.next_seq - 1, b"", found.chain, reason, now),
        )
    return hidden


def hide_range(
    connection: Connection,
    found: ConversationRow,
    numbers: Sequence[int],
    reason: str,
    now: float,
) -> Hidden | None:
    """Take messages out of a conversation, put tombstones in their place, and return what is left to remove."""
    within = f"IN ({placeholders(numbers)})"
    rows = connection.execute(
        f"SELECT seq, chain, fingerprint, call_key FROM messages WHERE id {within} AND conversation = ? ORDER BY seq",
        (*numbers, found.id),
    ).fetchall()
    for seq, chain, mark, key in rows:
        connection.executemany(
            "INSERT INTO forgotten (conversation, mark) VALUES (?, ?) ON CONFLICT DO NOTHING",
            [(found.id, each) for each in (mark, key) if each],
        )
        _tombstone(connection, found.id, seq, _chain_before(connection, found.id, seq), chain, reason, now)
    hidden = connection.dialect.move_out(connection, found, numbers, now)
    connection.execute(f"DELETE FROM pins WHERE conversation = ? AND message {within}", (found.id, *numbers))
    connection.executemany(
        "DELETE FROM known WHERE conversation = ? AND seq = ?", [(found.id, seq) for seq, *_ in rows]
    )
    connection.execute("UPDATE conversations SET revision = revision + 1 WHERE id = ?", (found.id,))
    return hidden


def _chain_before(connection: Connection, conversation: int, seq: int) -> bytes:
    row = connection.execute(
        "SELECT chain FROM messages WHERE conversation = ? AND seq = ? UNION ALL"
        " SELECT chain_after FROM tombstones WHERE conversation = ? AND last_seq = ?",
        (conversation, seq - 1, conversation, seq - 1),
    ).fetchone()
    return row[0] if row else b""


def _tombstone(
    connection: Connection, conversation: int, seq: int, before: bytes, after: bytes, reason: str, now: float
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


def _remove(connection: Connection, hidden: Hidden, texts: Mapping[int, str | None]) -> None:
    """Remove messages with their payloads and index entries; those that another process removed are left out."""
    rows = connection.execute(
        f"SELECT id, refs FROM messages WHERE id IN ({placeholders(texts)}) AND conversation = ?",
        (*texts, hidden.id),
    ).fetchall()
    connection.dialect.unindex(connection, hidden, {number: texts[number] for number, _ in rows})
    for number, refs in rows:
        connection.execute("DELETE FROM messages WHERE id = ? AND conversation = ?", (number, hidden.id))
        connection.dialect.drop_payloads(connection, hidden.id, payload_keys(refs))


def _forget(connection: Connection, conversation: int) -> bool:
    """Remove some of what was kept beside the messages, and the conversation when nothing is left of it."""
    if _remove_nodes(connection, conversation):
        return False
    for table, column in _ROWS_BESIDE.items():
        some = f"SELECT {column} FROM {table} WHERE conversation = ? LIMIT ?"
        removed = connection.execute(
            f"DELETE FROM {table} WHERE conversation = ? AND {column} IN ({some})",
            (conversation, conversation, BATCH),
        ).rowcount
        if removed == BATCH:
            return False
    connection.execute("DELETE FROM purges WHERE conversation = ?", (conversation,))
    connection.execute("DELETE FROM conversations WHERE id = ?", (conversation,))
    return True


def _remove_nodes(connection: Connection, conversation: int) -> bool:
    """Remove some nodes of a conversation; tell whether there were any."""
    nodes = [
        number
        for (number,) in connection.execute(
            "SELECT id FROM nodes WHERE conversation = ? LIMIT ?", (conversation, SLICE_ROWS)
        )
    ]
    connection.dialect.remove_nodes(connection, conversation, nodes)
    return bool(nodes)


def _unshown(
    connection: Connection, conversation: str, owner: str, first: int = 1, last: int = 0
) -> tuple[tuple[int, ...], list[int]]:
    """Return the state of a conversation, and the summaries over some of its messages that no branch shows."""
    found = find(connection, conversation, owner)
    if found is None:
        return (), []
    state = (found.id, found.revision, last_request(connection, found.id))
    if last < first:
        return state, []
    branches = connection.execute("SELECT id FROM branches WHERE conversation = ?", (found.id,)).fetchall()
    tops = {top for (branch,) in branches for top in tops_of(current_window(connection, found.id, branch).items)}
    shown = set(reachable(connection, found.id, sorted(tops)))
    over = connection.execute(
        "SELECT id FROM nodes WHERE conversation = ? AND first_seq <= ? AND last_seq >= ?", (found.id, last, first)
    )
    return state, [number for (number,) in over if number not in shown]


def _drop(connection: Connection, conversation: str, owner: str, nodes: Sequence[int]) -> None:
    """Remove nodes, and windows that are no longer current; forks may go on from those of a conversation with some."""
    found = find(connection, conversation, owner)
    if found is None:
        return
    connection.execute(
        "DELETE FROM windows WHERE conversation = ?"
        " AND number < (SELECT max(w.number) FROM windows w WHERE w.conversation = ?)"
        " AND NOT EXISTS (SELECT 1 FROM branches b WHERE b.conversation = ? AND b.id <> ?)",
        (found.id, found.id, found.id, ROOT),
    )
    for chunk in chunks(nodes):
        connection.dialect.remove_nodes(connection, found.id, chunk)
