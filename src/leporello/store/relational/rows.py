"""What the parts of the store share: the database, the clock, and how values stand in columns."""

from __future__ import annotations

import json
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import uuid4

from leporello.errors import StoreError
from leporello.store.records import ROOT
from leporello.store.relational.branch_path import path_of, rows_on

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from leporello.store.relational.branch_path import Fork
    from leporello.store.relational.dialect import Connection, TransactionSource

CHUNK: Final = 400  # values in one IN (...)
LATEST: Final = 1e11  # seconds since the epoch: the year 5138


class Hidden(NamedTuple):
    """A hidden conversation: its number, and the number and the owner that its rows have in the index."""

    id: int
    origin: int
    owner: str


class Part:
    """A part of the store."""

    _db: TransactionSource
    _clock: Callable[[], float]


class ConversationRow(NamedTuple):
    """A row of `conversations`, as far as writing to it goes."""

    id: int
    owner: str
    next_seq: int
    chain: bytes
    revision: int
    ended: bool
    head: int = ROOT

    @property
    def version(self) -> tuple[int, int]:
        """Its number and how often it was changed: the same as before when nothing was."""
        return self.id, self.revision


NEW: Final = ConversationRow(id=0, owner="", next_seq=1, chain=b"", revision=0, ended=False)
"""A conversation of which nothing is stored yet."""
_SELECT: Final = "SELECT id, owner, next_seq, chain, revision, ended IS NOT NULL, head FROM conversations WHERE "


def find(connection: Connection, key: str, owner: str) -> ConversationRow | None:
    """Return a conversation, or None."""
    try:
        row = connection.execute(f"{_SELECT}owner = ? AND key = ?{connection.locking}", (owner, key)).fetchone()
    except UnicodeEncodeError:
        for name in (owner, key):
            checked(name)
        raise
    return ConversationRow._make(row) if row else None


def by_number(connection: Connection, number: int) -> ConversationRow:
    """Return a conversation that is there, by its number."""
    return ConversationRow._make(connection.execute(f"{_SELECT}id = ?{connection.locking}", (number,)).fetchone())


def opened(connection: Connection, key: str, owner: str, now: float) -> ConversationRow:
    """Return a conversation, creating it when it is new."""
    found = find(connection, key, owner)
    if found:
        return found
    connection.dialect.check_name(owner)
    connection.dialect.check_name(key)
    made = connection.execute(
        "INSERT INTO conversations (owner, key, created, updated) VALUES (?, ?, ?, ?) ON CONFLICT (owner, key)"
        " DO NOTHING",
        (owner, key, now, now),
    )
    found = find(connection, key, owner)
    assert found is not None  # noqa: S101 - inserted by this transaction, or by one that was faster
    if made.rowcount:
        add_branch(connection, found.id, ROOT, now)
    return found


def add_branch(connection: Connection, conversation: int, branch: int, now: float, fork: Fork | None = None) -> None:
    """Write down a branch that has no messages of its own yet."""
    connection.execute(
        "INSERT INTO branches (conversation, id, parent, fork_place, fork_seq, fork_request, created, used)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (conversation, branch, *(fork or (None, None, None, None)), now, now),
    )


def known_branch(connection: Connection, found: ConversationRow, branch: int | None, place: str) -> int:
    """Return a branch that there is; None: the head."""
    if branch is None or branch == found.head:
        return found.head
    row = connection.execute("SELECT 1 FROM branches WHERE conversation = ? AND id = ?", (found.id, branch)).fetchone()
    if row is None:
        raise StoreError(f"there is no branch {branch} in this conversation.", place=place)
    return branch


def tip_of(connection: Connection, conversation: int, branch: int) -> tuple[int, float] | None:
    """Return number and place of the newest message of a branch: its own, else the newest one that it shares."""
    own: tuple[int, float] | None = connection.execute(
        "SELECT id, place FROM messages WHERE conversation = ? AND kind = 0 AND branch = ? AND gone IS NULL"
        " ORDER BY place DESC, id DESC LIMIT 1",
        (conversation, branch),
    ).fetchone()
    if own is not None or branch == ROOT:
        return own
    shared = path_of(connection, conversation, branch)[:-1]
    return next(rows_on(connection, conversation, shared, "id, place", newest_first=True, limit=1), None)


def last_request(connection: Connection, conversation: int) -> int:
    """Return the number of the newest row of the journal."""
    row = connection.execute("SELECT max(number) FROM requests WHERE conversation = ?", (conversation,)).fetchone()
    return row[0] or 0


def conversation_term(number: int) -> str:
    """Return the term that stands for a conversation in the index; no text has its first character."""
    return f"\ue000{number}"


@lru_cache(maxsize=1024)
def owner_term(owner: str) -> str:
    """Return the term that stands for an owner in the index; no text has its first character."""
    return f"\ue001{blake2b(checked(owner).encode(), digest_size=5).hexdigest()}"


def checked(key: str) -> str:
    """Return a key as it is, or refuse one that no database can hold."""
    try:
        key.encode()
    except UnicodeEncodeError as error:
        raise StoreError(f"{key!r} cannot be the name of a conversation: it holds half of a character.") from error
    return key


def column_text(value: Any) -> str:
    """Return a value for a text column that is only searched or shown; what is no text is empty."""
    if not isinstance(value, str):
        return ""
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def is_time(value: Any) -> bool:
    """Tell whether a value is a time that can be compared and shown."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -LATEST < value < LATEST


def time_of(value: Any) -> float:
    """Return the time in a column; what is none, as an earlier version may have imported it, is the epoch."""
    return float(value) if is_time(value) else 0.0


def meta_of(text: Any) -> dict[str, Any]:
    """Return what is noted in a column about a conversation; what is no JSON object is nothing."""
    try:
        noted = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return {}
    return noted if isinstance(noted, dict) else {}


def setting(connection: Connection, key: str) -> int:
    """Return a number that the store keeps about itself; 0 when it was never set."""
    row = connection.execute("SELECT value FROM settings WHERE key = ?", (key,)).fetchone()
    return int(row[0]) if row else 0


def set_setting(connection: Connection, key: str, value: int) -> None:
    """Note a number about the store itself."""
    connection.execute(
        "INSERT INTO settings (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        (key, str(value)),
    )


def to_json(value: Any) -> str:
    """Return a value as JSON text for a column."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def to_blob(text: str) -> bytes:
    """Return text as bytes for a column, whatever it holds."""
    return text.encode("utf-8", "surrogatepass")


def from_blob(data: bytes) -> str:
    """Return the text of such bytes."""
    return data.decode("utf-8", "surrogatepass")


def number_of(id_: str, letter: str) -> int | None:
    """Return the number in an id such as "m12", or None."""
    digits = id_[1:]
    return int(digits) if id_[:1] == letter and digits.isascii() and digits.isdigit() and len(digits) < 19 else None  # noqa: PLR2004 - the largest that fits a column


def hidden_conversation(connection: Connection, origin: int, owner: str, now: float, *, wait: float = 0) -> int:
    """Make a conversation without a name; after `wait` seconds a purge removes it."""
    number: int = connection.execute(
        "INSERT INTO conversations (owner, key, created, updated, deleted) VALUES (?, ?, ?, ?, ?) RETURNING id",
        (connection.dialect.hidden_owner, str(uuid4()), now, now, now),
    ).fetchone()[0]
    connection.execute(
        "INSERT INTO purges (conversation, origin, owner, not_before) VALUES (?, ?, ?, ?)",
        (number, origin or number, owner, now + wait),
    )
    return number


def chunks(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Cut values into pieces that fit one statement."""
    return (values[start : start + CHUNK] for start in range(0, len(values), CHUNK))


def placeholders(values: Collection[Any]) -> str:
    """Return the placeholders for values in an IN (...)."""
    return ",".join("?" * len(values))
