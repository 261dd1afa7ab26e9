"""Databases of other programs, read and never changed: which program wrote one is seen in its tables."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from urllib.parse import quote

from leporello.errors import TranscriptError
from leporello.transcripts import hermes_lcm, hermes_state, lossless_claw
from leporello.transcripts.model import Skipped

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from leporello.transcripts.model import OnSkip, Transcript

MAGIC = b"SQLite format 3\x00"
_FORMATS = (hermes_state, hermes_lcm, lossless_claw)
_IN_USE = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_OWN = {"branches", "windows", "known"}
_EXPECTED = "Known are state.db of Hermes Agent, and the databases of hermes-lcm and lossless-claw."


def is_database(path: Path) -> bool:
    """Tell whether a file is a database of SQLite."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def read(path: Path, on_skip: OnSkip) -> Iterator[Transcript]:
    """Yield the conversations of a database as it is at this moment, also while its program writes to it."""
    try:
        with _opened(path.resolve(), on_skip) as connection:
            columns = _columns(connection)
            reader = next((each for each in _FORMATS if each.knows(columns)), None)
            if columns.keys() >= _OWN:
                hint = "Name it with --store, or take conversations out of it: leporello sessions export ID --bundle"
                raise TranscriptError("this is a store of leporello.", file=path, hint=hint)
            if reader is None:
                raise TranscriptError("no known tables are in this database.", file=path, hint=_EXPECTED)
            yield from reader.read(connection, columns, path, on_skip)
    except sqlite3.Error as error:
        raise TranscriptError(f"this database cannot be read ({error}).", file=path, hint=_EXPECTED) from error


@contextmanager
def _opened(path: Path, on_skip: OnSkip) -> Iterator[sqlite3.Connection]:
    """Open for reading; no file is left beside a database that had none.

    One whose folder cannot be written to is read without its write-ahead log. One that its program is writing to at
    this moment is not read at all: half of what it writes could be there.
    """
    log = path.with_name(f"{path.name}-wal")
    had_log = log.exists()
    address = f"file:{quote(str(path))}"
    try:
        connection = _began(f"{address}?mode=ro")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF in _IN_USE:
            raise
        connection = _began(f"{address}?mode=ro&immutable=1")
        if had_log and log.stat().st_size:
            on_skip(Skipped(file=str(log), line=0, reason="this folder is read-only, so what is newest was not read"))
    try:
        yield connection
    finally:
        connection.close()
        if not had_log and log.exists() and not log.stat().st_size:
            # Only a connection that may write removes the empty log, if no other program has begun to use it.
            with suppress(sqlite3.Error):
                _began(f"{address}?mode=rw").close()


def _began(address: str) -> sqlite3.Connection:
    connection = sqlite3.connect(address, uri=True, isolation_level=None)
    try:
        connection.row_factory = sqlite3.Row
        connection.text_factory = _text
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("BEGIN")
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")


def _columns(connection: sqlite3.Connection) -> dict[str, set[str]]:
    """Return the names of the columns of every table that SQLite knows by itself, without an extension."""
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL %'"
    tables = [row["name"] for row in connection.execute(query)]
    found: dict[str, set[str]] = {}
    for table in tables:
        rows = connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
        found[table] = {row["name"] for row in rows}
    return found
