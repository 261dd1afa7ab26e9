"""What the parts of the store share: the database, the clock, and how values stand in columns."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from leporello.errors import StoreError
from leporello.store.records import ROOT

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator, Sequence

    from leporello.store.sqlite.branch_path import Fork
    from leporello.store.sqlite.connection import Database

CHUNK: Final = 400  # values in one IN (...)
LATEST: Final = 1e11  # seconds since the epoch: the year 5138


class Part:
    """A part of the store."""

    _db: Database
    _clock: Callable[[], float]


@dataclass(frozen=True, kw_only=True)
class Conversation:
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


NEW: Final = Conversation(id=0, owner="", next_seq=1, chain=b"", revision=0, ended=False)
"""A conversation of which nothing is stored yet."""
_COLUMNS = "id, owner, next_seq, chain, revision, ended IS NOT NULL, head"


def find(connection: sqlite3.Connection, key: str, owner: str) -> Conversation | None:
    """Return a conversation, or None."""
    row = connection.execute(
        f"SELECT {_COLUMNS} FROM conversations WHERE owner = ? AND key = ?",  # noqa: S608 - constants
        (checked(owner), checked(key)),
    ).fetchone()
    return _conversation(row) if row else None


def by_number(connection: sqlite3.Connection, number: int) -> Conversation:
    """Return a conversation that is there, by its number."""
    return _conversation(
        connection.execute(f"SELECT {_COLUMNS} FROM conversations WHERE id = ?", (number,)).fetchone()  # noqa: S608 - constants
    )


def _conversation(row: tuple[Any, ...]) -> Conversation:
    id_, owner, next_seq, chain, revision, ended, head = row
    return Conversation(
        id=id_, owner=owner, next_seq=next_seq, chain=chain, revision=revision, ended=bool(ended), head=head
    )


def opened(connection: sqlite3.Connection, key: str, owner: str, now: float) -> Conversation:
    """Return a conversation, creating it when it is new."""
    found = find(connection, key, owner)
    if found:
        return found
    number = connection.execute(
        "INSERT INTO conversations (owner, key, created, updated) VALUES (?, ?, ?, ?)", (owner, key, now, now)
    ).lastrowid
    add_branch(connection, number or 0, ROOT, now)
    found = find(connection, key, owner)
    assert found is not None  # noqa: S101 - inserted a line above, in this transaction
    return found


def add_branch(
    connection: sqlite3.Connection, conversation: int, branch: int, now: float, fork: Fork | None = None
) -> None:
    """Write down a branch that has no messages of its own yet."""
    connection.execute(
        "INSERT INTO branches (conversation, id, parent, fork_place, fork_seq, fork_request, created, used)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (conversation, branch, *(fork or (None, None, None, None)), now, now),
    )


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


def setting(connection: sqlite3.Connection, key: str) -> int:
    """Return a number that the store keeps about itself; 0 when it was never set."""
    row = connection.execute("SELECT value FROM settings WHERE key = ?", (key,)).fetchone()
    return int(row[0]) if row else 0


def set_setting(connection: sqlite3.Connection, key: str, value: int) -> None:
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
    return int(digits) if id_[:1] == letter and digits.isascii() and digits.isdigit() and len(digits) < 19 else None  # noqa: PLR2004 - SQLite's largest


def chunks(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Cut values into pieces that fit one statement."""
    return (values[start : start + CHUNK] for start in range(0, len(values), CHUNK))


def placeholders(values: Sequence[Any]) -> str:
    """Return the placeholders for values in an IN (...)."""
    return ",".join("?" * len(values))
