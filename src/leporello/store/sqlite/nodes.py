"""The summary DAG: leaves cover messages, condensed nodes cover nodes."""

# ruff: noqa: S608 - statements are put together from constants; values are always bound

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from leporello.errors import StoreError
from leporello.store.protocol import Cover, Covered, Level, Node
from leporello.store.sqlite.part import (
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

    def nodes(self, conversation: str, *, owner: str = "", states: Sequence[str] = ("published",)) -> list[Node]:
        """Return the nodes of a conversation, oldest first."""
        with self._db.read() as connection:
            found = find(connection, conversation, owner)
            if found is None:
                return []
            rows = connection.execute(
                f"SELECT id FROM nodes WHERE conversation = ? AND state IN ({placeholders(states)})"
                " ORDER BY first_seq, last_seq, level, id",
                (found.id, *states),
            )
            return _load(connection, [id_ for (id_,) in rows])

    def node(self, id: str, *, owner: str = "") -> Node | None:  # noqa: A002 - its name
        """Return one node."""
        with self._db.read() as connection:
            row = connection.execute(
                "SELECT n.id FROM nodes n JOIN conversations c ON c.id = n.conversation WHERE n.id = ? AND c.owner = ?",
                (number_of(id, "n"), checked(owner)),
            ).fetchone()
            return _load(connection, [row[0]])[0] if row else None

    def levels(self, conversation: str, note: str, *, owner: str = "") -> list[Level]:
        """Count the published nodes by level, and those that carry a note in `meta`; the lowest level first."""
        with self._db.read() as connection:
            found = find(connection, conversation, owner)
            rows = connection.execute(
                "SELECT level, count(*), sum(coalesce(json_extract(meta, ?), 0) <> 0) FROM nodes"
                " WHERE conversation = ? AND state = 'published' GROUP BY level ORDER BY level",
                (f'$."{note}"', found.id if found else 0),
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

    def covering(self, ids: Sequence[str], *, owner: str = "") -> dict[str, str]:
        """Map message ids to the id of the published leaf that covers each; those in no leaf are left out."""
        with self._db.read() as connection:
            found: dict[str, str] = {}
            for id_ in ids:
                row = connection.execute(
                    "SELECT v.node, v.last_seq, m.seq FROM messages m JOIN conversations c ON c.id = m.conversation"
                    " JOIN covers v ON v.conversation = m.conversation AND v.published = 1 AND v.first_seq <= m.seq"
                    " WHERE m.id = ? AND c.owner = ? ORDER BY v.first_seq DESC, v.start LIMIT 1",
                    (number_of(id_, "m"), checked(owner)),
                ).fetchone()
                if row and row[1] >= row[2]:
                    found[id_] = f"n{row[0]}"
            return found


def set_states(
    connection: sqlite3.Connection, conversation: int, place: str, *, publish: Sequence[str], retire: Sequence[str]
) -> None:
    """Publish and retire nodes of a conversation."""
    for ids, state in ((retire, "retired"), (publish, "published")):
        for id_ in ids:
            number = number_of(id_, "n")
            changed = connection.execute(
                "UPDATE nodes SET state = ? WHERE id = ? AND conversation = ?", (state, number, conversation)
            ).rowcount
            if not changed:
                raise StoreError(f"there is no node {id_} in this conversation.", place=place)
            connection.execute("UPDATE covers SET published = ? WHERE node = ?", (state == "published", number))


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
        "INSERT INTO covers (node, position, conversation, published, first_seq, last_seq, start, stop)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (number, position, conversation, node.state == "published", *_range(cover))
            for position, cover in enumerate(node.covers)
        ],
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
