"""The store on SQLite, put together from its parts."""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import TYPE_CHECKING

from leporello.store.sqlite.artifacts import Artifacts
from leporello.store.sqlite.branches import Branches
from leporello.store.sqlite.connection import BUSY_SECONDS, Database
from leporello.store.sqlite.conversations import Conversations
from leporello.store.sqlite.import_export import ImportExport
from leporello.store.sqlite.index import Index
from leporello.store.sqlite.leases import Leases
from leporello.store.sqlite.maintenance import Maintenance
from leporello.store.sqlite.messages import Messages
from leporello.store.sqlite.nodes import Nodes
from leporello.store.sqlite.recognition import Recognition
from leporello.store.sqlite.revision import Revisions
from leporello.store.sqlite.transcript import Transcript
from leporello.store.sqlite.windows import Windows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType
    from typing import Self


class SQLiteStore(
    Conversations,
    Branches,
    Messages,
    Recognition,
    Revisions,
    Transcript,
    Nodes,
    Windows,
    Artifacts,
    Leases,
    Index,
    Maintenance,
    ImportExport,
):
    """Conversations in a SQLite file, or in memory when `path` is None."""

    def __init__(
        self,
        path: Path | None = None,
        *,
        clock: Callable[[], float] = time.time,
        busy_seconds: float = BUSY_SECONDS,
        read_only: bool = False,
    ) -> None:
        self._db = Database(path, read_only=read_only, busy_seconds=busy_seconds)
        self._clock = clock
        self._readings = OrderedDict()
        self._called = OrderedDict()

    @property
    def url(self) -> str:
        """Where it is."""
        return self._db.place if self._db.path is None else f"sqlite:///{self._db.path}"

    def close(self) -> None:
        """Give back connections."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
