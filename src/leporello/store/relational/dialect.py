"""What the tables need of a database, and what databases do differently.

Statements are written once, in the SQL that SQLite and PostgreSQL share, with `?` for values. What one of them says
otherwise, or keeps in other tables, is a method of its `SQLDialect`, which every connection carries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from leporello.store.records import Finding, Node
    from leporello.store.relational.rows import ConversationRow, Hidden


class QueryRows(Protocol):
    """What a statement returned."""

    @property
    def rowcount(self) -> int:
        """How many rows it changed."""

    def fetchone(self) -> Any:
        """Return the next row, or None."""

    def fetchall(self) -> list[Any]:
        """Return the rows that are left."""

    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """A connection in a transaction."""

    @property
    def dialect(self) -> SQLDialect:
        """What this database does differently."""

    @property
    def locking(self) -> str:
        """What follows the statement that reads a conversation which is going to be changed."""

    def execute(self, sql: str, parameters: Sequence[Any] = ..., /) -> QueryRows:
        """Run a statement."""

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> object:
        """Run a statement for each of several rows."""

    def insert(self, table: str, columns: str, rows: Sequence[Sequence[Any]], /) -> None:
        """Write rows of a table, as many of them as there are, in the quickest way."""

    def walk(self, sql: str, parameters: Sequence[Any] = ..., /) -> Iterable[Any]:
        """Run a query whose rows are read as they are asked for: perhaps only the first of very many."""


class TransactionSource(Protocol):
    """Where connections come from."""

    @property
    def place(self) -> str:
        """Where it is, for messages, without secrets."""

    def read(self) -> AbstractContextManager[Connection]:
        """Lend a connection that sees one state of the database."""

    def write(self) -> AbstractContextManager[Connection]:
        """Lend a connection whose changes are made all together at the end, or not at all."""

    def settle(self, tables: Iterable[str]) -> None:
        """Do what the database wants done after very many changes of tables."""

    def exists(self) -> bool:
        """Tell whether there is something to read."""

    def close(self) -> None:
        """Give back connections."""


class SQLDialect(Protocol):
    """What a database does differently."""

    @property
    def hidden_owner(self) -> bytes | None:
        """The owner of hidden conversations, which equals no name."""

    @property
    def shown(self) -> str:
        """The condition on `c` that is true of conversations that are not hidden."""

    @property
    def most_segments(self) -> int:
        """How many segments of a path are written out in one condition."""

    @property
    def on_long_path(self) -> str:
        """The condition that rows on a longer path fulfil, given its segments as JSON."""

    @property
    def conversation_of(self) -> str:
        """The condition on the conversation of rows that are looked up by their ids."""

    @property
    def message_of(self) -> str:
        """The same of a message `m`."""

    @property
    def contains(self) -> str:
        """The condition that value or note of an artifact fit a pattern, in any case."""

    @property
    def payloads_apart(self) -> bool:
        """Whether every conversation has payloads of its own."""

    @property
    def clock_slack(self) -> float:
        """Seconds that two transactions at the same time may differ in what time it is."""

    @property
    def due_job(self) -> str:
        """What ends the statement that looks for a job to claim."""

    def check_name(self, name: str) -> None:
        """Raise for the name of a conversation or an owner that this database cannot hold."""

    # messages

    def next_numbers(self, connection: Connection, count: int) -> Sequence[int]:
        """Return numbers for new messages, rising, that were never used."""

    def add_payloads(self, connection: Connection, conversation: int, payloads: Sequence[tuple[bytes, bytes]]) -> None:
        """Keep long strings by their hashes, or count another use of those that are kept already."""

    def load_payloads(self, connection: Connection, wanted: Mapping[int, set[bytes]]) -> dict[bytes, bytes]:
        """Fetch payloads by the conversations that use them."""

    def drop_payloads(self, connection: Connection, conversation: int, keys: Iterable[bytes]) -> None:
        """Count a use less of each of these payloads, and remove those that nothing uses."""

    def payload_uses(self, connection: Connection) -> Iterable[tuple[int, bytes, int]]:
        """Return conversation (0 when it does not matter), hash and uses of every payload."""

    def close_known(self, connection: Connection, conversation: int, branch: int) -> None:
        """Note that something was said behind what a branch was recognised by until now."""

    def move_out(
        self, connection: Connection, found: ConversationRow, numbers: Sequence[int], now: float
    ) -> Hidden | None:
        """Take messages and their artifacts out of a conversation; return what is left to remove of them."""

    # copies

    def last_number(self, connection: Connection) -> int:
        """Return the last number that was given to a message."""

    def set_last_number(self, connection: Connection, number: int) -> None:
        """Give only higher numbers to new messages, and new numbers to whatever else has one."""

    def children(self, connection: Connection, conversation: int) -> Iterable[tuple[int, int, int]]:
        """Return parent, position and child of every edge between nodes of a conversation."""

    def add_children(self, connection: Connection, conversation: int, rows: Sequence[tuple[int, int, int]]) -> None:
        """Write edges between nodes."""

    def clear(self, connection: Connection, conversation: int, numbers: Sequence[int]) -> None:
        """Remove the messages, payloads, edges and index entries of a conversation."""

    # the index

    def index(self, connection: Connection, found: ConversationRow, rows: Sequence[tuple[int, str]]) -> None:
        """Index messages that were just stored, by number and prepared text."""

    def indexed(self, connection: Connection, hidden: Hidden, numbers: Sequence[int]) -> Mapping[int, str | None]:
        """Return the first of these messages, as many as are removed at once, with what the index holds of each."""

    def unindex(self, connection: Connection, hidden: Hidden, texts: Mapping[int, str | None]) -> None:
        """Take messages out of the index."""

    # nodes

    def insert_node(self, connection: Connection, conversation: int, node: Node) -> int:
        """Keep a node and return its number."""

    def load_edges(
        self, connection: Connection, numbers: Sequence[int], conversation: int
    ) -> tuple[Iterable[tuple[int, int]], Iterable[tuple[int, int, int, int | None, int | None]]]:
        """Return the children of nodes in order, and the ranges that nodes cover in order."""

    def reachable(self, connection: Connection, conversation: int, tops: Sequence[int]) -> list[int]:
        """Return the numbers of nodes and of everything under them."""

    def levels(
        self, connection: Connection, conversation: int, tops: Sequence[int], note: str
    ) -> list[tuple[int, int, int]]:
        """Count nodes and those under them by level, and those that carry a note."""

    def above(self, connection: Connection, conversation: int, node: int) -> Iterable[tuple[int]]:
        """Return the numbers of a node and of everything above it."""

    def covered(self, connection: Connection, number: int | None, owner: str) -> tuple[list[Any], int]:
        """Return the ranges under a node of an owner, in order, and how many messages are in them."""

    def remove_nodes(self, connection: Connection, conversation: int, numbers: Sequence[int]) -> None:
        """Remove nodes with their edges."""

    # maintenance

    def check(self, connection: Connection, place: str) -> list[Finding]:
        """Return what the database itself finds wrong."""
