"""Copying a store to another database, conversation by conversation, with every id as it was.

A conversation is copied without its name, in transactions of some messages each, and gets the name when it is
complete: a copy that was cut off goes on behind the last of them when it is started again. One that has grown since it
was copied is copied anew. Leases and unfinished deletions are not copied, and the index is made again.
"""

# ruff: noqa: S608, SLF001 - statements are put together from constants; this is a part of the store

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import uuid4

from leporello.errors import StoreError
from leporello.store.codec import UNREADABLE, decode, payload_keys
from leporello.store.relational.rows import ConversationRow, placeholders
from leporello.store.search.prepare import prepared_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from leporello.store.relational.dialect import Connection
    from leporello.store.relational.store import RelationalStore

_BATCH: Final = 500
_LONGEST_COPY: Final = 7 * 86_400.0
"""Seconds after which a conversation whose copy was cut off is removed by a purge."""
_CONVERSATION: Final = (
    "id, owner, key, title, head, next_seq, chain, revision, messages, created, updated, ended, deleted, meta"
)
_MESSAGE: Final = (
    "id, branch, seq, place, kind, gone, time, tokens, size, role, name, tool, fingerprint, call_key, chain, refs, body"
)
_TABLES: Final = {
    "branches": "id, parent, fork_place, fork_seq, fork_request, messages, tokens, created, used",
    "pins": "message, time",
    "emitted": "fingerprint, origins",
    "handed_out": "branch, newest, marks, origins",
    "forgotten": "mark",
    "nodes": (
        "id, level, state, made_by, tokens, source_tokens, first_seq, last_seq, messages, time_from, time_to, meta,"
        " text"
    ),
    "covers": "node, position, first_seq, last_seq, start, stop",
    "windows": "branch, version, number, folded_to, nodes, items",
    "requests": "number, branch, time, reason, keep, added, usage, cost_usd, prefix, report",
    "artifacts": "id, message, digest, kind, value, note, time, count",
    "jobs": ("id, kind, key, payload, delay, not_before, attempts, claimed_by, claim_seconds, claimed_until"),
    "known": "hash, open, branch, seq",
    "tombstones": "first_seq, last_seq, messages, chain_before, chain_after, reason, time",
}
"""What is copied beside conversations and messages, and its columns but for the conversation."""


class Copied(NamedTuple):
    """A conversation that was copied, or was there already."""

    conversation: str
    owner: str
    messages: int
    new: bool


def copy_store(source: RelationalStore, target: RelationalStore) -> Iterator[Copied]:
    """Copy every conversation of a store, in the order of their numbers, and prove each copy.

    A store that holds other conversations is refused: numbers are those of one store.
    """
    with source._db.read() as connection:
        rows = connection.execute(
            f"SELECT c.id, c.owner, c.key FROM conversations c WHERE {connection.dialect.shown} ORDER BY c.id"
        ).fetchall()
        last = connection.dialect.last_number(connection)
    _refuse_others(target, {tuple(row) for row in rows})
    _reserve(target, last)
    for number, owner, key in rows:
        new = _copy(source, target, number)
        if new:
            _prove(source, target, number, key, owner)
        info = target.info(key, owner=owner)
        yield Copied(key, owner, info.messages if info else 0, new)
    _reserve(target, last)
    target._db.settle(("conversations", "messages", "search", *_TABLES))


def count_conversations(store: RelationalStore) -> int:
    """Return how many conversations a copy would look at."""
    with store._db.read() as connection:
        shown = connection.dialect.shown
        return int(connection.execute(f"SELECT count(*) FROM conversations c WHERE {shown}").fetchone()[0])


def _reserve(target: RelationalStore, last: int) -> None:
    """Let the store give no number again that the copied one has given."""
    with target._db.write() as connection:
        connection.dialect.set_last_number(connection, last)


def _refuse_others(target: RelationalStore, known: set[tuple[Any, ...]]) -> None:
    with target._db.read() as connection:
        rows = connection.execute(
            f"SELECT c.id, c.owner, c.key FROM conversations c WHERE {connection.dialect.shown}"
        ).fetchall()
    other = next((row for row in rows if tuple(row) not in known), None)
    if other is not None:
        raise StoreError(
            f"it holds a conversation {other[2]!r} that is not from the store to copy.",
            place=target._db.place,
            hint="Name an empty one; `leporello sessions export` and `leporello import` add single conversations.",
        )


def _copy(source: RelationalStore, target: RelationalStore, number: int) -> bool:
    """Copy a conversation, unless it is there as it is here; it is shown when it is complete."""
    with source._db.read() as here:
        row = _row(here, number)
        with target._db.read() as there:
            if _is_copied(here, there, row):
                return False
            last = _last_copied(here, there, row)
        found = ConversationRow(row[0], row[1], row[5], row[6], row[7], ended=row[11] is not None, head=row[4])
        batches = _batches(
            here.walk(f"SELECT {_MESSAGE} FROM messages WHERE conversation = ? AND id > ? ORDER BY id", (number, last))
        )
        begun = last > 0
        while True:
            batch = next(batches, None)
            with target._db.write() as there:
                if not begun:
                    _begin(here, there, row, target)
                    begun = True
                if batch is None:
                    _finish(here, there, row)
                    return True
                _copy_messages(here, there, found, batch)


def _row(connection: Connection, number: int) -> Any:
    return connection.execute(f"SELECT {_CONVERSATION} FROM conversations WHERE id = ?", (number,)).fetchone()


def _is_copied(here: Connection, there: Connection, row: tuple[Any, ...]) -> bool:
    old = _row(there, row[0])
    return old is not None and tuple(old) == tuple(row) and _counts(here, row[0]) == _counts(there, row[0])


def _last_copied(here: Connection, there: Connection, row: tuple[Any, ...]) -> int:
    """Return the last message of an unfinished copy of what is here; 0 when there is none."""
    old = there.execute(
        f"SELECT {_CONVERSATION} FROM conversations c WHERE id = ? AND NOT ({there.dialect.shown})", (row[0],)
    ).fetchone()
    if old is None or tuple(old[3:]) != tuple(row[3:]):
        return 0
    last, count = there.execute(
        "SELECT coalesce(max(id), 0), count(*) FROM messages WHERE conversation = ?", (row[0],)
    ).fetchone()
    (wanted,) = here.execute(
        "SELECT count(*) FROM messages WHERE conversation = ? AND id <= ?", (row[0], last)
    ).fetchone()
    return int(last) if count == wanted else 0  # a purge removes what nobody went on with


def _begin(here: Connection, there: Connection, row: tuple[Any, ...], target: RelationalStore) -> None:
    """Make a conversation without a name in the place of an earlier copy; a purge removes one that stays unfinished."""
    number, old = row[0], _row(there, row[0])
    if old is not None:
        if isinstance(old[1], str):
            _refuse_newer(here, number, old, target._db.place)
        _remove(there, number)
    hidden = (number, there.dialect.hidden_owner, str(uuid4()), *row[3:])
    there.execute(f"INSERT INTO conversations ({_CONVERSATION}) VALUES ({placeholders(row)})", hidden)
    there.execute(
        "INSERT INTO purges (conversation, origin, owner, not_before) VALUES (?, ?, ?, ?)",
        (number, number, row[1], target._clock() + _LONGEST_COPY),
    )


def _finish(here: Connection, there: Connection, row: tuple[Any, ...]) -> None:
    """Copy what is kept beside the messages, and show the conversation."""
    number, owner, key = row[:3]
    for table, columns in _TABLES.items():
        rows = here.walk(f"SELECT conversation, {columns} FROM {table} WHERE conversation = ?", (number,))
        for batch in _batches(rows):
            there.insert(table, f"conversation, {columns}", batch)
    there.dialect.add_children(there, number, list(here.dialect.children(here, number)))
    there.execute("UPDATE conversations SET owner = ?, key = ? WHERE id = ?", (owner, key, number))
    there.execute("DELETE FROM purges WHERE conversation = ?", (number,))


def _copy_messages(
    here: Connection, there: Connection, found: ConversationRow, rows: Sequence[tuple[Any, ...]]
) -> None:
    there.insert("messages", f"conversation, {_MESSAGE}", [(found.id, *row) for row in rows])
    used = [key for row in rows for key in payload_keys(row[15])]
    data = here.dialect.load_payloads(here, {found.id: set(used)}) if used else {}
    if used:
        there.dialect.add_payloads(there, found.id, [(key, data[key]) for key in used if key in data])
    texts = []
    for row in rows:
        if row[4] == 0:
            with suppress(*UNREADABLE):  # a damaged row is copied as it is, and found by the proof
                texts.append((row[0], prepared_text(decode(row[16], row[15], data))))
    there.dialect.index(there, found, texts)


def _refuse_newer(here: Connection, number: int, old: tuple[Any, ...], place: str) -> None:
    """Refuse to replace a conversation that is not an earlier state of the one to copy."""
    seq, chain = old[5], old[6]
    row = here.execute(
        "SELECT chain FROM messages WHERE conversation = ? AND seq = ? UNION ALL SELECT chain_after FROM tombstones"
        " WHERE conversation = ? AND last_seq = ?",
        (number, seq - 1, number, seq - 1),
    ).fetchone()
    if seq > 1 and (row is None or row[0] != chain):
        raise StoreError(
            f"the conversation {old[2]!r} was continued there.",
            place=place,
            hint="Nothing was changed; copy into an empty store.",
        )


def _remove(there: Connection, number: int) -> None:
    numbers = [row[0] for row in there.execute("SELECT id FROM messages WHERE conversation = ?", (number,))]
    there.dialect.clear(there, number, numbers)
    for table in ("purges", "leases", *reversed(_TABLES)):
        there.execute(f"DELETE FROM {table} WHERE conversation = ?", (number,))
    there.execute("DELETE FROM conversations WHERE id = ?", (number,))


def _counts(connection: Connection, number: int) -> list[int]:
    return [
        connection.execute(f"SELECT count(*) FROM {table} WHERE conversation = ?", (number,)).fetchone()[0]
        for table in ("messages", *_TABLES)
    ]


def _prove(source: RelationalStore, target: RelationalStore, number: int, key: str, owner: str) -> None:
    """Prove a copy: the chain over every message, and the number of rows of every kind."""
    before = {finding.where for finding in source.check_chain(key, owner=owner)}
    wrong = [finding for finding in target.check_chain(key, owner=owner) if finding.where not in before]
    with source._db.read() as here, target._db.read() as there:
        grown = _version(here, number) != _version(there, number)
        differ = not grown and _counts(here, number) != _counts(there, number)
    if wrong or differ:
        what = f"{wrong[0].where}: {wrong[0].problem}" if wrong else "rows are missing"
        raise StoreError(f"the copy of {key!r} is not what was copied ({what}).", place=target._db.place)


def _version(connection: Connection, number: int) -> Any:
    return connection.execute("SELECT revision, next_seq FROM conversations WHERE id = ?", (number,)).fetchone()


def _batches(rows: Iterable[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    batch: list[tuple[Any, ...]] = []
    for row in rows:
        batch.append(row)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
