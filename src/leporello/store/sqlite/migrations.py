"""The schema, as numbered files: each is run once, in order, under an exclusive lock."""

from __future__ import annotations

import sqlite3
import time
from importlib import resources
from typing import TYPE_CHECKING, Final

from leporello.errors import StoreError
from leporello.store.records import SchemaPlan
from leporello.store.sqlite.backups import copy_before, write_copy
from leporello.store.sqlite.index import ensure_index

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from leporello.store.sqlite.connection import SQLiteConnection

APPLICATION_ID: Final = 0x4C65706F  # "Lepo": tells our files from other SQLite databases
_PAUSE = 0.02


def versions() -> dict[int, str]:
    """Return the migrations by number."""
    folder = resources.files("leporello.store.sqlite") / "schema"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return {int(file.name.removesuffix(".sql")): file.read_text(encoding="utf-8") for file in files}


def is_current(connection: SQLiteConnection, place: str) -> bool:
    """Tell whether a file has the newest schema; one that is not ours, or newer than we know, is refused."""
    version, newest = _version(connection), max(versions())
    if version > newest:
        raise StoreError(
            f"the file has schema {version}; this version of Leporello knows {newest}.",
            place=place,
            hint="Upgrade Leporello, or name another file.",
        )
    ours = connection.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
    if not ours and connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
        raise StoreError(
            "the file is a SQLite database of another program.",
            place=place,
            hint="It was left as it is; name another file.",
        )
    return version == newest


def plan(connection: SQLiteConnection, place: str, path: Path | None) -> SchemaPlan:
    """Say what it takes to bring a file to the newest schema; no process of an older version may use it then."""
    is_current(connection, place)
    version, newest = _version(connection), max(versions())
    steps = [script for number, script in versions().items() if number > version]
    kept = str(copy_before(path, version)) if path is not None and version and steps else ""
    found = [statement.strip() for script in steps for statement in statements(script)]
    return SchemaPlan(version=version, newest=newest, serves=newest, statements=tuple(found), copy=kept)


def migrate(connection: SQLiteConnection, place: str, *, busy_seconds: float, path: Path | None = None) -> None:
    """Bring a file to the newest schema; of several processes that try, one does it and the others find it done.

    A file of an earlier schema is copied first, beside it.
    """
    _use_wal(connection, busy_seconds)
    if path is not None:
        _keep_copy(connection, path)
    connection.execute("BEGIN EXCLUSIVE")
    try:
        if not is_current(connection, place):
            for number, script in versions().items():
                if number > _version(connection):
                    for statement in statements(script):
                        connection.execute(statement)
                    connection.execute(f"PRAGMA user_version = {number}")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            ensure_index(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _keep_copy(connection: SQLiteConnection, path: Path) -> None:
    """Copy a file that has messages of an earlier schema; one that another process brings up to date is left out."""
    version = _version(connection)
    kept = copy_before(path, version)
    current = version in (0, max(versions()))
    if current or kept.exists() or connection.execute("SELECT 1 FROM messages LIMIT 1").fetchone() is None:
        return
    write_copy(connection, kept, lambda copy: _version(copy) == version)


def statements(script: str) -> Iterator[str]:
    """Cut a script into its statements."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip():
        yield statement


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _use_wal(connection: SQLiteConnection, busy_seconds: float) -> None:
    """Switch to write-ahead logging; SQLite does not wait here by itself when another process does the same."""
    deadline = time.monotonic() + busy_seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE)
        else:
            return
