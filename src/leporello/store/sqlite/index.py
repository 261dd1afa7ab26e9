"""The search index: kept with every message, in the same transaction.

The index is contentless, so a row can only be taken out with exactly the text that was put in: the version of the text
preparation is kept, and an index of another version is emptied and filled again, newest messages first, a little with
every write or all at once by `rebuild_index`. Each row also holds two terms that no text contains, one for the
conversation and one for the owner, so that a search within either costs nothing for what lies outside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from leporello.errors import StoreError
from leporello.store.records import Finding
from leporello.store.relational.matching import Match
from leporello.store.relational.reading import load, load_readable
from leporello.store.relational.rows import Part, column_text, conversation_term, find, owner_term, set_setting, setting
from leporello.store.search.prepare import FTS_DDL, PREPARE_VERSION, prepared_text
from leporello.store.sqlite.candidates import matching, term_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leporello.store.records import Candidates, SearchFilter
    from leporello.store.relational.dialect import Connection
    from leporello.store.relational.rows import ConversationRow

CATCH_UP: Final = 50  # messages of an outdated index that each write brings up to date
_BATCH: Final = 500


def row_text(prepared: str, conversation: int, owner: str) -> str:
    """Return the whole text of a message's index row."""
    return column_text(f"{prepared} {conversation_term(conversation)} {owner_term(owner)}")


def ensure_index(connection: Connection) -> None:
    """Make an index when there is none of this version yet."""
    if setting(connection, "prepare_version") != PREPARE_VERSION:
        make_index(connection)


def make_index(connection: Connection) -> None:
    """Make an empty index, and note which messages it still lacks."""
    connection.execute("DROP TABLE IF EXISTS search")
    connection.execute(FTS_DDL)
    last = connection.execute("SELECT coalesce(max(id), 0) FROM messages").fetchone()[0]
    set_setting(connection, "prepare_version", PREPARE_VERSION)
    set_setting(connection, "index_todo", last)


def add_to_index(connection: Connection, rows: Iterable[tuple[int, str]]) -> None:
    """Index messages that were just stored, and a few of those an outdated index still lacks."""
    state = dict(connection.execute("SELECT key, value FROM settings"))
    if state.get("prepare_version") != str(PREPARE_VERSION):
        make_index(connection)
    else:
        connection.executemany("INSERT INTO search (rowid, text) VALUES (?, ?)", rows)
    if state.get("index_todo") != "0":
        catch_up(connection, CATCH_UP)


def take_from_index(connection: Connection, rows: Iterable[tuple[int, str]]) -> None:
    """Take messages out of the index, each with the text that was indexed for it."""
    if setting(connection, "prepare_version") != PREPARE_VERSION:
        make_index(connection)
    todo = setting(connection, "index_todo")
    connection.executemany(
        "INSERT INTO search (search, rowid, text) VALUES ('delete', ?, ?)", [row for row in rows if row[0] > todo]
    )


def catch_up(connection: Connection, count: int) -> int:
    """Index up to `count` messages that the index lacks, the newest first; return how many it may still lack."""
    todo = setting(connection, "index_todo")
    rows = connection.execute(
        "SELECT m.id, coalesce(p.origin, c.id), coalesce(p.owner, c.owner) FROM messages m"
        " JOIN conversations c ON c.id = m.conversation LEFT JOIN purges p ON p.conversation = c.id"
        " WHERE m.kind = 0 AND m.id <= ? ORDER BY m.id DESC LIMIT ?",
        (todo, count),
    ).fetchall()
    messages = load_readable(connection, [row[0] for row in rows])
    texts = [
        (id_, row_text(prepared_text(messages[id_].message), number, owner))
        for id_, number, owner in rows
        if id_ in messages
    ]
    connection.executemany("INSERT INTO search (rowid, text) VALUES (?, ?)", texts)
    left = rows[-1][0] - 1 if len(rows) == count else 0
    set_setting(connection, "index_todo", left)
    return left


class Index(Part):
    """Searches the index and keeps it up to date."""

    finds_whole_phrases: ClassVar[bool] = False

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

        A filter on conversation or owner narrows the search itself. What a very common word finds is bounded: only the
        newest hits are looked at, and `cut` says so. `newest` is the number of the last message that counts.
        """
        with self._db.read() as connection:
            return matching(
                connection, Match(text=match, filter=filter, newest=newest), limit, newest_first=newest_first
            )

    def term_counts(self, terms: Sequence[str], *, newest: int = 0) -> tuple[int, dict[str, int]]:
        """Return the number of the last message in the index, and about in how many messages each term occurs."""
        with self._db.read() as connection:
            last = connection.execute("SELECT coalesce(max(id), 0) FROM search_docsize").fetchone()[0]
            last = min(last, newest) if newest else last
            return last, {term: term_count(connection, term, last) for term in terms}

    def index_backlog(self) -> int:
        """Return how many messages the index still lacks, at most, because the text preparation has changed."""
        with self._db.read() as connection:
            if setting(connection, "prepare_version") != PREPARE_VERSION:
                return int(connection.execute("SELECT coalesce(max(id), 0) FROM messages").fetchone()[0])
            return setting(connection, "index_todo")

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


def _stray(connection: Connection) -> list[Finding]:
    """Return the messages that are not in the index, and the entries that belong to no message."""
    has = {row[0] for row in connection.execute("SELECT id FROM search_docsize")}
    wanted = {row[0] for row in connection.execute("SELECT id FROM messages WHERE kind = 0")}
    missing = [Finding(where=f"m{number}", problem="it is not in the search index") for number in sorted(wanted - has)]
    return missing + [
        Finding(where=f"m{number}", problem="the search index has it, but it is not stored")
        for number in sorted(has - wanted)
    ]


def _differing(connection: Connection, found: ConversationRow) -> list[Finding]:
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


def _difference(connection: Connection, found: ConversationRow, number: int, size: bytes | None) -> str:
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
