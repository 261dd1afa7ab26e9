"""The store on SQLite."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from leporello.errors import StoreError
from leporello.store.relational.store import RelationalStore
from leporello.store.sqlite.backups import write_copy
from leporello.store.sqlite.connection import BUSY_SECONDS, Database
from leporello.store.sqlite.index import Index
from leporello.store.sqlite.purging import Purging

if TYPE_CHECKING:
    from collections.abc import Callable

    from leporello.store.records import SchemaPlan


class SQLiteStore(RelationalStore, Index, Purging):
    """Conversations in a SQLite file, or in memory when `path` is None."""

    _db: Database

    def __init__(
        self,
        path: Path | None = None,
        *,
        clock: Callable[[], float] = time.time,
        busy_seconds: float = BUSY_SECONDS,
        read_only: bool = False,
    ) -> None:
        super().__init__(Database(path, read_only=read_only, busy_seconds=busy_seconds), clock)

    @property
    def url(self) -> str:
        """Where it is."""
        return self._db.place if self._db.path is None else f"sqlite:///{self._db.path}"

    def schema_plan(self) -> SchemaPlan:
        """Say what it takes to bring the file up to date."""
        return self._db.schema_plan()

    def backup(self, path: str) -> None:
        """Write a consistent copy while in use; an existing file is not overwritten."""
        target = Path(path).expanduser().absolute()
        if target.exists():
            raise StoreError("there is a file already.", place=str(target), hint="Name another file for the backup.")
        with self._db.plain() as connection:
            write_copy(connection, target)
