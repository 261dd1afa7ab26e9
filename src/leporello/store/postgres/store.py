"""The store on PostgreSQL."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from leporello.errors import StoreError
from leporello.store.postgres.address import parse
from leporello.store.postgres.connection import BUSY_SECONDS, MOST_CONNECTIONS, PostgresDatabase
from leporello.store.postgres.index import PostgresIndex
from leporello.store.postgres.purging import PostgresPurging
from leporello.store.relational.store import RelationalStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from leporello.store.records import SchemaPlan
    from leporello.store.relational.dialect import Connection


class PostgresStore(RelationalStore, PostgresIndex, PostgresPurging):
    """Conversations in a PostgreSQL database, named by a URL.

    Leases and jobs go by the database's clock, which all processes share, unless another clock is given.
    """

    _db: PostgresDatabase

    def __init__(
        self,
        url: str,
        *,
        clock: Callable[[], float] = time.time,
        busy_seconds: float = BUSY_SECONDS,
        read_only: bool = False,
        most_connections: int = MOST_CONNECTIONS,
    ) -> None:
        database = PostgresDatabase(
            parse(url), read_only=read_only, busy_seconds=busy_seconds, most_connections=most_connections
        )
        super().__init__(database, clock)

    @property
    def url(self) -> str:
        """Where it is, without secrets."""
        return self._db.place

    def schema_plan(self) -> SchemaPlan:
        """Say what it takes to bring the tables up to date."""
        return self._db.schema_plan()

    def backup(self, path: str) -> None:
        """Refuse: PostgreSQL has its own ways, which also know users and settings."""
        raise StoreError(
            "a PostgreSQL database is not copied to a file here.",
            place=self._db.place,
            hint="Use pg_dump; `leporello store migrate` copies it to a SQLite file.",
        )

    def _now(self, connection: Connection) -> float:
        if self._clock is not time.time:
            return self._clock()
        now: float = connection.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()[0]
        return now
