"""Conversations as JSON lines, out and in again.

The first line describes the conversation and its branches, then every message stands on a line of its own in order of
arrival, with tombstones between them; the last line holds the chain, by which a reader knows that nothing is missing.
Summaries are not part of it: they can be made again from the originals. Exports of format 1, which knew no branches,
are read too.
"""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any, Final, TypeVar

from leporello.errors import StoreError
from leporello.store.codec import next_chain
from leporello.store.records import ROOT
from leporello.store.relational.branch_path import Fork
from leporello.store.relational.counters import recount
from leporello.store.relational.deletion import Deletions, hide
from leporello.store.relational.export_lines import (
    LOST,
    MOST,
    checked_head,
    field,
    hash_field,
    is_count,
    number_field,
    parsed,
    time_field,
)
from leporello.store.relational.reading import load
from leporello.store.relational.rows import (
    ConversationRow,
    Hidden,
    add_branch,
    by_number,
    checked,
    chunks,
    column_text,
    find,
    hidden_conversation,
    meta_of,
    placeholders,
    time_of,
    to_json,
)
from leporello.store.relational.writing import NewRow, call_names, insert_rows, prepare

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from leporello.store.relational.dialect import Connection
    from leporello.store.relational.writing import Prepared

FORMAT: Final = 2
_BATCH = 256
_LONGEST_IMPORT: Final = 86_400.0
"""Seconds after which an import that was cut off is removed by a purge."""
_T = TypeVar("_T")


class ImportExport(Deletions):
    """Export and import."""

    def export(self, conversation: str, *, owner: str = "") -> Iterator[str]:
        """Write a conversation as JSON lines, without their line ends."""
        with self._db.read() as connection:
            found = find(connection, conversation, owner)
            if found is None:
                raise StoreError(f"there is no conversation {conversation!r}.", place=self._db.place)
            head = _head(connection, found, conversation)
            entries = _entries(connection, found.id)
        return self._exported(head, entries, found)

    def import_lines(self, lines: Iterable[str], *, conversation: str | None = None, owner: str | None = None) -> str:
        """Read an exported conversation into a new one, completely or not at all; returns its key.

        `conversation` and `owner` replace those of the export. A conversation that has messages is never written to;
        one that was deleted gives its name to the imported one, and its tombstone goes.
        """
        numbered = ((number, parsed(line, number)) for number, line in enumerate(lines, 1) if line.strip())
        number, first = next(numbered, (1, {}))
        head = checked_head(first, number)
        key = conversation if conversation is not None else head["conversation"]
        who = owner if owner is not None else head["owner"]
        self._refuse_existing(key, who)
        with self._db.write() as connection:
            hidden = hidden_conversation(connection, 0, who, self._clock(), wait=_LONGEST_IMPORT)
        try:
            with self._db.write() as connection:
                _import_branches(connection, hidden, head, self._clock())
            end = self._read_in(numbered, hidden, who)
            self._show(hidden, key, who, head, end)
        except BaseException:
            self._discard(hidden, who)
            raise
        return key

    def _exported(self, head: dict[str, Any], entries: list[tuple[str, Any]], found: ConversationRow) -> Iterator[str]:
        yield to_json(head)
        for batch in _batches(entries):
            with self._db.read() as connection:
                numbers = [entry for kind, entry in batch if kind == "message"]
                messages = load(connection, numbers)
                gone = _gone(connection, numbers)
            for kind, entry in batch:
                if kind == "tombstone":
                    yield to_json({"tombstone": entry})
                elif entry in messages:
                    stored = messages[entry]
                    yield to_json(
                        {
                            "seq": stored.seq,
                            "place": stored.place if isfinite(stored.place) else float(stored.seq),
                            "time": stored.time,
                            "branch": stored.branch,
                            "gone": gone.get(entry),
                            "superseded": stored.superseded,
                            "system": stored.system,
                            "message": stored.message,
                        }
                    )
        yield to_json({"end": {"next_seq": found.next_seq, "chain": found.chain.hex()}})

    def _refuse_existing(self, key: str, owner: str) -> None:
        with self._db.read() as connection:
            self._refuse_taken(connection, key, owner)

    def _refuse_taken(self, connection: Connection, key: str, owner: str) -> None:
        """Refuse the name of a conversation that has messages, or had some and was not deleted as a whole."""
        row = connection.execute(
            "SELECT 1 FROM conversations WHERE owner = ? AND key = ? AND next_seq > 1 AND deleted IS NULL",
            (checked(owner), checked(key)),
        ).fetchone()
        if row:
            raise StoreError(
                f"there is a conversation {key!r} already.",
                place=self._db.place,
                hint="Give the imported one another name.",
            )

    def _read_in(self, lines: Iterator[tuple[int, dict[str, Any]]], hidden: int, owner: str) -> dict[str, Any]:
        """Store the lines batch by batch in a hidden conversation; return the last line."""
        tools: dict[str, str] = {}
        end: dict[str, Any] = {}
        for batch in _batches(lines):
            rows: list[tuple[int, dict[str, Any], Prepared | None]] = []
            for number, line in batch:
                if "end" in line:
                    end = line["end"]
                elif "tombstone" in line:
                    rows.append((number, line, None))
                else:
                    message = field(line, "message", dict, number)
                    tools |= call_names([message])
                    rows.append((number, line, prepare(message, f"line {number}", tools)))
            with self._db.write() as connection:
                _import_batch(connection, by_number(connection, hidden)._replace(owner=owner), rows)
        return end

    def _show(self, hidden: int, key: str, owner: str, head: dict[str, Any], end: Any) -> None:
        """Give the imported conversation its name, when it is complete."""
        with self._db.write() as connection:
            found = by_number(connection, hidden)
            if end != {"next_seq": found.next_seq, "chain": found.chain.hex()}:
                raise StoreError(
                    "the export is incomplete or was changed: its messages do not lead to the hash in its last line.",
                    place="import",
                    hint="Nothing was imported; export the conversation again.",
                )
            self._refuse_taken(connection, key, owner)
            now = self._clock()
            taken = find(connection, key, owner)
            if taken:  # it was deleted, or never had a message
                hide(connection, taken, now)
            connection.execute(
                "UPDATE conversations SET owner = ?, key = ?, deleted = NULL, created = ?, updated = ?, ended = ?,"
                " meta = ?, title = ?, head = ? WHERE id = ?",
                (
                    checked(owner),
                    checked(key),
                    head.get("created", now),
                    head.get("updated", now),
                    head.get("ended"),
                    to_json(head.get("meta", {})),
                    column_text(head.get("title", "")),
                    head["head"],
                    hidden,
                ),
            )
            connection.executemany(
                "INSERT INTO pins (conversation, message, time) SELECT conversation, id, ? FROM messages"
                " WHERE conversation = ? AND seq = ?",
                [(now, hidden, seq) for seq in head["pins"]],
            )
            recount(connection, hidden)
            connection.execute("DELETE FROM purges WHERE conversation = ?", (hidden,))

    def _discard(self, hidden: int, owner: str) -> None:
        while not self.remove_slice(Hidden(hidden, hidden, owner)):
            pass


def _head(connection: Connection, found: ConversationRow, key: str) -> dict[str, Any]:
    created, updated, ended, meta, title = connection.execute(
        "SELECT created, updated, ended, meta, title FROM conversations WHERE id = ?", (found.id,)
    ).fetchone()
    branches = connection.execute(
        "SELECT id, parent, fork_place, fork_seq FROM branches WHERE conversation = ? ORDER BY id", (found.id,)
    )
    pins = connection.execute(
        "SELECT m.seq FROM pins p JOIN messages m ON m.id = p.message WHERE p.conversation = ? ORDER BY m.seq",
        (found.id,),
    )
    return {
        "leporello": FORMAT,
        "conversation": key,
        "owner": found.owner,
        "created": time_of(created),
        "updated": time_of(updated),
        "ended": None if ended is None else time_of(ended),
        "meta": meta_of(meta),
        "title": title,
        "head": found.head,
        "branches": [
            {"id": id_, "parent": parent, "place": place if place is not None and isfinite(place) else None, "seq": seq}
            for id_, parent, place, seq in branches
        ],
        "pins": [seq for (seq,) in pins],
    }


def _gone(connection: Connection, numbers: Sequence[int]) -> dict[int, int]:
    """Return by which seq messages were replaced."""
    return {
        number: seq
        for chunk in chunks(numbers)
        for number, seq in connection.execute(
            f"SELECT id, gone FROM messages WHERE gone IS NOT NULL AND id IN ({placeholders(chunk)})",  # noqa: S608
            chunk,
        )
    }


def _entries(connection: Connection, conversation: int) -> list[tuple[str, Any]]:
    """Return messages and tombstones in order of arrival."""
    rows: list[tuple[int, str, Any]] = [
        (seq, "message", number)
        for number, seq in connection.execute("SELECT id, seq FROM messages WHERE conversation = ?", (conversation,))
    ]
    for first, last, messages, before, after, reason, time in connection.execute(
        "SELECT first_seq, last_seq, messages, chain_before, chain_after, reason, time FROM tombstones"
        " WHERE conversation = ?",
        (conversation,),
    ):
        tombstone = {
            "first_seq": first,
            "last_seq": last,
            "messages": messages,
            "chain_before": before.hex(),
            "chain_after": after.hex(),
            "reason": str(reason),
            "time": time_of(time),
        }
        rows.append((first, "tombstone", tombstone))
    return [(kind, entry) for _, kind, entry in sorted(rows, key=lambda row: row[0])]


def _import_branches(connection: Connection, conversation: int, head: dict[str, Any], now: float) -> None:
    """Make the branches that the first line of an export names."""
    for branch in head["branches"]:
        fork = None
        if branch.get("parent") is not None:
            place = branch["place"]
            fork = Fork(branch["parent"], float("-inf") if place is None else float(place), branch["seq"], 0)
        add_branch(connection, conversation, branch["id"], now, fork)


def _import_batch(connection: Connection, found: ConversationRow, rows: list[Any]) -> None:
    seq, chain = found.next_seq, found.chain
    branches = {id_ for (id_,) in connection.execute("SELECT id FROM branches WHERE conversation = ?", (found.id,))}
    new: list[NewRow] = []
    for number, line, prepared in rows:
        if prepared is None:
            seq, chain = _import_tombstone(connection, found.id, line["tombstone"], seq, chain, number)
            continue
        if field(line, "seq", int, number) != seq:
            raise StoreError(f"seq {line['seq']} where {seq} was expected.", place=f"line {number}", hint=LOST)
        chain = next_chain(chain, prepared.encoded.verbatim)
        branch = line.get("branch", ROOT)
        gone = line.get("gone") if "gone" in line else seq if line.get("superseded") else None
        if branch not in branches or not (gone is None or is_count(gone)):
            raise StoreError("'branch' or 'gone' is wrong.", place=f"line {number}", hint=LOST)
        new.append(
            NewRow(
                prepared=prepared,
                seq=seq,
                chain=chain,
                place=None if line.get("system") else number_field(line, "place", number),
                time=time_field(line, "time", number),
                branch=branch,
                gone=gone,
            )
        )
        seq += 1
    insert_rows(connection, found, new)
    connection.execute(
        "UPDATE conversations SET next_seq = ?, chain = ?, revision = revision + 1 WHERE id = ?", (seq, chain, found.id)
    )


def _import_tombstone(
    connection: Connection, conversation: int, tombstone: Any, seq: int, chain: bytes, number: int
) -> tuple[int, bytes]:
    first, last = field(tombstone, "first_seq", int, number), field(tombstone, "last_seq", int, number)
    before, after = hash_field(tombstone, "chain_before", number), hash_field(tombstone, "chain_after", number)
    messages = field(tombstone, "messages", int, number)
    if first != seq or before != chain or not (first <= last < MOST and 0 <= messages <= last - first + 1):
        raise StoreError("this tombstone does not fit the messages before it.", place=f"line {number}", hint=LOST)
    connection.execute(
        "INSERT INTO tombstones (conversation, first_seq, last_seq, messages, chain_before, chain_after, reason, time)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            conversation,
            first,
            last,
            messages,
            before,
            after,
            column_text(field(tombstone, "reason", str, number)),
            time_field(tombstone, "time", number),
        ),
    )
    return last + 1, after


def _batches(items: Iterable[_T]) -> Iterator[list[_T]]:
    batch: list[_T] = []
    for item in items:
        batch.append(item)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
