"""The summary DAG: leaves cover messages, condensed nodes cover nodes."""

# ruff: noqa: S608 - statements are put together from constants; values are always bound

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from leporello.errors import StoreError
from leporello.store.records import Cover, Covered, Level, Node
from leporello.store.sqlite.current_window import current_window, tops_of
from leporello.store.sqlite.rows import (
    Part,
    checked,
    chunks,
    find,
    from_blob,
    number_of,
    opened,
    placeholders,
    to_blob,
    to_json,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from leporello.store.sqlite.rows import Conversation

_COLUMNS = (
    "n.id, n.level, n.text, n.tokens, n.source_tokens, n.made_by, n.first_seq, n.last_seq, n.messages, n.time_from,"
    " n.time_to, n.state, n.meta"
)


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


class Nodes(Part):
    """The summaries."""

    def add_nodes(self, conversation: str, nodes: Sequence[Node], *, owner: str = "") -> list[Node]:
        """Keep prepared nodes; returns them with their ids."""
        with self._db.write() as connection:
            found = opened(connection, conversation, owner, self._clock())
            numbers = [_insert(connection, found.id, node) for node in nodes]
            return _load(connection, numbers)

    def nodes(self, conversation: str, *, owner: str = "", branch: int | None = None) -> list[Node]:
        """Return the nodes of a branch, those that stand in its window and those under them, oldest first."""
        with self._db.read() as connection:
            found = find(connection, conversation, owner)
            if found is None:
                return []
            numbers = reachable(connection, found.id, _tops(connection, found, branch))
            return sorted(_load(connection, numbers), key=lambda n: (n.first_seq, n.last_seq, n.level, int(n.id[1:])))

    def prepared_nodes(self, conversation: str, *, owner: str = "") -> list[Node]:
        """Return the nodes that no window has used yet, oldest first."""
        with self._db.read() as connection:
            found = find(connection, conversation, owner)
            rows = connection.execute(
                "SELECT id FROM nodes WHERE conversation = ? AND state = 'prepared'"
                " ORDER BY first_seq, last_seq, level, id",
                (found.id if found else 0,),
            )
            return _load(connection, [id_ for (id_,) in rows])

    def conversation_of_node(self, id: str, *, owner: str = "") -> str | None:  # noqa: A002 - its name
        """Return the conversation that a node belongs to, or None."""
        with self._db.read() as connection:
            row = connection.execute(
                "SELECT c.key FROM nodes n JOIN conversations c ON c.id = n.conversation"
                " WHERE n.id = ? AND c.owner = ?",
                (number_of(id, "n"), checked(owner)),
            ).fetchone()
            return row[0] if row else None

    def node(self, id: str, *, owner: str = "") -> Node | None:  # noqa: A002 - its name
        """Return one node."""
        with self._db.read() as connection:
            row = connection.execute(
                "SELECT n.id FROM nodes n JOIN conversations c ON c.id = n.conversation WHERE n.id = ? AND c.owner = ?",
                (number_of(id, "n"), checked(owner)),
            ).fetchone()
            return _load(connection, [row[0]])[0] if row else None

    def levels(self, conversation: str, note: str, *, owner: str = "", branch: int | None = None) -> list[Level]:
        """Count the nodes of a branch by level, and those that carry a note in `meta`; the lowest level first."""
        with self._db.read() as connection:
            found = find(connection, conversation, owner)
            tops = _tops(connection, found, branch) if found else []
            rows = connection.execute(
                f"{_REACHABLE} SELECT n.level, count(*), sum(coalesce(json_extract(n.meta, ?), 0) <> 0) FROM reached r"
                " JOIN nodes n ON n.id = r.id GROUP BY n.level ORDER BY n.level",
                (to_json(_numbers(tops)), found.id if found else 0, f'$."{note}"'),
            ).fetchall()
        return [Level(level=level, nodes=nodes, noted=noted) for level, nodes, noted in rows]

    def covered(self, id: str, *, owner: str = "") -> Covered:  # noqa: A002 - its name
        """Return what a node and those under it cover; nothing for one that there is not."""
        asked = (number_of(id, "n"), checked(owner))
        with self._db.read() as connection:
            rows = connection.execute(
                f"{_UNDER} SELECT v.first_seq, v.last_seq, v.start, v.stop FROM under u JOIN nodes n ON n.id = u.id"
                " JOIN covers v ON v.node = u.id"
                " ORDER BY n.first_seq, coalesce(v.start, 0), n.last_seq, n.id, v.position",
                asked,
            ).fetchall()
            messages = connection.execute(_COUNT, asked).fetchone()[0]
        covers = (Cover(first_seq=first, last_seq=last, start=start, stop=stop) for first, last, start, stop in rows)
        return Covered(covers=tuple(covers), messages=messages)

    def covering(self, ids: Sequence[str], *, owner: str = "", branch: int | None = None) -> dict[str, str]:
        """Map message ids to the id of the leaf that covers each on a branch; those in no leaf are left out.

        None: on the head of the conversation that a message belongs to.
        """
        with self._db.read() as connection:
            leaves: dict[str, str] = {}
            shown: dict[int, set[int]] = {}
            for id_ in ids:
                row = connection.execute(
                    "SELECT c.id, m.seq, c.head FROM messages m JOIN conversations c ON c.id = m.conversation"
                    " WHERE m.id = ? AND c.owner = ?",
                    (number_of(id_, "m"), checked(owner)),
                ).fetchone()
                if row is None:
                    continue
                conversation, seq, head = row
                if conversation not in shown:
                    window = current_window(connection, conversation, branch or head)
                    shown[conversation] = set(_numbers(tops_of(window.items)))
                leaf = _leaf_over(connection, conversation, seq, shown[conversation])
                if leaf is not None:
                    leaves[id_] = f"n{leaf}"
            return leaves


_NEAR = 512  # runs of messages before one that are looked at for a leaf that covers it
_REACHABLE = (
    "WITH RECURSIVE reached (id) AS (SELECT n.id FROM json_each(?) j JOIN nodes n ON n.id = j.value"
    " WHERE n.conversation = ? UNION SELECT h.child FROM children h JOIN reached r ON h.parent = r.id)"
)


def reachable(connection: sqlite3.Connection, conversation: int, tops: Sequence[str]) -> list[int]:
    """Return the numbers of nodes and of everything under them."""
    rows = connection.execute(f"{_REACHABLE} SELECT id FROM reached", (to_json(_numbers(tops)), conversation))
    return [id_ for (id_,) in rows]


def mark_used(connection: sqlite3.Connection, conversation: int, ids: Sequence[str], place: str) -> None:
    """Take nodes of a conversation out of the prepared ones."""
    for id_ in ids:
        changed = connection.execute(
            "UPDATE nodes SET state = 'kept' WHERE id = ? AND conversation = ?", (number_of(id_, "n"), conversation)
        ).rowcount
        if not changed:
            raise StoreError(f"there is no node {id_} in this conversation.", place=place)


def _tops(connection: sqlite3.Connection, found: Conversation, branch: int | None) -> list[str]:
    return tops_of(current_window(connection, found.id, branch or found.head).items)


def _numbers(ids: Sequence[str]) -> list[int]:
    return [number for id_ in ids if (number := number_of(id_, "n")) is not None]


def _leaf_over(connection: sqlite3.Connection, conversation: int, seq: int, tops: set[int]) -> int | None:
    """Return the first leaf over a message that stands in a window, or under what does."""
    if not tops:
        return None
    rows = connection.execute(
        "SELECT node, last_seq FROM covers WHERE conversation = ? AND first_seq <= ?"
        " ORDER BY first_seq DESC, start, node DESC LIMIT ?",
        (conversation, seq, _NEAR),
    )
    return next((node for node, last in rows if last >= seq and _stands_under(connection, node, tops)), None)


def _stands_under(connection: sqlite3.Connection, node: int, tops: set[int]) -> bool:
    """Tell whether a node is one of others, or under one of them."""
    rows = connection.execute(
        "WITH RECURSIVE above (id) AS (SELECT ? UNION SELECT h.parent FROM children h JOIN above a ON h.child = a.id)"
        " SELECT id FROM above",
        (node,),
    )
    return any(id_ in tops for (id_,) in rows)


def _insert(connection: sqlite3.Connection, conversation: int, node: Node) -> int:
    number = connection.execute(
        "INSERT INTO nodes (conversation, level, text, tokens, source_tokens, made_by, first_seq, last_seq, messages,"
        " time_from, time_to, state, meta) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            conversation,
            node.level,
            to_blob(node.text),
            node.tokens,
            node.source_tokens,
            node.made_by,
            node.first_seq,
            node.last_seq,
            node.messages,
            node.time_from,
            node.time_to,
            node.state,
            to_json(node.meta),
        ),
    ).lastrowid
    connection.executemany(
        "INSERT INTO children (parent, position, child) VALUES (?, ?, ?)",
        [(number, position, number_of(child, "n")) for position, child in enumerate(node.children)],
    )
    connection.executemany(
        "INSERT INTO covers (node, position, conversation, first_seq, last_seq, start, stop)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        [(number, position, conversation, *_range(cover)) for position, cover in enumerate(node.covers)],
    )
    return number or 0


def _range(cover: Cover) -> tuple[int, int, int | None, int | None]:
    return cover.first_seq, cover.last_seq, cover.start, cover.stop


def _load(connection: sqlite3.Connection, numbers: Sequence[int]) -> list[Node]:
    rows: dict[int, tuple[Any, ...]] = {}
    children: dict[int, list[str]] = {}
    covers: dict[int, list[Cover]] = {}
    for chunk in chunks(numbers):
        within = f"IN ({placeholders(chunk)})"
        rows.update((r[0], r) for r in connection.execute(f"SELECT {_COLUMNS} FROM nodes n WHERE n.id {within}", chunk))
        for parent, child in connection.execute(
            f"SELECT parent, child FROM children WHERE parent {within} ORDER BY parent, position",
            chunk,
        ):
            children.setdefault(parent, []).append(f"n{child}")
        for node, first, last, start, stop in connection.execute(
            f"SELECT node, first_seq, last_seq, start, stop FROM covers WHERE node {within} ORDER BY node, position",
            chunk,
        ):
            cover = Cover(first_seq=first, last_seq=last, start=start, stop=stop)
            covers.setdefault(node, []).append(cover)
    return [_node(rows[n], children.get(n, []), covers.get(n, [])) for n in numbers if n in rows]


def _node(row: tuple[Any, ...], children: list[str], covers: list[Cover]) -> Node:
    id_, level, text, tokens, source, made_by, first, last, messages, time_from, time_to, state, meta = row
    return Node(
        id=f"n{id_}",
        level=level,
        text=from_blob(text),
        tokens=tokens,
        source_tokens=source,
        made_by=made_by,
        covers=tuple(covers),
        children=tuple(children),
        first_seq=first,
        last_seq=last,
        messages=messages,
        time_from=time_from,
        time_to=time_to,
        state=state,
        meta=json.loads(meta),
    )
