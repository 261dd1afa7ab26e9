"""The search index: kept with every message, in the same transaction.

The index is contentless, so a row can only be taken out with exactly the text that was put in: the version of the text
preparation is kept, and an index of another version is emptied and filled again, newest messages first, a little with
every write or all at once by `rebuild_index`. Each row also holds two terms that no text contains, one for the
conversation and one for the owner, so that a search within either costs nothing for what lies outside.
"""

# ruff: noqa: S608 - statements are put together from constants; values are always bound

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from leporello.errors import StoreError
from leporello.store.protocol import Candidate, Finding
from leporello.store.search.prepare import FTS_DDL, PREPARE_VERSION, plain_text, prepared_text
from leporello.store.sqlite.part import Part, column_text, find
from leporello.store.sqlite.reading import load

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

    from leporello.store.protocol import SearchFilter, Stored
    from leporello.store.sqlite.part import Conversation

SCANNED: Final = 8_000  # hits that are looked at, newest first, for those that pass a filter
SCORED: Final = 12_000  # hits whose score is worked out, the newest ones
COUNTED: Final = 2_000  # hits of a term that are counted; beyond, their number is estimated
CATCH_UP: Final = 50  # messages of an outdated index that each write brings up to date
_BATCH: Final = 500

_CONVERSATION, _OWNER = "\ue000", "\ue001"  # private-use characters: no prepared text has them


def conversation_term(number: int) -> str:
    """Return the term that stands for a conversation in the index."""
    return f"{_CONVERSATION}{number}"


@lru_cache(maxsize=1024)
def owner_term(owner: str) -> str:
    """Return the term that stands for an owner in the index."""
    return f"{_OWNER}{blake2b(owner.encode(), digest_size=5).hexdigest()}"


def row_text(prepared: str, conversation: int, owner: str) -> str:
    """Return the whole text of a message's index row."""
    return column_text(f"{prepared} {conversation_term(conversation)} {owner_term(owner)}")


def make_index(connection: sqlite3.Connection) -> None:
    """Make an empty index, and note which messages it still lacks."""
    connection.execute("DROP TABLE IF EXISTS search")
    connection.execute(FTS_DDL)
    last = connection.execute("SELECT coalesce(max(id), 0) FROM messages").fetchone()[0]
    _set(connection, "prepare_version", PREPARE_VERSION)
    _set(connection, "index_todo", last)


def add_to_index(connection: sqlite3.Connection, rows: Iterable[tuple[int, str]]) -> None:
    """Index messages that were just stored, and a few of those an outdated index still lacks."""
    state = dict(connection.execute("SELECT key, value FROM settings"))
    if state.get("prepare_version") != str(PREPARE_VERSION):
        make_index(connection)
    else:
        connection.executemany("INSERT INTO search (rowid, text) VALUES (?, ?)", rows)
    if state.get("index_todo") != "0":
        catch_up(connection, CATCH_UP)


def take_from_index(connection: sqlite3.Connection, rows: Iterable[tuple[int, str]]) -> None:
    """Take messages out of the index, each with the text that was indexed for it."""
    if _get(connection, "prepare_version") != PREPARE_VERSION:
        make_index(connection)
    todo = _get(connection, "index_todo")
    connection.executemany(
        "INSERT INTO search (search, rowid, text) VALUES ('delete', ?, ?)", [row for row in rows if row[0] > todo]
    )


def catch_up(connection: sqlite3.Connection, count: int) -> int:
    """Index up to `count` messages that the index lacks, the newest first; return how many it may still lack."""
    todo = _get(connection, "index_todo")
    rows = connection.execute(
        "SELECT m.id, m.conversation, c.owner FROM messages m JOIN conversations c ON c.id = m.conversation"
        " WHERE m.kind = 0 AND m.id <= ? ORDER BY m.id DESC LIMIT ?",
        (todo, count),
    ).fetchall()
    messages = load(connection, [row[0] for row in rows])
    texts = [(id_, row_text(prepared_text(messages[id_].message), number, owner)) for id_, number, owner in rows]
    connection.executemany("INSERT INTO search (rowid, text) VALUES (?, ?)", texts)
    left = rows[-1][0] - 1 if len(rows) == count else 0
    _set(connection, "index_todo", left)
    return left


class Index(Part):
    """Searching, and keeping the index whole."""

    def candidates(
        self,
        match: str,
        *,
        filter: SearchFilter,  # noqa: A002 - its name
        limit: int,
        newest_first: bool,
    ) -> list[Candidate]:
        """Return at most `limit` messages that match a prepared query, by score or newest first.

        A filter on conversation or owner narrows the search itself. What a very common word finds is bounded: only the
        newest hits are looked at.
        """
        with self._db.read() as connection:
            hits = _hits(connection, match, filter, limit, newest_first=newest_first)
            stored = load(connection, [id_ for id_, _ in hits])
        return [_candidate(stored[id_], score) for id_, score in hits]

    def term_counts(self, terms: Sequence[str]) -> tuple[int, dict[str, int]]:
        """Return about how many messages the index has, and about in how many each term occurs."""
        with self._db.read() as connection:
            last = connection.execute("SELECT coalesce(max(id), 0) FROM search_docsize").fetchone()[0]
            return last, {term: _term_count(connection, term, last) for term in terms}

    def index_backlog(self) -> int:
        """Return how many messages the index still lacks, at most, because the text preparation has changed."""
        with self._db.read() as connection:
            if _get(connection, "prepare_version") != PREPARE_VERSION:
                return int(connection.execute("SELECT coalesce(max(id), 0) FROM messages").fetchone()[0])
            return _get(connection, "index_todo")

    def rebuild_index(self) -> None:
        """Make the index anew, in many short transactions; others may read and write meanwhile."""
        with self._db.write() as connection:
            make_index(connection)
        left = 1
        while left:
            with self._db.write() as connection:
                left = catch_up(connection, _BATCH)

    def check_index(self, conversation: str | None = None, *, owner: str = "") -> list[Finding]:
        """Return what the index lacks, and what it has too much; of a conversation also rows of another length.

        An index that is still being brought up to date is a finding too.
        """
        backlog = self.index_backlog()
        if backlog:
            problem = f"it is being brought up to date and may lack {backlog} messages; rebuild_index finishes it"
            return [Finding(where="search index", problem=problem)]
        with self._db.read() as connection:
            if conversation is None:
                return _stray(connection)
            found = find(connection, conversation, owner)
            return _differing(connection, found) if found else []


def _stray(connection: sqlite3.Connection) -> list[Finding]:
    """Return the messages that are not in the index, and the entries that belong to no message."""
    has = {row[0] for row in connection.execute("SELECT id FROM search_docsize")}
    wanted = {row[0] for row in connection.execute("SELECT id FROM messages WHERE kind = 0")}
    missing = [Finding(where=f"m{number}", problem="it is not in the search index") for number in sorted(wanted - has)]
    return missing + [
        Finding(where=f"m{number}", problem="the search index has it, but it is not stored")
        for number in sorted(has - wanted)
    ]


def _differing(connection: sqlite3.Connection, found: Conversation) -> list[Finding]:
    """Compare the number of terms that the index has for each message of a conversation with what it should have."""
    sizes = dict(
        connection.execute(
            "SELECT m.id, d.sz FROM messages m LEFT JOIN search_docsize d ON d.id = m.id"
            " WHERE m.conversation = ? AND m.kind = 0 ORDER BY m.id",
            (found.id,),
        )
    )
    problems = ((number, _difference(connection, found, number, size)) for number, size in sizes.items())
    return [Finding(where=f"m{number}", problem=problem) for number, problem in problems if problem]


def _difference(connection: sqlite3.Connection, found: Conversation, number: int, size: bytes | None) -> str:
    if size is None:
        return "it is not in the search index"
    try:
        stored = load(connection, [number])[number]
    except StoreError as error:
        return error.problem
    terms = row_text(prepared_text(stored.message), found.id, found.owner).split()
    return "" if _varint(size) == len(terms) else "the search index has another text for it"


def _varint(data: bytes) -> int:
    """Read SQLite's variable-length integer: seven bits per byte, the highest first."""
    value = 0
    for byte in data:
        value = value << 7 | byte & 0x7F
    return value


def _hits(
    connection: sqlite3.Connection,
    match: str,
    filter: SearchFilter,  # noqa: A002 - its name
    limit: int,
    *,
    newest_first: bool,
) -> list[tuple[int, float]]:
    scope = _scope(connection, filter)
    scoped = f'({match}) AND "{scope}"' if scope else match
    wheres, values = _conditions(filter)
    if newest_first:
        return _newest(connection, scoped, wheres, values, limit)
    return connection.execute(
        "SELECT h.id, h.score FROM (SELECT rowid AS id, -bm25(search) AS score FROM search WHERE search MATCH ?"
        " AND +rowid IN (SELECT rowid FROM search WHERE search MATCH ? ORDER BY rowid DESC LIMIT ?)) h"
        f" CROSS JOIN messages m ON m.id = h.id JOIN conversations c ON c.id = m.conversation WHERE {wheres}"
        " ORDER BY h.score DESC, h.id DESC LIMIT ?",
        (match, scoped, SCORED, *values, limit),
    ).fetchall()


def _newest(
    connection: sqlite3.Connection, match: str, wheres: str, values: list[Any], limit: int
) -> list[tuple[int, float]]:
    """Walk the hits, newest first, until enough of them pass the filters."""
    rows = connection.execute(
        f"SELECT m.id, {wheres} FROM search CROSS JOIN messages m ON m.id = search.rowid"
        " JOIN conversations c ON c.id = m.conversation WHERE search MATCH ? ORDER BY search.rowid DESC LIMIT ?",
        (*values, match, SCANNED),
    )
    return list(islice(((number, 0.0) for number, passes in rows if passes), limit))


def _scope(connection: sqlite3.Connection, filter: SearchFilter) -> str:  # noqa: A002 - its name
    """Return the term that narrows a search, or "" when all there is belongs to the one who asks."""
    if filter.conversation is not None:
        found = find(connection, filter.conversation, filter.owner)
        return conversation_term(found.id) if found else conversation_term(0)
    others = connection.execute("SELECT 1 FROM conversations WHERE owner <> ? LIMIT 1", (filter.owner,)).fetchone()
    return owner_term(filter.owner) if others else ""


def _conditions(filter: SearchFilter) -> tuple[str, list[Any]]:  # noqa: A002 - its name
    conditions: list[tuple[str, Any]] = [("c.owner = ?", filter.owner)]
    if filter.conversation is not None:
        conditions.append(("c.key = ?", filter.conversation))
    if not filter.superseded:
        conditions.append(("m.state = ?", 0))
    if filter.role is not None:
        conditions.append(("m.role = ?", filter.role))
    if filter.name is not None:
        conditions.append(("m.name = ? COLLATE NOCASE", filter.name))
    if filter.tool is not None:
        conditions.append(("instr(' ' || m.tool || ' ', ' ' || ? || ' ')", filter.tool))
    if filter.since is not None:
        conditions.append(("m.time >= ?", filter.since))
    if filter.until is not None:
        conditions.append(("m.time <= ?", filter.until))
    return " AND ".join(text for text, _ in conditions), [value for _, value in conditions]


def _candidate(stored: Stored, score: float) -> Candidate:
    return Candidate(
        id=stored.id,
        conversation=stored.conversation,
        seq=stored.seq,
        place=stored.place,
        role=stored.role,
        name=stored.name,
        tool=stored.tool,
        time=stored.time,
        score=score,
        text=plain_text(stored.message),
    )


def _term_count(connection: sqlite3.Connection, term: str, last: int) -> int:
    """Count the messages with a term; a number beyond `COUNTED` is estimated from the newest ones."""
    quoted = term.replace('"', '""')
    count, lowest = connection.execute(
        "SELECT count(*), min(id) FROM"
        " (SELECT rowid AS id FROM search WHERE search MATCH ? ORDER BY rowid DESC LIMIT ?)",
        (f'"{column_text(quoted)}"', COUNTED),
    ).fetchone()
    return int(count if count < COUNTED else count * last / (last - lowest + 1))


def _get(connection: sqlite3.Connection, key: str) -> int:
    row = connection.execute("SELECT value FROM settings WHERE key = ?", (key,)).fetchone()
    return int(row[0]) if row else 0


def _set(connection: sqlite3.Connection, key: str, value: int) -> None:
    connection.execute(
        "INSERT INTO settings (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        (key, str(value)),
    )
