"""A store in a relational database, put together from its parts."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, cast

from leporello.store.records import SearchFilter
from leporello.store.relational.artifacts import ArtifactRows
from leporello.store.relational.branches import Branches
from leporello.store.relational.conversations import Conversations
from leporello.store.relational.import_export import ImportExport
from leporello.store.relational.leases import Leases
from leporello.store.relational.maintenance import Maintenance
from leporello.store.relational.messages import Messages
from leporello.store.relational.nodes import Nodes
from leporello.store.relational.recognition import Recognition
from leporello.store.relational.retention import Retention
from leporello.store.relational.revision import Revisions
from leporello.store.relational.transcript import TranscriptRows
from leporello.store.relational.windows import Windows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import Self

    from leporello.store.protocol import SearchStore
    from leporello.store.records import SearchResult, Sort
    from leporello.store.relational.dialect import TransactionSource


class RelationalStore(
    Conversations,
    Branches,
    Messages,
    Recognition,
    Revisions,
    TranscriptRows,
    Nodes,
    Windows,
    ArtifactRows,
    Leases,
    Maintenance,
    Retention,
    ImportExport,
):
    """Conversations in tables; a database adds its index and its purge."""

    def __init__(self, database: TransactionSource, clock: Callable[[], float]) -> None:
        self._db = database
        self._clock = clock
        self._readings = OrderedDict()
        self._called = OrderedDict()

    def search(
        self,
        text: str,
        *,
        conversation: str | None = None,
        owner: str = "",
        role: str | None = None,
        tool: str | None = None,
        name: str | None = None,
        since: float | None = None,
        until: float | None = None,
        without: Sequence[str] = (),
        limit: int = 10,
        cursor: str | None = None,
        sort: Sort = "relevance",
        regex: bool = False,
        hide_secrets: bool = True,
    ) -> SearchResult:
        """Search the messages of a conversation, or of all that an owner has, and return a page of hits."""
        from leporello.store.search import search

        scope = SearchFilter(
            conversation=conversation,
            owner=owner,
            role=role,
            tool=tool,
            name=name,
            since=since,
            until=until,
            without=tuple(without),
        )
        return search(
            cast("SearchStore", self),
            text,
            filter=scope,
            limit=limit,
            cursor=cursor,
            sort=sort,
            regex=regex,
            hide_secrets=hide_secrets,
        )

    def upgrade(self) -> None:
        """Bring the tables up to date, as the first use of the store does."""
        with self._db.write():
            pass

    def close(self) -> None:
        """Give back connections."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
