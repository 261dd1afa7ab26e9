"""Conversations: opened, listed, ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leporello.store.records import ConversationInfo
from leporello.store.relational.rows import Part, checked, column_text, find, meta_of, opened, time_of, to_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leporello.store.relational.dialect import Connection

_INFO = """SELECT c.key, c.owner, c.created, c.updated, c.ended, c.meta, c.title, c.head, b.messages, b.tokens,
    c.messages, coalesce(
        (SELECT nodes FROM windows WHERE conversation = c.id AND branch = c.head ORDER BY number DESC LIMIT 1),
        (SELECT nodes FROM windows WHERE conversation = c.id ORDER BY number DESC LIMIT 1), 0),
    (SELECT count(*) FROM branches o WHERE o.conversation = c.id)
    FROM conversations c JOIN branches b ON b.conversation = c.id AND b.id = c.head"""


class Conversations(Part):
    """Which conversations there are."""

    def ensure(
        self, conversation: str, *, owner: str = "", meta: dict[str, Any] | None = None, title: str | None = None
    ) -> ConversationInfo:
        """Open a conversation, creating it when it is new; `meta` is added to what is noted about it."""
        with self._db.write() as connection:
            found = opened(connection, conversation, owner, self._clock())
            if meta:
                noted = connection.execute("SELECT meta FROM conversations WHERE id = ?", (found.id,)).fetchone()[0]
                merged = to_json(meta_of(noted) | meta)
                connection.execute("UPDATE conversations SET meta = ? WHERE id = ?", (merged, found.id))
            connection.execute(
                "UPDATE conversations SET deleted = NULL, title = coalesce(?, title) WHERE id = ?",
                (None if title is None else column_text(title), found.id),
            )
            info = _info(connection, conversation, owner)
        assert info is not None  # noqa: S101 - it was opened in this transaction
        return info

    def info(self, conversation: str, *, owner: str = "") -> ConversationInfo | None:
        """Describe a conversation, or return None."""
        with self._db.read() as connection:
            return _info(connection, conversation, owner)

    def conversations(self, *, owner: str | None = None) -> Iterator[ConversationInfo]:
        """List conversations, the newest first; None: of every owner."""
        where = "c.deleted IS NULL" + ("" if owner is None else " AND c.owner = ?")
        values = () if owner is None else (checked(owner),)
        with self._db.read() as connection:
            rows = connection.execute(f"{_INFO} WHERE {where} ORDER BY c.updated DESC, c.id DESC", values).fetchall()
        return (_described(row) for row in rows)

    def end(self, conversation: str, *, owner: str = "") -> None:
        """Mark a conversation as ended; storing to it again resumes it."""
        with self._db.write() as connection:
            found = find(connection, conversation, owner)
            if found:
                connection.execute("UPDATE conversations SET ended = ? WHERE id = ?", (self._clock(), found.id))


def _info(connection: Connection, conversation: str, owner: str) -> ConversationInfo | None:
    row = connection.execute(
        f"{_INFO} WHERE c.owner = ? AND c.key = ? AND c.deleted IS NULL", (checked(owner), checked(conversation))
    ).fetchone()
    return _described(row) if row else None


def _described(row: tuple[Any, ...]) -> ConversationInfo:
    key, owner, created, updated, ended, meta, title, head, messages, tokens, stored, nodes, branches = row
    return ConversationInfo(
        key=key,
        owner=owner,
        messages=messages,
        tokens=tokens,
        superseded=stored - messages,
        nodes=nodes,
        branches=branches,
        head=head,
        title=title,
        created=time_of(created),
        updated=time_of(updated),
        ended=None if ended is None else time_of(ended),
        meta=meta_of(meta),
    )
