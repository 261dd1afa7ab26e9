"""The summary DAG: leaves cover messages, condensed nodes cover nodes."""

# ruff: noqa: S608 - statements are put together from constants; values are always bound

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from leporello.errors import StoreError
from leporello.store.records import Cover, Covered, Level, Node
from leporello.store.relational.current_window import current_window, tops_of
from leporello.store.relational.leases import remove_job
from leporello.store.relational.rows import (
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
    from collections.abc import Sequence

    from leporello.store.records import Job
    from leporello.store.relational.dialect import Connection
    from leporello.store.relational.rows import ConversationRow

_COLUMNS = (
    "n.id, n.level, n.text, n.tokens, n.source_tokens, n.made_by, n.first_seq, n.last_seq, n.messages, n.time_from,"
    " n.time_to, n.state, n.meta"
)


class Nodes(Part):
    """The summaries."""

    def add_nodes(
        self, conversation: str, nodes: Sequence[Node], *, owner: str = "", job: Job | None = None
    ) -> list[Node]:
        """Keep prepared nodes; returns them with their ids. A job that asked for them is finished with it."""
        with self._db.write() as connection:
            if job is not None and not remove_job(connection, job):
                return []
            found = opened(connection, conversation, owner, self._clock())
            numbers = [connection.dialect.insert_node(connection, found.id, node) for node in nodes]
            return _load(connection, numbers, found.id)

    def nodes(self, conversation: str, *, owner: str = "", branch: int | None = None) -> list[Node]:
        """Return the nodes of a branch, those that stand in its window and those under them, oldest first."""
        with self._db.read() as connection:
            found = find(connection, conversation, owner)
            if found is None:
                return []
            numbers = reachable(connection, found.id, _tops(connection, found, branch))
            return sorted(
                _load(connection, numbers, found.id), key=lambda n: (n.first_seq, n.last_seq, n.level, int(n.id[1:]))
            )

    def prepared_nodes(self, conversation: str, *, owner: str = "") -> list[Node]:
        """Return the nodes that no window has used yet, oldest first."""
        with self._db.read() as connection:
            found = find(connection, conversation, owner)
            rows = connection.execute(
                "SELECT id FROM nodes WHERE conversation = ? AND state = 'prepared'"
                " ORDER BY first_seq, last_seq, level, id",
                (found.id if found else 0,),
            )
            return _load(connection, [id_ for (id_,) in rows], found.id if found else 0)

    def conversation_of_node(self, id: str, *, owner: str = "") -> str | None:  # noqa: A002 - its name
        """Return the conversation that a node belongs to, or None."""
        with self._db.read() as connection:
            row = connection.execute(
                "SELECT c.key FROM nodes n JOIN conversations c ON c.id = n.conversation"
                " WHERE n.id = ? AND c.owner = ?",
                (number_of(id, "n"), checked(owner)),
            ).fetchone()
            return row[0] if row else None

    def node(self, id: str, *, owner: str = "", conversation: str | None = None) -> Node | None:  # noqa: A002 - its name
        """Return one node, of one conversation or of any."""
        with self._db.read() as connection:
            if conversation is not None:
                found = find(connection, conversation, owner)
                number = number_of(id, "n")
                nodes = _load(connection, [number], found.id) if found and number is not None else []
                return nodes[0] if nodes else None
            row = connection.execute(
                "SELECT n.id, c.id FROM nodes n JOIN conversations c ON c.id = n.conversation"
                " WHERE n.id = ? AND c.owner = ?",
                (number_of(id, "n"), checked(owner)),
            ).fetchone()
            return _load(connection, [row[0]], row[1])[0] if row else None

    def levels(self, conversation: str, note: str, *, owner: str = "", branch: int | None = None) -> list[Level]:
        """Count the nodes of a branch by level, and those that carry a note in `meta`; the lowest level first."""
        with self._db.read() as connection:
            found = find(connection, conversation, owner)
            tops = _tops(connection, found, branch) if found else []
            rows = connection.dialect.levels(connection, found.id if found else 0, numbers_of(tops), note)
        return [Level(level=level, nodes=nodes, noted=noted) for level, nodes, noted in rows]

    def covered(self, id: str, *, owner: str = "") -> Covered:  # noqa: A002 - its name
        """Return what a node and those under it cover; nothing for one that there is not."""
        with self._db.read() as connection:
            rows, messages = connection.dialect.covered(connection, number_of(id, "n"), checked(owner))
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
                    shown[conversation] = set(numbers_of(tops_of(window.items)))
                leaf = _leaf_over(connection, conversation, seq, shown[conversation])
                if leaf is not None:
                    leaves[id_] = f"n{leaf}"
            return leaves


_NEAR = 512  # runs of messages before one that are looked at for a leaf that covers it


def reachable(connection: Connection, conversation: int, tops: Sequence[str]) -> list[int]:
    """Return the numbers of nodes and of everything under them."""
    return connection.dialect.reachable(connection, conversation, numbers_of(tops))


def mark_used(connection: Connection, conversation: int, ids: Sequence[str], place: str) -> None:
    """Take nodes of a conversation out of the prepared ones."""
    for id_ in ids:
        changed = connection.execute(
            "UPDATE nodes SET state = 'kept' WHERE id = ? AND conversation = ?", (number_of(id_, "n"), conversation)
        ).rowcount
        if not changed:
            raise StoreError(f"there is no node {id_} in this conversation.", place=place)


def _tops(connection: Connection, found: ConversationRow, branch: int | None) -> list[str]:
    return tops_of(current_window(connection, found.id, branch or found.head).items)


def numbers_of(ids: Sequence[str]) -> list[int]:
    """Return the numbers of nodes by their ids."""
    return [number for id_ in ids if (number := number_of(id_, "n")) is not None]


def _leaf_over(connection: Connection, conversation: int, seq: int, tops: set[int]) -> int | None:
    """Return the first leaf over a message that stands in a window, or under what does."""
    if not tops:
        return None
    rows = connection.execute(
        "SELECT node, last_seq FROM covers WHERE conversation = ? AND first_seq <= ?"
        " ORDER BY first_seq DESC, start NULLS FIRST, node DESC LIMIT ?",
        (conversation, seq, _NEAR),
    )
    return next(
        (node for node, last in rows if last >= seq and _stands_under(connection, conversation, node, tops)), None
    )


def _stands_under(connection: Connection, conversation: int, node: int, tops: set[int]) -> bool:
    """Tell whether a node is one of others, or under one of them."""
    return any(id_ in tops for (id_,) in connection.dialect.above(connection, conversation, node))


def node_columns(conversation: int, node: Node) -> tuple[Any, ...]:
    """Return what `INSERT_NODE` writes."""
    return (
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
    )


INSERT_NODE: Final = (
    "INSERT INTO nodes (conversation, level, text, tokens, source_tokens, made_by, first_seq, last_seq, messages,"
    " time_from, time_to, state, meta) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id"
)


def range_columns(cover: Cover) -> tuple[int, int, int | None, int | None]:
    """Return a range as it stands in columns."""
    return cover.first_seq, cover.last_seq, cover.start, cover.stop


def _load(connection: Connection, numbers: Sequence[int], conversation: int) -> list[Node]:
    rows: dict[int, tuple[Any, ...]] = {}
    children: dict[int, list[str]] = {}
    covers: dict[int, list[Cover]] = {}
    own = connection.dialect.conversation_of
    for chunk in chunks(numbers):
        found = connection.execute(
            f"SELECT {_COLUMNS} FROM nodes n WHERE {own} AND n.id IN ({placeholders(chunk)})", (conversation, *chunk)
        )
        rows.update((r[0], r) for r in found)
        edges, ranges = connection.dialect.load_edges(connection, chunk, conversation)
        for parent, child in edges:
            children.setdefault(parent, []).append(f"n{child}")
        for node, first, last, start, stop in ranges:
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
