"""Purging: what was deleted is removed, and its space is given back.

PostgreSQL keeps the old versions of rows until they are vacuumed, and the write-ahead log until it is recycled or
archived; backups and standbys follow their own rules. A purge finishes removals that were cut off and then vacuums.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Literal

from leporello.store.relational.purging import Purges
from leporello.store.relational.rows import set_setting, setting

if TYPE_CHECKING:
    from leporello.store.postgres.connection import PostgresDatabase
    from leporello.store.records import PurgeStatus
    from leporello.store.relational.dialect import Connection

_VACUUMED: Final = ("messages", "payloads", "search", "nodes", "windows", "requests", "artifacts", "conversations")


class PostgresPurging(Purges):
    """Making sure that what was deleted is gone."""

    _db: PostgresDatabase
    _IS_NAMED = "c.owner IS NOT NULL"

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

    def _next_step(self, connection: Connection) -> Literal["pages", ""]:
        return "pages" if setting(connection, "purged") < setting(connection, "removed") else ""

    def _vacuum(self) -> None:
        with self._db.read() as connection:
            removed = setting(connection, "removed")
        self._db.settle(_VACUUMED)
        with self._db.write() as connection:
            set_setting(connection, "purged", removed)
