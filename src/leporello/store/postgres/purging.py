"""Purging: what was deleted is removed, and its space is given back.

PostgreSQL keeps the old versions of rows until they are vacuumed, and the write-ahead log until it is recycled or
archived; backups and standbys follow their own rules. A purge finishes removals that were cut off and then vacuums.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from leporello.store.records import PurgeStatus
from leporello.store.relational.deletion import hide
from leporello.store.relational.retention import Retention
from leporello.store.relational.rows import Hidden, by_number, set_setting, setting

if TYPE_CHECKING:
    from leporello.store.postgres.connection import PostgresDatabase
    from leporello.store.relational.dialect import Connection
    from leporello.store.relational.rows import ConversationRow

_VACUUMED: Final = ("messages", "payloads", "search", "nodes", "windows", "requests", "artifacts", "conversations")


class PostgresPurging(Retention):
    """Making sure that what was deleted is gone."""

    _db: PostgresDatabase

    def purge(self, *, seconds: float | None = None) -> PurgeStatus:
        """Purge until nothing is left of what was deleted, or until the time is up; return how far it came."""
        deadline = float("inf") if seconds is None else time.monotonic() + seconds
        while True:
            status = self.purge_status()
            if status.complete or time.monotonic() >= deadline:
                return status
            if status.step == "rows":
                self._remove_some()
            else:
                self._vacuum()

    def purge_status(self) -> PurgeStatus:
        """Say what a purge would still have to do."""
        with self._db.read() as connection:
            return _status(connection, self._clock())

    def _remove_some(self) -> None:
        now = self._clock()
        with self._db.write() as connection:
            stub = _stub(connection)
            hidden = _due(connection, now) or (hide(connection, stub, now) if stub else None)
        if hidden:
            self.remove_slice(hidden)

    def _vacuum(self) -> None:
        with self._db.read() as connection:
            removed = setting(connection, "removed")
        self._db.settle(_VACUUMED)
        with self._db.write() as connection:
            set_setting(connection, "purged", removed)


def _status(connection: Connection, now: float) -> PurgeStatus:
    messages, conversations = connection.execute(
        "SELECT (SELECT count(*) FROM messages m JOIN purges p ON p.conversation = m.conversation"
        " WHERE p.not_before <= ?), (SELECT count(*) FROM purges WHERE not_before <= ?)",
        (now, now),
    ).fetchone()
    if conversations or _stub(connection):
        return PurgeStatus(step="rows", messages=messages)
    return PurgeStatus(step="pages" if setting(connection, "purged") < setting(connection, "removed") else "")


def _due(connection: Connection, now: float) -> Hidden | None:
    row = connection.execute(
        "SELECT conversation, origin, owner FROM purges WHERE not_before <= ? LIMIT 1", (now,)
    ).fetchone()
    return Hidden(*row) if row else None


def _stub(connection: Connection) -> ConversationRow | None:
    """Return a conversation of which only a tombstone is left, and that was not opened again."""
    row = connection.execute(
        "SELECT c.id FROM conversations c WHERE c.deleted IS NOT NULL AND c.owner IS NOT NULL"
        " AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.conversation = c.id)"
        " AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.conversation = c.id) LIMIT 1"
    ).fetchone()
    return by_number(connection, row[0]) if row else None
