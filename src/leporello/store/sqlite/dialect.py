"""What SQLite does differently."""

# ruff: noqa: S608 - statements are put together from constants; values are always bound

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from leporello.store.codec import payload_keys
from leporello.store.records import Finding
from leporello.store.relational.nodes import INSERT_NODE, node_columns, range_columns
from leporello.store.relational.reading import load_readable
from leporello.store.relational.rows import Hidden, chunks, hidden_conversation, number_of, placeholders, to_json
from leporello.store.search.prepare import prepared_text
from leporello.store.sqlite.index import add_to_index, make_index, row_text, take_from_index

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from leporello.store.records import Node
    from leporello.store.relational.dialect import Connection
    from leporello.store.relational.rows import ConversationRow

SLICE_CHARACTERS: Final = 30_000  # a removal of this much text takes a few milliseconds

_UNDER = (
    "WITH RECURSIVE under (id) AS (SELECT n.id FROM nodes n JOIN conversations c ON c.id = n.conversation"
    " WHERE n.id = ? AND c.owner = ? UNION SELECT h.child FROM children h JOIN under u ON h.parent = u.id)"
)
_COUNT = f"""{_UNDER}, ranges AS (
    SELECT DISTINCT v.conversation AS conversation, v.first_seq AS first_seq, v.last_seq AS last_seq
    FROM under u JOIN covers v ON v.node = u.id
)
SELECT
    (SELECT count(*) FROM ranges r CROSS JOIN messages m INDEXED BY messages_seq
     ON m.conversation = r.conversation AND m.seq BETWEEN r.first_seq AND r.last_seq)
    - (SELECT count(*) FROM ranges r CROSS JOIN messages m INDEXED BY messages_system
       ON m.conversation = r.conversation AND m.seq BETWEEN r.first_seq AND r.last_seq AND m.kind = 1)"""
_REACHABLE = (
    "WITH RECURSIVE reached (id) AS (SELECT n.id FROM json_each(?) j JOIN nodes n ON n.id = j.value"
    " WHERE n.conversation = ? UNION SELECT h.child FROM children h JOIN reached r ON h.parent = r.id)"
)


class SQLiteDialect:
    """What SQLite does differently: numbers from its own sequence, full-text search in a contentless index."""

    hidden_owner = b""
    shown = "typeof(c.owner) = 'text'"
    most_segments = 16
    on_long_path = (
        "EXISTS (SELECT 1 FROM json_each(?) s WHERE branch = json_extract(s.value, '$[0]')"
        " AND place <= json_extract(s.value, '$[1]') AND seq <= json_extract(s.value, '$[2]')"
        " AND (gone IS NULL OR gone > json_extract(s.value, '$[2]')))"
    )
    conversation_of = "+conversation = ?"  # the ids alone are looked up
    message_of = "+m.conversation = ?"
    contains = "(value LIKE ? ESCAPE char(27) OR note LIKE ? ESCAPE char(27))"
    payloads_apart = False
    due_job = ""
    clock_slack: float = 0.0

    def check_name(self, name: str) -> None:
        """SQLite holds every text."""

    def next_numbers(self, connection: Connection, count: int) -> Sequence[int]:
        """Return numbers for new messages, rising, that were never used."""
        last = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'messages'").fetchone()
        start = (last[0] if last else 0) + 1
        return range(start, start + count)

    def add_payloads(self, connection: Connection, conversation: int, payloads: Sequence[tuple[bytes, bytes]]) -> None:
        """Keep long strings by their hashes, or count another use of those that are kept already."""
        connection.executemany(
            "INSERT INTO payloads (hash, uses, data) VALUES (?, 1, ?) ON CONFLICT (hash) DO UPDATE SET uses = uses + 1",
            payloads,
        )

    def load_payloads(self, connection: Connection, wanted: Mapping[int, set[bytes]]) -> dict[bytes, bytes]:
        """Fetch payloads."""
        found: dict[bytes, bytes] = {}
        for chunk in chunks(list(set[bytes]().union(*wanted.values()))):
            found.update(
                connection.execute(f"SELECT hash, data FROM payloads WHERE hash IN ({placeholders(chunk)})", chunk)
            )
        return found

    def drop_payloads(self, connection: Connection, conversation: int, keys: Iterable[bytes]) -> None:
        """Count a use less of each of these payloads, and remove those that nothing uses."""
        for key in keys:
            connection.execute("UPDATE payloads SET uses = uses - 1 WHERE hash = ?", (key,))
            connection.execute("DELETE FROM payloads WHERE hash = ? AND uses <= 0", (key,))

    def payload_uses(self, connection: Connection) -> Iterable[tuple[int, bytes, int]]:
        """Return hash and uses of every payload."""
        return connection.execute("SELECT 0, hash, uses FROM payloads")

    def close_known(self, connection: Connection, conversation: int, branch: int) -> None:
        """Note that something was said behind what a branch was recognised by until now."""
        connection.execute(
            "UPDATE OR REPLACE known SET open = 0 WHERE conversation = ? AND open = 1 AND branch = ?",
            (conversation, branch),
        )

    def move_out(
        self, connection: Connection, found: ConversationRow, numbers: Sequence[int], now: float
    ) -> Hidden | None:
        """Move messages and their artifacts to a hidden conversation, which is removed in short transactions."""
        hidden = Hidden(hidden_conversation(connection, found.id, found.owner, now), found.id, found.owner)
        for table, column in (("messages", "id"), ("artifacts", "message")):
            connection.execute(
                f"UPDATE {table} SET conversation = ? WHERE conversation = ? AND {column} IN ({placeholders(numbers)})",
                (hidden.id, found.id, *numbers),
            )
        return hidden

    def last_number(self, connection: Connection) -> int:
        """Return the last number that was given to a message."""
        return self.next_numbers(connection, 1)[0] - 1

    def set_last_number(self, connection: Connection, number: int) -> None:
        """Give only higher numbers to new messages; SQLite notes the others itself."""
        connection.execute(
            "INSERT INTO sqlite_sequence (name, seq) SELECT 'messages', 0 WHERE NOT EXISTS"
            " (SELECT 1 FROM sqlite_sequence WHERE name = 'messages')"
        )
        connection.execute("UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = 'messages'", (number,))

    def children(self, connection: Connection, conversation: int) -> Iterable[tuple[int, int, int]]:
        """Return parent, position and child of every edge between nodes of a conversation."""
        return connection.execute(
            "SELECT h.parent, h.position, h.child FROM children h JOIN nodes n ON n.id = h.parent"
            " WHERE n.conversation = ? ORDER BY h.parent, h.position",
            (conversation,),
        )

    def add_children(self, connection: Connection, conversation: int, rows: Sequence[tuple[int, int, int]]) -> None:
        """Write edges between nodes."""
        connection.executemany("INSERT INTO children (parent, position, child) VALUES (?, ?, ?)", rows)

    def clear(self, connection: Connection, conversation: int, numbers: Sequence[int]) -> None:
        """Remove the messages, payloads, edges and index entries of a conversation."""
        row = connection.execute(
            "SELECT coalesce(p.origin, c.id), coalesce(p.owner, c.owner) FROM conversations c"
            " LEFT JOIN purges p ON p.conversation = c.id WHERE c.id = ?",
            (conversation,),
        ).fetchone()
        hidden = Hidden(conversation, *row)
        for chunk in chunks(numbers):
            left = list(chunk)
            while left:
                texts = self.indexed(connection, hidden, left)
                self.unindex(connection, hidden, texts)
                left = left[len(texts) :]
            refs = connection.execute(f"SELECT refs FROM messages WHERE id IN ({placeholders(chunk)})", chunk)
            self.drop_payloads(connection, conversation, [key for (ref,) in refs for key in payload_keys(ref)])
            connection.execute(f"DELETE FROM messages WHERE id IN ({placeholders(chunk)})", chunk)
        connection.execute(
            "DELETE FROM children WHERE parent IN (SELECT id FROM nodes WHERE conversation = ?)", (conversation,)
        )

    def index(self, connection: Connection, found: ConversationRow, rows: Sequence[tuple[int, str]]) -> None:
        """Index messages that were just stored, and a few of those an outdated index still lacks."""
        add_to_index(connection, [(number, row_text(text, found.id, found.owner)) for number, text in rows])

    def indexed(self, connection: Connection, hidden: Hidden, numbers: Sequence[int]) -> Mapping[int, str | None]:
        """Return the index texts of the first messages, as many as one slice takes; None for a system message.

        A message that cannot be read has the text "": what the index holds of it is not known.
        """
        readable = load_readable(connection, numbers)
        texts: dict[int, str | None] = {}
        characters = 0
        for number in numbers:
            stored = readable.get(number)
            if stored is None:
                texts[number] = ""
            elif stored.system:
                texts[number] = None
            else:
                texts[number] = row_text(prepared_text(stored.message), hidden.origin, hidden.owner)
            characters += len(texts[number] or "")
            if characters > SLICE_CHARACTERS:
                break
        return texts

    def unindex(self, connection: Connection, hidden: Hidden, texts: Mapping[int, str | None]) -> None:
        """Take messages out of the index, each with the text that was indexed for it."""
        known = {number: text for number, text in texts.items() if text is not None}
        if all(known.values()):
            take_from_index(connection, list(known.items()))
        else:
            make_index(connection)

    def insert_node(self, connection: Connection, conversation: int, node: Node) -> int:
        """Keep a node and return its number."""
        number: int = connection.execute(INSERT_NODE, node_columns(conversation, node)).fetchone()[0]
        edges = [(number, position, number_of(child, "n") or 0) for position, child in enumerate(node.children)]
        self.add_children(connection, conversation, edges)
        connection.executemany(
            "INSERT INTO covers (node, position, conversation, first_seq, last_seq, start, stop)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(number, position, conversation, *range_columns(cover)) for position, cover in enumerate(node.covers)],
        )
        return number

    def load_edges(
        self, connection: Connection, numbers: Sequence[int], conversation: int
    ) -> tuple[Iterable[tuple[int, int]], Iterable[tuple[int, int, int, int | None, int | None]]]:
        """Return the children of nodes in order, and the ranges that nodes cover in order."""
        within = f"IN ({placeholders(numbers)})"
        children = connection.execute(
            f"SELECT parent, child FROM children WHERE parent {within} ORDER BY parent, position", numbers
        )
        ranges = connection.execute(
            f"SELECT node, first_seq, last_seq, start, stop FROM covers WHERE node {within} ORDER BY node, position",
            numbers,
        )
        return children, ranges

    def reachable(self, connection: Connection, conversation: int, tops: Sequence[int]) -> list[int]:
        """Return the numbers of nodes and of everything under them."""
        rows = connection.execute(f"{_REACHABLE} SELECT id FROM reached", (to_json(tops), conversation))
        return [id_ for (id_,) in rows]

    def levels(
        self, connection: Connection, conversation: int, tops: Sequence[int], note: str
    ) -> list[tuple[int, int, int]]:
        """Count nodes and those under them by level, and those that carry a note."""
        return connection.execute(
            f"{_REACHABLE} SELECT n.level, count(*), sum(coalesce(json_extract(n.meta, ?), 0) <> 0) FROM reached r"
            " JOIN nodes n ON n.id = r.id GROUP BY n.level ORDER BY n.level",
            (to_json(tops), conversation, f'$."{note}"'),
        ).fetchall()

    def above(self, connection: Connection, conversation: int, node: int) -> Iterable[tuple[int]]:
        """Return the numbers of a node and of everything above it."""
        return connection.execute(
            "WITH RECURSIVE above (id) AS (SELECT ? UNION SELECT h.parent FROM children h JOIN above a"
            " ON h.child = a.id) SELECT id FROM above",
            (node,),
        )

    def covered(self, connection: Connection, number: int | None, owner: str) -> tuple[list[Any], int]:
        """Return the ranges under a node of an owner, in order, and how many messages are in them."""
        rows = connection.execute(
            f"{_UNDER} SELECT v.first_seq, v.last_seq, v.start, v.stop FROM under u JOIN nodes n ON n.id = u.id"
            " JOIN covers v ON v.node = u.id"
            " ORDER BY n.first_seq, coalesce(v.start, 0), n.last_seq, n.id, v.position",
            (number, owner),
        ).fetchall()
        return rows, connection.execute(_COUNT, (number, owner)).fetchone()[0]

    def remove_nodes(self, connection: Connection, conversation: int, numbers: Sequence[int]) -> None:
        """Remove nodes with their edges."""
        within = f"IN ({placeholders(numbers)})"
        connection.execute(f"DELETE FROM children WHERE parent {within}", numbers)
        connection.execute(f"DELETE FROM children WHERE child {within}", numbers)
        connection.execute(f"DELETE FROM covers WHERE node {within}", numbers)
        connection.execute(f"DELETE FROM nodes WHERE id {within}", numbers)

    def check(self, connection: Connection, place: str) -> list[Finding]:
        """Return what SQLite's own checks find."""
        findings = [
            Finding(where=place, problem=str(text))
            for (text,) in connection.execute("PRAGMA quick_check")
            if text != "ok"
        ]
        return findings + [
            Finding(where=f"{table} row {row}", problem=f"refers to a row of {parent} that does not exist")
            for table, row, parent, _ in connection.execute("PRAGMA foreign_key_check")
        ]
