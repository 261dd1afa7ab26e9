"""Connections to one SQLite file: opened when needed, few, safe for threads, forks and other processes."""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from contextlib import closing, contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from leporello.errors import StoreBusyError, StoreError
from leporello.store.relational.rows import placeholders
from leporello.store.sqlite.dialect import SQLiteDialect
from leporello.store.sqlite.migrations import is_current, migrate, plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from leporello.store.records import SchemaPlan

BUSY_SECONDS: Final = 10.0
MOST_CONNECTIONS: Final = 4
_CACHE_KIB: Final = 8_000
_LOG_WAIT_MS: Final = 10


class SQLiteConnection(sqlite3.Connection):
    """A connection that knows what SQLite does differently."""

    dialect: SQLiteDialect = SQLiteDialect()
    locking = ""  # a transaction that writes is alone in the file
    walk: Callable[..., sqlite3.Cursor] = sqlite3.Connection.execute

    def insert(self, table: str, columns: str, rows: Sequence[Sequence[Any]], /) -> None:
        """Write rows of a table."""
        if rows:
            self.executemany(f"INSERT INTO {table} ({columns}) VALUES ({placeholders(rows[0])})", rows)  # noqa: S608


class Database:
    """A SQLite file, or a database in memory when there is no path.

    Nothing is created before the first write; until then a missing file reads as empty. Readers run beside each other
    and beside one writer. After a fork the child opens connections of its own.
    """

    def __init__(self, path: Path | None, *, read_only: bool = False, busy_seconds: float = BUSY_SECONDS) -> None:
        self.path = path
        self.place: str = str(path) if path else ":memory:"
        """Where it is, for messages."""
        self.read_only = read_only
        self.busy_seconds = busy_seconds
        self._most = MOST_CONNECTIONS if path else 1
        self._closed = False
        self._left_behind: list[SQLiteConnection] = []
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._pool = _Pool(self._most)
        self._writing = threading.Lock()
        self._current = False
        self._finalizer = weakref.finalize(self, self._pool.end)

    @contextmanager
    def read(self) -> Iterator[SQLiteConnection]:
        """Lend a connection that sees one state of the database."""
        with self._lent(create=False) as connection:
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    @contextmanager
    def write(self) -> Iterator[SQLiteConnection]:
        """Lend a connection whose changes are made all together at the end, or not at all."""
        if os.getpid() != self._pid:
            self._begin_anew()
        if self.read_only:
            raise StoreError("it was opened for reading only.", place=self.place, hint="Open it without mode=ro.")
        if not self._writing.acquire(timeout=self.busy_seconds):
            raise self._busy()
        try:
            with self._lent(create=True) as connection:
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection
                    connection.execute("COMMIT")
                except BaseException:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise
        finally:
            self._writing.release()

    @contextmanager
    def plain(self) -> Iterator[SQLiteConnection]:
        """Lend a connection without a transaction, for work that SQLite does outside of one."""
        with self._lent(create=False) as connection:
            yield connection

    def settle(self, tables: Iterable[str]) -> None:
        """Nothing: SQLite plans the same for every size."""

    def copy_log(self) -> bool:
        """Copy the write-ahead log into the file; writers go on meanwhile. False when a reader needs the old state."""
        with self.plain() as connection:
            _, pages, copied = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        return bool(pages == copied)

    def empty_log(self) -> bool:
        """Cut the write-ahead log to nothing; False when others read or write.

        Writers wait for a moment only: what there is to copy was copied before.
        """
        self.copy_log()
        with self.plain() as connection:
            connection.execute(f"PRAGMA busy_timeout = {_LOG_WAIT_MS}")
            try:
                busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                connection.execute(f"PRAGMA busy_timeout = {int(self.busy_seconds * 1000)}")
        return not busy

    def exists(self) -> bool:
        """Tell whether there is something to read."""
        return self.path is None or self.path.exists()

    def close(self) -> None:
        """Close the connections that are free; a file is opened again when it is used again."""
        if os.getpid() != self._pid:
            self._begin_anew()
        self._closed = self.path is None
        self._pool.close()

    def _begin_anew(self) -> None:
        """Begin anew in a child process: SQLite connections must not cross a fork, not even to be closed."""
        self._finalizer.detach()
        kept = self._pool.free if self.path is None else []
        self._left_behind += self._pool.free
        self._start()
        self._pool.free += kept  # a database in memory exists nowhere else; the child has a copy of it

    @contextmanager
    def _lent(self, *, create: bool) -> Iterator[SQLiteConnection]:
        """Lend a connection, and say in our words what the database answers to what is done with it."""
        if os.getpid() != self._pid:
            self._begin_anew()
        if self._closed or (self.path is None and self._pool.closed):
            raise StoreError("this store in memory was closed, and what it held is gone.", place=self.place)
        pool = self._pool
        try:
            if not create and self.path is not None and not self.path.exists():
                with _empty() as connection:
                    yield connection
                return
            if not pool.slots.acquire(timeout=self.busy_seconds):
                raise self._busy()
            try:
                connection = pool.take() or self._opened()
                try:
                    yield connection
                finally:
                    pool.free.append(connection)
            finally:
                pool.slots.release()
        except sqlite3.Error as error:
            raise self._explained(error) from error

    def _opened(self) -> SQLiteConnection:
        if self.path is not None:
            refuse_special(self.path)
            if not self.read_only:
                self._create_file(self.path)
        connection = self._connect()
        try:
            connection.execute(f"PRAGMA busy_timeout = {int(self.busy_seconds * 1000)}")
            connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA secure_delete = ON")
            if not self._current:
                self._bring_up_to_date(connection)
                self._current = True
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect(self) -> SQLiteConnection:
        if self.path is None:
            return _open(":memory:")
        return self._to_look_at() if self.read_only else _open(str(self.path))

    def schema_plan(self) -> SchemaPlan:
        """Say what it takes to bring the file up to date."""
        try:
            with closing(self._to_look_at()) as connection:
                return plan(connection, self.place, self.path)
        except sqlite3.Error as error:
            raise self._explained(error) from error

    def _to_look_at(self) -> SQLiteConnection:
        """Return a connection that changes nothing, not even the schema."""
        if self.path is None or not self.path.exists():
            return _open(":memory:")
        return _open(f"{self.path.absolute().as_uri()}?mode=ro", uri=True)

    def _bring_up_to_date(self, connection: SQLiteConnection) -> None:
        if is_current(connection, self.place):
            return
        if self.read_only:
            raise StoreError(
                "the file is of an older version and was opened for reading only.",
                place=self.place,
                hint="Open it once without mode=ro to bring it up to date.",
            )
        migrate(connection, self.place, busy_seconds=self.busy_seconds, path=self.path)

    @staticmethod
    def _create_file(path: Path) -> None:
        """Create the file for its owner alone; the files SQLite puts beside it get the same mode."""
        if path.exists():
            return
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        except OSError as error:
            raise StoreError(
                f"the file cannot be created ({error.strerror}).",
                place=str(path),
                hint="Check the folder's permissions, or name another place with --store or store.url.",
            ) from error

    def _busy(self) -> StoreBusyError:
        look = f" (`fuser {self.path}` finds it)" if self.path else ""
        return StoreBusyError(
            f"another process kept it locked for more than {self.busy_seconds:g} s.",
            place=self.place,
            hint=f"Nothing was changed; try again when it has ended{look}.",
        )

    def _explained(self, error: sqlite3.Error) -> StoreError:
        code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
        if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
            return self._busy()
        problem, hint = _EXPLANATIONS.get(code, (f"the database answered: {error}.", ""))
        return StoreError(problem, place=self.place, hint=hint)


_EXPLANATIONS: Final = {
    sqlite3.SQLITE_READONLY: (
        "the file cannot be written.",
        "Check the permissions of the file and of its folder; nothing was changed.",
    ),
    sqlite3.SQLITE_FULL: ("the disk is full.", "Nothing was changed; make room and try again."),
    sqlite3.SQLITE_IOERR: (
        "reading or writing failed.",
        "Nothing was changed; check that the disk has room and works, and try again.",
    ),
    sqlite3.SQLITE_CANTOPEN: (
        "the file cannot be opened.",
        "Check that the folder exists and that its permissions allow it.",
    ),
    sqlite3.SQLITE_NOTADB: (
        "the file is not a SQLite database.",
        "It was left as it is; name another file, or put back a backup.",
    ),
    sqlite3.SQLITE_CORRUPT: ("the file is damaged.", "It was left as it is; put back a backup."),
}


def refuse_special(path: Path) -> None:
    """Raise for a pipe or a device, which SQLite would wait for."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise StoreError("it is not a regular file.", place=str(path), hint="Name another file.")


def _open(name: str, *, uri: bool = False) -> SQLiteConnection:
    return sqlite3.connect(
        name, uri=uri, isolation_level=None, check_same_thread=False, cached_statements=256, factory=SQLiteConnection
    )


@contextmanager
def _empty() -> Iterator[SQLiteConnection]:
    """Lend an empty database: what a file that does not exist yet reads as."""
    with closing(_open(":memory:")) as connection:
        connection.deserialize(_empty_image())
        yield connection


@cache
def _empty_image() -> bytes:
    """Return the bytes of a database with our tables and nothing in them, which takes a while to make."""
    with closing(_open(":memory:")) as connection:
        migrate(connection, ":memory:", busy_seconds=0)
        return connection.serialize()


class _Pool:
    """A few connections, each lent to one thread at a time."""

    def __init__(self, most: int) -> None:
        self.free: list[SQLiteConnection] = []
        self.slots = threading.Semaphore(most)
        self.closed = False
        """Whether the process is ending: a database in memory is gone then."""

    def take(self) -> SQLiteConnection | None:
        """Return a connection that is free, or None; threads may ask at the same moment."""
        try:
            return self.free.pop()
        except IndexError:
            return None

    def close(self) -> None:
        """Close the connections that are free."""
        while connection := self.take():
            connection.close()

    def end(self) -> None:
        """Close the connections when the database is no longer used, or the process ends."""
        self.closed = True
        self.close()
