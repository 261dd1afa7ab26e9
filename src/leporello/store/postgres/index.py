"""The search index: kept with every message, in the same transaction.

A row holds the prepared text, its number of terms, and its terms as the lexemes of a `tsvector`, which a GIN index
finds. As in SQLite, two terms that no text contains stand for conversation and owner, and another one for the part of
the index that a message is in, by its number. The lexemes carry no positions, of which PostgreSQL keeps few; instead
there is one for every two terms that stand next to each other, so that a phrase of words which are everywhere is found
as quickly as any other.

Another version of the text preparation indexes everything again, newest messages first, a little with every write or
all at once by `rebuild_index`; until then a message is found by what it was indexed with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from leporello.errors import StoreError
from leporello.store.postgres.candidates import matching, term_count
from leporello.store.postgres.expression import Lexemes, pairs, part_term, stored_text
from leporello.store.records import Finding
from leporello.store.relational.matching import Match
from leporello.store.relational.reading import load, load_readable
from leporello.store.relational.rows import (
    Part,
    column_text,
    conversation_term,
    find,
    owner_term,
    set_setting,
    setting,
)
from leporello.store.search.prepare import PREPARE_VERSION, prepared_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leporello.store.records import Candidates, SearchFilter
    from leporello.store.relational.dialect import Connection
    from leporello.store.relational.rows import ConversationRow

INDEX_VERSION: Final = 2_000 + PREPARE_VERSION
"""Of what a row of the index is made from, and of how its lexemes are."""
CATCH_UP: Final = 50  # messages of an outdated index that each write brings up to date
_BATCH: Final = 500
_MOST_BYTES: Final = 900_000
"""Of the lexemes of one message: PostgreSQL checks no limit here, and damages a `tsvector` of more than a megabyte."""
_ADDED: Final = 2  # terms beside those of the text


def add_to_index(connection: Connection, found: ConversationRow, rows: Sequence[tuple[int, str]]) -> None:
    """Index messages that were just stored, and a few of those an outdated index still lacks."""
    _insert(connection, [(found.id, number, text, owner_term(found.owner)) for number, text in rows])
    state = dict(connection.execute("SELECT key, value FROM settings"))
    if int(state.get("prepare_version", 0)) < INDEX_VERSION:
        _begin_unless_others_do(connection)
    elif state.get("index_todo") != "0":
        catch_up(connection, CATCH_UP, wait=False)


def take_from_index(connection: Connection, conversation: int, numbers: Sequence[int]) -> None:
    """Take messages of a conversation out of the index."""
    _lock(connection, conversation)
    connection.execute(
        "WITH gone AS (DELETE FROM search WHERE conversation = ? AND id = ANY (?) RETURNING length)"
        " UPDATE conversations SET indexed = indexed - (SELECT count(*) FROM gone),"
        " terms = terms - (SELECT coalesce(sum(length), 0) FROM gone) WHERE id = ?",
        (conversation, list(numbers), conversation),
    )


def _lock(connection: Connection, conversation: int) -> None:
    """Wait for others who index messages of a conversation: the next statement sees what they have written."""
    connection.execute("SELECT 1 FROM conversations WHERE id = ? FOR UPDATE", (conversation,))


def _insert(connection: Connection, rows: Sequence[tuple[int, int, str, str]]) -> None:
    """Write index rows, each from conversation, number, prepared text and the term of the owner."""
    counts: dict[int, list[int]] = {}
    new = []
    for conversation, number, text, owner in rows:
        terms = column_text(text).split()
        length = len(terms) + _ADDED
        lexemes = _bounded(dict.fromkeys(terms))
        lexemes += [*pairs(terms), conversation_term(conversation), owner, part_term(number)]
        new.append((conversation, number, length, stored_text(terms), Lexemes.of(lexemes)))
        counted = counts.setdefault(conversation, [0, 0])
        counted[0] += 1
        counted[1] += length
    connection.insert("search", "conversation, id, length, text, terms", new)
    connection.executemany(
        "UPDATE conversations SET indexed = indexed + ?, terms = terms + ? WHERE id = ?",
        [(count, length, conversation) for conversation, (count, length) in counts.items()],
    )


def _bounded(terms: dict[str, None]) -> list[str]:
    """Return terms up to the size that a `tsvector` can hold."""
    left = _MOST_BYTES
    kept = []
    for term in terms:
        left -= len(term.encode())
        if left < 0:
            break
        kept.append(term)
    return kept


def begin_rebuild(connection: Connection) -> None:
    """Note that every message is to be indexed again."""
    last = connection.execute("SELECT coalesce(max(id), 0) FROM messages").fetchone()[0]
    set_setting(connection, "prepare_version", INDEX_VERSION)
    set_setting(connection, "index_todo", last)


def _begin_unless_others_do(connection: Connection) -> None:
    """Begin to index everything again: who has locked a conversation waits for nobody here, who may wait for it."""
    query = "SELECT key, value FROM settings WHERE key IN ('prepare_version', 'index_todo') FOR UPDATE SKIP LOCKED"
    state = dict(connection.execute(query))
    if "index_todo" in state and int(state.get("prepare_version", INDEX_VERSION)) < INDEX_VERSION:
        begin_rebuild(connection)


def catch_up(connection: Connection, count: int, *, wait: bool) -> int:
    """Index up to `count` messages again, the newest first; return how many are left at most.

    Others may do the same: one of them has the row that says how far it came. The others wait for it, or do nothing.
    """
    todo = "SELECT value FROM settings WHERE key = 'index_todo' FOR UPDATE"
    row = connection.execute(todo if wait else f"{todo} SKIP LOCKED").fetchone()
    if row is None:
        return 0
    rows = connection.execute(
        "SELECT m.id, m.conversation, coalesce(p.origin, c.id), coalesce(p.owner, c.owner) FROM messages m"
        " JOIN conversations c ON c.id = m.conversation LEFT JOIN purges p ON p.conversation = c.id"
        " WHERE m.kind = 0 AND m.id <= ? ORDER BY m.id DESC LIMIT ?",
        (int(row[0]), count),
    ).fetchall()
    by_conversation: dict[int, list[int]] = {}
    for number, conversation, _, _ in rows:
        by_conversation.setdefault(conversation, []).append(number)
    for conversation in sorted(by_conversation):
        take_from_index(connection, conversation, by_conversation[conversation])
    # now that the conversations are locked: what others deleted meanwhile is not indexed again
    messages = load_readable(connection, [row[0] for row in rows])
    _insert(
        connection,
        [
            (conversation, number, prepared_text(messages[number].message), owner_term(owner))
            for number, conversation, _, owner in sorted(rows, key=lambda row: row[1])
            if number in messages
        ],
    )
    left = rows[-1][0] - 1 if len(rows) == count else 0
    set_setting(connection, "index_todo", left)
    return left


def is_parted(connection: Connection) -> bool:
    """Tell whether the index can be asked part by part.

    It cannot while messages are indexed as another version did it, nor beneath a policy for rows: there PostgreSQL
    looks for words in one row after the other.
    """
    query = "SELECT key, value FROM settings UNION ALL SELECT 'policies', row_security_active('search')::text"
    state = dict(connection.execute(query))
    is_whole = int(state.get("prepare_version", 0)) >= INDEX_VERSION and state.get("index_todo") == "0"
    return is_whole and state["policies"] == "false"


class PostgresIndex(Part):
    """Searches the index and keeps it up to date."""

    finds_whole_phrases: ClassVar[bool] = True

    _parted = False

    def candidates(
        self,
        match: str,
        *,
        filter: SearchFilter,  # noqa: A002 - its name
        limit: int,
        newest_first: bool,
        newest: int = 0,
    ) -> Candidates:
        """Return at most `limit` messages that match a prepared query, by score or newest first.

        What a very common word finds is bounded: only the newest hits are looked at, and `cut` says so. `newest` is
        the number of the last message that counts.
        """
        with self._db.read() as connection:
            return matching(
                connection,
                Match(text=match, filter=filter, newest=newest),
                limit,
                newest_first=newest_first,
                parted=self._is_parted(connection),
            )

    def term_counts(self, terms: Sequence[str], *, newest: int = 0) -> tuple[int, dict[str, int]]:
        """Return the number of the last message in the index, and about in how many messages each term occurs."""
        with self._db.read() as connection:
            last = connection.execute("SELECT coalesce(max(id), 0) FROM search").fetchone()[0]
            last = min(last, newest) if newest else last
            parted = self._is_parted(connection)
            return last, {term: term_count(connection, term, last, parted=parted) for term in terms}

    def _is_parted(self, connection: Connection) -> bool:
        """Tell whether the index can be asked part by part; once it can, that stays so."""
        self._parted = self._parted or is_parted(connection)
        return self._parted

    def index_backlog(self) -> int:
        """Return how many messages the index still lacks, at most, because the text preparation has changed."""
        with self._db.read() as connection:
            if setting(connection, "prepare_version") < INDEX_VERSION:
                return int(connection.execute("SELECT coalesce(max(id), 0) FROM messages").fetchone()[0])
            return setting(connection, "index_todo")

    def rebuild_index(self) -> None:
        """Make the index anew, in many short transactions; others may read and write meanwhile."""
        with self._db.write() as connection:
            begin_rebuild(connection)
        left = 1
        while left:
            with self._db.write() as connection:
                left = catch_up(connection, _BATCH, wait=True)
        with self._db.write() as connection:
            strays = connection.execute(_STRAYS).fetchall()
            for conversation, number in strays:
                take_from_index(connection, conversation, [number])

    def check_index(self, conversation: str | None = None, *, owner: str = "") -> list[Finding]:
        """Return what the index lacks, and what it has too much; of a conversation also rows with another text.

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


_STRAYS: Final = (
    "SELECT s.conversation, s.id FROM search s WHERE NOT EXISTS"
    " (SELECT 1 FROM messages m WHERE m.conversation = s.conversation AND m.id = s.id AND m.kind = 0)"
)
_MISSING: Final = (
    "SELECT m.id FROM messages m WHERE m.kind = 0 AND NOT EXISTS"
    " (SELECT 1 FROM search s WHERE s.conversation = m.conversation AND s.id = m.id) ORDER BY m.id"
)


def _stray(connection: Connection) -> list[Finding]:
    """Return the messages that are not in the index, and the entries that belong to no message."""
    missing = [
        Finding(where=f"m{number}", problem="it is not in the search index")
        for (number,) in connection.execute(_MISSING)
    ]
    return missing + [
        Finding(where=f"m{number}", problem="the search index has it, but it is not stored")
        for _, number in connection.execute(f"{_STRAYS} ORDER BY s.id")
    ]


def _differing(connection: Connection, found: ConversationRow) -> list[Finding]:
    """Compare what the index has for each message of a conversation with what it should have."""
    rows = connection.walk(
        "SELECT m.id, s.text FROM messages m LEFT JOIN search s ON s.conversation = m.conversation AND s.id = m.id"
        " WHERE m.conversation = ? AND m.kind = 0 ORDER BY m.id",
        (found.id,),
    )
    problems = ((number, _difference(connection, number, text)) for number, text in rows)
    return [Finding(where=f"m{number}", problem=problem) for number, problem in problems if problem]


def _difference(connection: Connection, number: int, text: str | None) -> str:
    if text is None:
        return "it is not in the search index"
    try:
        stored: Any = load(connection, [number])[number]
    except StoreError as error:
        return error.problem
    wanted = stored_text(column_text(prepared_text(stored.message)).split())
    return "" if text == wanted else "the search index has another text for it"
