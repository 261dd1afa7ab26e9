"""What PostgreSQL does differently: every table but `known` and `jobs` is led by the conversation."""

# ruff: noqa: S608 - statements are put together from constants; values are always bound

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from leporello.errors import StoreError
from leporello.store.codec import payload_keys
from leporello.store.postgres.index import add_to_index, take_from_index
from leporello.store.relational.nodes import INSERT_NODE, node_columns, range_columns
from leporello.store.relational.rows import number_of, placeholders

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from leporello.store.records import Finding, Node
    from leporello.store.relational.dialect import Connection
    from leporello.store.relational.rows import ConversationRow, Hidden

_LONGEST_NAME: Final = 1_024  # bytes; both names together fit an index entry

_UNDER = (
    "WITH RECURSIVE under (conversation, id) AS (SELECT n.conversation, n.id FROM nodes n"
    " JOIN conversations c ON c.id = n.conversation WHERE n.id = ? AND c.owner = ? UNION"
    " SELECT h.conversation, h.child FROM children h JOIN under u ON h.conversation = u.conversation"
    " AND h.parent = u.id)"
)
_COUNT = (
    f"{_UNDER}, ranges AS (SELECT DISTINCT v.conversation, v.first_seq, v.last_seq FROM under u"
    " JOIN covers v ON v.conversation = u.conversation AND v.node = u.id)"
    " SELECT count(*) FROM ranges r JOIN messages m ON m.conversation = r.conversation"
    " AND m.seq BETWEEN r.first_seq AND r.last_seq AND m.kind = 0"
)
_REACHABLE = (
    "WITH RECURSIVE reached (id) AS (SELECT n.id FROM nodes n WHERE n.conversation = ? AND n.id = ANY (?)"
    " UNION SELECT h.child FROM children h JOIN reached r ON h.conversation = ? AND h.parent = r.id)"
)


class PostgresDialect:
    """What PostgreSQL does differently."""

    hidden_owner = None
    shown = "c.owner IS NOT NULL"
    most_segments = 16
    on_long_path = (
        "EXISTS (SELECT 1 FROM json_array_elements(?::json) s WHERE branch = (s ->> 0)::integer"
        " AND place <= (s ->> 1)::double precision AND seq <= (s ->> 2)::bigint"
        " AND (gone IS NULL OR gone > (s ->> 2)::bigint))"
    )
    conversation_of = "conversation = ?"
    message_of = "m.conversation = ?"
    contains = "(value ILIKE ? ESCAPE chr(27) OR note ILIKE ? ESCAPE chr(27))"
    payloads_apart = True
    due_job = " FOR UPDATE OF j SKIP LOCKED"
    clock_slack: float = 5.0

    def check_name(self, name: str) -> None:
        """Raise for a name that holds NUL, or that is too long for an index."""
        if "\0" in name:
            raise StoreError(f"{name!r} cannot be the name of a conversation: it holds NUL.")
        if len(name.encode()) > _LONGEST_NAME:
            raise StoreError(f"a name of more than {_LONGEST_NAME} bytes is too long for PostgreSQL.")

    def next_numbers(self, connection: Connection, count: int) -> Sequence[int]:
        """Return numbers for new messages, rising, that were never used."""
        if not count:
            return ()
        rows = connection.execute("SELECT nextval('message_numbers') FROM generate_series(1, ?)", (count,))
        return [number for (number,) in rows]

    def add_payloads(self, connection: Connection, conversation: int, payloads: Sequence[tuple[bytes, bytes]]) -> None:
        """Keep long strings by their hashes, or count another use of those that are kept already."""
        connection.executemany(
            "INSERT INTO payloads (conversation, hash, uses, data) VALUES (?, ?, 1, ?)"
            " ON CONFLICT (conversation, hash) DO UPDATE SET uses = payloads.uses + 1",
            [(conversation, key, data) for key, data in payloads],
        )

    def load_payloads(self, connection: Connection, wanted: Mapping[int, set[bytes]]) -> dict[bytes, bytes]:
        """Fetch payloads by the conversations that use them."""
        found: dict[bytes, bytes] = {}
        for conversation, keys in wanted.items():
            if keys:
                found.update(
                    connection.execute(
                        "SELECT hash, data FROM payloads WHERE conversation = ? AND hash = ANY (?)",
                        (conversation, list(keys)),
                    )
                )
        return found

    def drop_payloads(self, connection: Connection, conversation: int, keys: Iterable[bytes]) -> None:
        """Count a use less of each of these payloads, and remove those that nothing uses."""
        for key in keys:
            connection.execute(
                "UPDATE payloads SET uses = uses - 1 WHERE conversation = ? AND hash = ?", (conversation, key)
            )
            connection.execute(
                "DELETE FROM payloads WHERE conversation = ? AND hash = ? AND uses <= 0", (conversation, key)
            )

    def payload_uses(self, connection: Connection) -> Iterable[tuple[int, bytes, int]]:
        """Return conversation, hash and uses of every payload."""
        return connection.execute("SELECT conversation, hash, uses FROM payloads")

    def close_known(self, connection: Connection, conversation: int, branch: int) -> None:
        """Note that something was said behind what a branch was recognised by until now."""
        connection.execute(
            "DELETE FROM known k USING known o WHERE o.conversation = ? AND o.open = 1 AND o.branch = ?"
            " AND k.hash = o.hash AND k.open = 0 AND k.conversation = o.conversation AND k.branch = o.branch",
            (conversation, branch),
        )
        connection.execute(
            "UPDATE known SET open = 0 WHERE conversation = ? AND open = 1 AND branch = ?", (conversation, branch)
        )

    def move_out(
        self, connection: Connection, found: ConversationRow, numbers: Sequence[int], now: float
    ) -> Hidden | None:
        """Remove messages with their artifacts, payloads and index entries: only this conversation is locked."""
        within = f"conversation = ? AND %s IN ({placeholders(numbers)})"
        values = (found.id, *numbers)
        rows = connection.execute(f"DELETE FROM messages WHERE {within % 'id'} RETURNING refs", values).fetchall()
        self.drop_payloads(connection, found.id, [key for (refs,) in rows for key in payload_keys(refs)])
        connection.execute(f"DELETE FROM artifacts WHERE {within % 'message'}", values)
        take_from_index(connection, found.id, numbers)
        return None

    def last_number(self, connection: Connection) -> int:
        """Return the last number that was given to a message."""
        last, called = connection.execute("SELECT last_value, is_called FROM message_numbers").fetchone()
        return int(last) if called else 0

    def set_last_number(self, connection: Connection, number: int) -> None:
        """Give only higher numbers to new messages, and new numbers to whatever else has one."""
        connection.execute(
            "SELECT setval('message_numbers', greatest(?::bigint, last_value, 1), ?::bigint > 0 OR is_called)"
            " FROM message_numbers",
            (number, number),
        )
        for table in ("conversations", "nodes", "artifacts", "jobs"):
            connection.execute(
                f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), max(id)) FROM {table}"
                " HAVING max(id) IS NOT NULL"
            )

    def children(self, connection: Connection, conversation: int) -> Iterable[tuple[int, int, int]]:
        """Return parent, position and child of every edge between nodes of a conversation."""
        return connection.execute(
            "SELECT parent, position, child FROM children WHERE conversation = ? ORDER BY parent, position",
            (conversation,),
        )

    def add_children(self, connection: Connection, conversation: int, rows: Sequence[tuple[int, int, int]]) -> None:
        """Write edges between nodes."""
        connection.executemany(
            "INSERT INTO children (conversation, parent, position, child) VALUES (?, ?, ?, ?)",
            [(conversation, *row) for row in rows],
        )

    def clear(self, connection: Connection, conversation: int, numbers: Sequence[int]) -> None:
        """Remove the messages, payloads, edges and index entries of a conversation."""
        for table in ("search", "payloads", "messages", "children"):
            connection.execute(f"DELETE FROM {table} WHERE conversation = ?", (conversation,))

    def index(self, connection: Connection, found: ConversationRow, rows: Sequence[tuple[int, str]]) -> None:
        """Index messages that were just stored, and a few of those an outdated index still lacks."""
        add_to_index(connection, found, rows)

    def indexed(self, connection: Connection, hidden: Hidden, numbers: Sequence[int]) -> Mapping[int, str | None]:
        """Return all of these messages: the index gives them up by their numbers."""
        return dict.fromkeys(numbers)

    def unindex(self, connection: Connection, hidden: Hidden, texts: Mapping[int, str | None]) -> None:
        """Take messages out of the index."""
        take_from_index(connection, hidden.id, list(texts))

    def insert_node(self, connection: Connection, conversation: int, node: Node) -> int:
        """Keep a node and return its number."""
        number: int = connection.execute(INSERT_NODE, node_columns(conversation, node)).fetchone()[0]
        edges = [(number, position, number_of(child, "n") or 0) for position, child in enumerate(node.children)]
        self.add_children(connection, conversation, edges)
        connection.executemany(
            "INSERT INTO covers (conversation, node, position, first_seq, last_seq, start, stop)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(conversation, number, position, *range_columns(cover)) for position, cover in enumerate(node.covers)],
        )
        return number

    def load_edges(
        self, connection: Connection, numbers: Sequence[int], conversation: int
    ) -> tuple[Iterable[tuple[int, int]], Iterable[tuple[int, int, int, int | None, int | None]]]:
        """Return the children of nodes in order, and the ranges that nodes cover in order."""
        values = (conversation, list(numbers))
        children = connection.execute(
            "SELECT parent, child FROM children WHERE conversation = ? AND parent = ANY (?) ORDER BY parent, position",
            values,
        )
        ranges = connection.execute(
            "SELECT node, first_seq, last_seq, start, stop FROM covers WHERE conversation = ? AND node = ANY (?)"
            " ORDER BY node, position",
            values,
        )
        return children, ranges

    def reachable(self, connection: Connection, conversation: int, tops: Sequence[int]) -> list[int]:
        """Return the numbers of nodes and of everything under them."""
        rows = connection.execute(f"{_REACHABLE} SELECT id FROM reached", (conversation, list(tops), conversation))
        return [id_ for (id_,) in rows]

    def levels(
        self, connection: Connection, conversation: int, tops: Sequence[int], note: str
    ) -> list[tuple[int, int, int]]:
        """Count nodes and those under them by level, and those that carry a note."""
        return connection.execute(
            f"{_REACHABLE} SELECT n.level, count(*),"
            " count(*) FILTER (WHERE (n.meta::json -> ?)::text NOT IN ('null', 'false', '0', '0.0'))"
            " FROM reached r JOIN nodes n ON n.conversation = ? AND n.id = r.id GROUP BY n.level ORDER BY n.level",
            (conversation, list(tops), conversation, note, conversation),
        ).fetchall()

    def above(self, connection: Connection, conversation: int, node: int) -> Iterable[tuple[int]]:
        """Return the numbers of a node and of everything above it."""
        return connection.execute(
            "WITH RECURSIVE above (id) AS (SELECT ?::bigint UNION SELECT h.parent FROM children h JOIN above a"
            " ON h.conversation = ? AND h.child = a.id) SELECT id FROM above",
            (node, conversation),
        )

    def covered(self, connection: Connection, number: int | None, owner: str) -> tuple[list[Any], int]:
        """Return the ranges under a node of an owner, in order, and how many messages are in them."""
        rows = connection.execute(
            f"{_UNDER} SELECT v.first_seq, v.last_seq, v.start, v.stop FROM under u"
            " JOIN nodes n ON n.conversation = u.conversation AND n.id = u.id"
            " JOIN covers v ON v.conversation = u.conversation AND v.node = u.id"
            " ORDER BY n.first_seq, coalesce(v.start, 0), n.last_seq, n.id, v.position",
            (number, owner),
        ).fetchall()
        return rows, connection.execute(_COUNT, (number, owner)).fetchone()[0]

    def remove_nodes(self, connection: Connection, conversation: int, numbers: Sequence[int]) -> None:
        """Remove nodes with their edges."""
        for table, column in (("children", "parent"), ("children", "child"), ("covers", "node"), ("nodes", "id")):
            connection.execute(
                f"DELETE FROM {table} WHERE conversation = ? AND {column} = ANY (?)", (conversation, list(numbers))
            )

    def check(self, connection: Connection, place: str) -> list[Finding]:
        """PostgreSQL keeps references between tables itself."""
        return []
