"""What a purge has to remove in every database: the rows of what was deleted, as far as they are still there."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar, Literal

from leporello.store.records import PurgeStatus
from leporello.store.relational.deletion import hide
from leporello.store.relational.retention import Retention
from leporello.store.relational.rows import Hidden, by_number

if TYPE_CHECKING:
    from leporello.store.relational.dialect import Connection
    from leporello.store.relational.rows import ConversationRow


class Purges(Retention):
    """Finds and removes deleted rows; what comes after that, the database says in `_next_step`."""

    _IS_NAMED: ClassVar[str]
    """The condition on conversations that were not hidden yet."""

    def purge_status(self) -> PurgeStatus:
        """Say what a purge would still have to do."""
        now = self._clock()
        with self._db.read() as connection:
            messages, conversations = connection.execute(
                "SELECT (SELECT count(*) FROM messages m JOIN purges p ON p.conversation = m.conversation"
                " WHERE p.not_before <= ?), (SELECT count(*) FROM purges WHERE not_before <= ?)",
                (now, now),
            ).fetchone()
            if conversations or self._stub(connection):
                return PurgeStatus(step="rows", messages=messages)
            return PurgeStatus(step=self._next_step(connection))

    @abstractmethod
    def _next_step(self, connection: Connection) -> Literal["index", "pages", "log", ""]:
        """Return what is to be done when all rows are removed."""

    def _remove_some(self) -> None:
        """Remove a slice of the rows of one conversation."""
        now = self._clock()
        with self._db.write() as connection:
            stub = self._stub(connection)
            hidden = _due(connection, now) or (hide(connection, stub, now) if stub else None)
        if hidden:
            self.remove_slice(hidden)

    def _stub(self, connection: Connection) -> ConversationRow | None:
        """Return a conversation of which only a tombstone is left, and that was not opened again."""
        row = connection.execute(
            f"SELECT c.id FROM conversations c WHERE c.deleted IS NOT NULL AND {self._IS_NAMED}"  # noqa: S608 - a constant
            " AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.conversation = c.id)"
            " AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.conversation = c.id) LIMIT 1"
        ).fetchone()
        return by_number(connection, row[0]) if row else None


def _due(connection: Connection, now: float) -> Hidden | None:
    row = connection.execute(
        "SELECT conversation, origin, owner FROM purges WHERE not_before <= ? LIMIT 1", (now,)
    ).fetchone()
    return Hidden(*row) if row else None
