"""Checks that find damage. They return what they find, and do not raise."""

# ruff: noqa: S608 - statements are put together from constants; values are always bound

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

from leporello.store.codec import UNREADABLE, content_hash, decode, is_canonical, next_chain, payload_keys, verbatim
from leporello.store.records import Finding
from leporello.store.relational.counters import counted
from leporello.store.relational.rows import ConversationRow, Part, find

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leporello.store.relational.dialect import Connection


class Maintenance(Part):
    """Checks."""

    def check_chain(self, conversation: str, *, owner: str = "") -> list[Finding]:
        """Prove that a conversation's messages are all there, unchanged and in order, across deletions."""
        with self._db.read() as connection:
            found = find(connection, conversation, owner)
            return list(_chain_findings(connection, found)) if found else []

    def check_file(self) -> list[Finding]:
        """Check the store itself: the database's own checks, references between tables, and the use of payloads."""
        with self._db.read() as connection:
            findings = connection.dialect.check(connection, self._db.place)
            findings += _branch_findings(connection)
            return [*findings, *_payload_findings(connection), *_counter_findings(connection)]


def _branch_findings(connection: Connection) -> Iterator[Finding]:
    """Return what stands on a branch that does not exist: messages and other branches."""
    rows = connection.execute(
        "SELECT c.key, m.branch, count(*) FROM messages m JOIN conversations c ON c.id = m.conversation"
        " LEFT JOIN branches b ON b.conversation = m.conversation AND b.id = m.branch"
        f" WHERE b.id IS NULL AND {connection.dialect.shown} GROUP BY c.key, m.conversation, m.branch"
    )
    for key, branch, count in rows:
        yield Finding(where=key, problem=f"{count} messages stand on branch {branch}, which does not exist")
    rows = connection.execute(
        "SELECT c.key, a.id, a.parent FROM branches a JOIN conversations c ON c.id = a.conversation"
        " LEFT JOIN branches b ON b.conversation = a.conversation AND b.id = a.parent"
        f" WHERE a.parent IS NOT NULL AND b.id IS NULL AND {connection.dialect.shown}"
    )
    for key, branch, parent in rows:
        yield Finding(where=key, problem=f"branch {branch} goes on from branch {parent}, which does not exist")


_COUNTED: Final = 100  # branches of a conversation whose messages are counted, the newest ones


def _counter_findings(connection: Connection) -> Iterator[Finding]:
    """Compare the counters of every conversation, and of its branches, with its messages."""
    rows = connection.execute(
        "SELECT c.key, c.messages, count(m.id) FROM conversations c LEFT JOIN messages m ON m.conversation = c.id"
        f" AND m.kind = 0 WHERE {connection.dialect.shown} GROUP BY c.id"
    )
    for key, noted, found in rows:
        if noted != found:
            yield Finding(where=key, problem=f"it counts {noted} messages and has {found}")
    for key, conversation in connection.execute(
        f"SELECT c.key, c.id FROM conversations c WHERE {connection.dialect.shown}"
    ).fetchall():
        branches = connection.execute(
            "SELECT id, messages, tokens FROM branches WHERE conversation = ? ORDER BY used DESC, id DESC LIMIT ?",
            (conversation, _COUNTED),
        ).fetchall()
        for branch, *noted in branches:
            count, tokens = counted(connection, conversation, branch)
            if noted != [count, tokens]:
                problem = f"branch {branch} counts {noted[0]} messages of {noted[1]} tokens and has {count} of {tokens}"
                yield Finding(where=key, problem=problem)


def _chain_findings(connection: Connection, found: ConversationRow) -> Iterator[Finding]:
    tombstones = {
        first: (last, before, after)
        for first, last, before, after in connection.execute(
            "SELECT first_seq, last_seq, chain_before, chain_after FROM tombstones WHERE conversation = ?", (found.id,)
        )
    }
    seq, chain = 1, b""
    rows = connection.walk(
        "SELECT id, seq, chain, refs, body FROM messages WHERE conversation = ? ORDER BY seq", (found.id,)
    )
    for number, at, stored, refs, body in rows:
        while seq < at:
            problem, seq, chain = _across(tombstones, seq, chain, at)
            if problem:
                yield Finding(where=f"before m{number}", problem=problem)
                chain = b""
        if chain == b"" and at > 1:
            chain = stored  # the break was reported; go on from here
        else:
            problem, chain = _link(connection, found.id, chain, stored, refs, body)
            if problem:
                yield Finding(where=f"m{number}", problem=problem)
        seq = at + 1
    while seq < found.next_seq:
        problem, seq, chain = _across(tombstones, seq, chain, found.next_seq)
        if problem:
            yield Finding(where="the end of the conversation", problem=problem)
            return
    if chain != found.chain:
        yield Finding(
            where="the end of the conversation", problem="the last message is not the one that was stored last"
        )


def _across(
    tombstones: dict[int, tuple[int, bytes, bytes]], seq: int, chain: bytes, upto: int
) -> tuple[str, int, bytes]:
    """Go over a gap in the sequence: what is wrong, and where it ends."""
    if seq not in tombstones:
        known = [first for first in tombstones if seq < first < upto]
        return f"{min(known, default=upto) - seq} messages from seq {seq} on are missing", min(known, default=upto), b""
    last, before, after = tombstones[seq]
    problem = "" if before in {chain, b""} or chain == b"" else f"the tombstone at seq {seq} does not fit"
    return problem, last + 1, after


def _link(
    connection: Connection, conversation: int, chain: bytes, stored: bytes, refs: str | None, body: bytes
) -> tuple[str, bytes]:
    """Check one row: what is wrong with it, and the chain after it."""
    try:
        payloads = connection.dialect.load_payloads(connection, {conversation: set(payload_keys(refs))})
        data = verbatim(decode(body, refs, payloads))
        intact = is_canonical(body) and all(content_hash(zlib.decompress(raw)) == key for key, raw in payloads.items())
    except UNREADABLE as error:
        return f"it cannot be read ({type(error).__name__}: {error})", stored
    if not intact or next_chain(chain, data) != stored:
        return "it is not what was stored, or the message before it is not", stored
    return "", stored


def _payload_findings(connection: Connection) -> Iterator[Finding]:
    kept = {(conversation, key): uses for conversation, key, uses in connection.dialect.payload_uses(connection)}
    apart = connection.dialect.payloads_apart
    uses: dict[tuple[int, bytes], int] = {}
    for conversation, refs in connection.walk("SELECT conversation, refs FROM messages WHERE refs IS NOT NULL"):
        for key in payload_keys(refs):
            used = (conversation if apart else 0, key)
            uses[used] = uses.get(used, 0) + 1
    for each in sorted(uses.keys() | kept.keys(), key=lambda pair: (pair[1], pair[0])):
        if uses.get(each) != kept.get(each):
            problem = f"used {uses.get(each, 0)} times, noted as {kept.get(each, 'missing')}"
            yield Finding(where=f"payload {each[1].hex()}", problem=problem)
