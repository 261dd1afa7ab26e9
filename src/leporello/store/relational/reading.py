"""Stored rows as messages."""

# ruff: noqa: S608 - statements are put together from constants; values are always bound

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from leporello.errors import StoreError
from leporello.store.codec import UNREADABLE, decode, payload_keys
from leporello.store.records import Stored
from leporello.store.relational.branch_path import is_on, path_of
from leporello.store.relational.rows import chunks, placeholders, time_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leporello.messages import Message
    from leporello.store.relational.branch_path import BranchPath
    from leporello.store.relational.dialect import Connection

_COLUMNS = (
    "m.id, c.key, m.seq, m.place, m.role, m.name, m.tool, m.time, m.tokens, m.fingerprint, m.gone, m.kind,"
    " m.refs, m.body, m.branch, m.conversation, c.head"
)


def load(
    connection: Connection,
    ids: Sequence[int],
    *,
    owner: str | None = None,
    branch: int | None = None,
    conversation: int | None = None,
) -> dict[int, Stored]:
    """Fetch messages by their number, in the order asked for; None: of any owner, of any conversation.

    Those that are not on the path of the branch (None: of the head) are marked.
    """
    rows: dict[int, tuple[Any, ...]] = {}
    within = f"{connection.dialect.message_of} AND " if conversation is not None else ""
    known = () if conversation is None else (conversation,)
    for chunk in chunks(ids):
        found = connection.execute(
            f"SELECT {_COLUMNS}, c.owner FROM messages m JOIN conversations c ON c.id = m.conversation"
            f" WHERE {within}m.id IN ({placeholders(chunk)})",
            (*known, *chunk),
        )
        rows.update((row[0], row) for row in found)
    wanted = [rows[id_] for id_ in ids if id_ in rows and owner in {None, rows[id_][-1]}]
    needed: dict[int, set[bytes]] = {}
    for row in wanted:
        if row[12]:
            needed.setdefault(row[15], set()).update(payload_keys(row[12]))
    payloads = connection.dialect.load_payloads(connection, needed) if needed else {}
    paths: dict[int, BranchPath] = {}
    for row in wanted:
        conversation, head = row[15], row[16]
        if conversation not in paths:
            paths[conversation] = path_of(connection, conversation, branch or head)
    return {row[0]: _stored(row, payloads, paths[row[15]]) for row in wanted}


def load_readable(connection: Connection, ids: Sequence[int]) -> dict[int, Stored]:
    """Fetch messages by their number; those that are damaged are left out."""
    try:
        return load(connection, ids)
    except StoreError:
        found: dict[int, Stored] = {}
        for number in ids:
            with suppress(StoreError):
                found |= load(connection, [number])
        return found


def _decoded(number: int, body: bytes, refs: str | None, payloads: dict[bytes, bytes]) -> Message:
    try:
        return decode(body, refs, payloads)
    except UNREADABLE as error:
        raise StoreError(
            f"the message m{number} is damaged ({type(error).__name__}).",
            hint="leporello verify names everything that is; put back a backup.",
        ) from error


def _stored(row: tuple[Any, ...], payloads: dict[bytes, bytes], path: BranchPath) -> Stored:
    id_, key, seq, place, role, name, tool, time, tokens, fingerprint, gone, kind, refs, body, branch, *_ = row
    return Stored(
        id=f"m{id_}",
        conversation=key,
        seq=seq,
        place=place,
        message=_decoded(id_, body, refs, payloads),
        role=role,
        name=name,
        tool=tool,
        time=time_of(time),
        tokens=tokens,
        fingerprint=fingerprint.hex(),
        branch=branch,
        superseded=not (kind or is_on(path, branch, place, seq, gone)),
        replaced=gone is not None,
        system=bool(kind),
    )
