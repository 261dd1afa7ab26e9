"""Connections to a PostgreSQL database: a pool that is opened when needed, safe for threads, forks and pgbouncer.

Nothing outlives a transaction, so pgbouncer may hand every transaction to another connection: what a session would set
is set with `SET LOCAL` in the statement that begins the transaction, and no statement is prepared.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from contextlib import closing, contextmanager
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import errors, sql
from psycopg.types.string import StrDumper
from psycopg_pool import ConnectionPool, PoolTimeout

from leporello.errors import CommitUnknownError, StoreBusyError, StoreError
from leporello.store.postgres.dialect import PostgresDialect
from leporello.store.postgres.expression import Lexemes
from leporello.store.postgres.migrations import is_current, migrate, plan
from leporello.store.relational.rows import placeholders

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence

    from leporello.store.postgres.address import DatabaseAddress
    from leporello.store.records import SchemaPlan
    from leporello.store.relational.dialect import QueryRows

BUSY_SECONDS: Final = 10.0
MOST_CONNECTIONS: Final = 8
_CONNECT_SECONDS: Final = 10
_MANY_ROWS: Final = 32  # from which on COPY, which takes an exchange more with the server, is quicker
_AHEAD: Final = 256  # rows that are fetched at once when a query is walked
_TSVECTOR: Final = 3614  # the number of the type, the same in every PostgreSQL
_IDLE: Final = psycopg.pq.TransactionStatus.IDLE


class PostgresConnection:
    """A connection in a transaction, which takes the statements that databases share."""

    dialect: PostgresDialect = PostgresDialect()

    def __init__(self, raw: psycopg.Connection[Any], *, writes: bool) -> None:
        self._raw = raw
        self.locking = " FOR UPDATE" if writes else ""
        self._names = count()
        self._walks: list[Generator[Any]] = []

    def execute(self, statement: str, parameters: Sequence[Any] = (), /) -> QueryRows:
        """Run a statement."""
        if not parameters:
            return self._raw.execute(statement.encode())
        return self._raw.execute(translated(statement), parameters)

    def executemany(self, statement: str, parameters: Iterable[Sequence[Any]], /) -> None:
        """Run a statement for each of several rows, in one exchange with the server."""
        with self._raw.cursor() as cursor:
            cursor.executemany(translated(statement), list(parameters))

    def insert(self, table: str, columns: str, rows: Sequence[Sequence[Any]], /) -> None:
        """Write rows of a table; many of them by COPY."""
        if not rows:
            return
        if len(rows) < _MANY_ROWS:
            self.executemany(f"INSERT INTO {table} ({columns}) VALUES ({placeholders(rows[0])})", rows)  # noqa: S608
            return
        with self._raw.cursor() as cursor, cursor.copy(f"COPY {table} ({columns}) FROM STDIN".encode()) as copy:
            for row in rows:
                copy.write_row(row)

    def walk(self, statement: str, parameters: Sequence[Any] = (), /) -> Iterator[Any]:
        """Run a query whose rows are read as they are asked for."""
        rows = self._walked(statement, parameters)
        self._walks.append(rows)
        return rows

    def _walked(self, statement: str, parameters: Sequence[Any]) -> Generator[Any]:
        with self._raw.cursor(name=f"walk_{next(self._names)}") as cursor:
            cursor.itersize = _AHEAD
            cursor.execute(translated(statement), parameters)
            yield from cursor

    def close(self) -> None:
        """End the queries that were not read to their end: later on, the connection is in another transaction."""
        for rows in self._walks:
            rows.close()


@lru_cache(maxsize=1024)
def translated(statement: str) -> bytes:
    """Return a statement with the placeholders of psycopg."""
    return statement.replace("%", "%%").replace("?", "%s").encode()


class _TextDumper(StrDumper):
    """Text for columns that are searched or shown: PostgreSQL holds no NUL, which verbatim bytes keep."""

    def dump(self, obj: str) -> Any:
        return super().dump(obj.replace("\0", "\ufffd") if "\0" in obj else obj)


class _LexemesDumper(StrDumper):
    """The terms of an index row: the column takes them in INSERT and in COPY."""

    oid = _TSVECTOR


class PostgresDatabase:
    """A PostgreSQL database.

    The tables are made when it is used for the first time. Readers see one state of the database; writers lock the
    conversation that they change, so that writers of different conversations do not wait for each other.
    """

    def __init__(
        self,
        address: DatabaseAddress,
        *,
        read_only: bool = False,
        busy_seconds: float = BUSY_SECONDS,
        most_connections: int = MOST_CONNECTIONS,
    ) -> None:
        self.address = address
        self.place: str = address.place
        self.read_only = read_only
        self.busy_seconds = busy_seconds
        self.most_connections = most_connections
        local = (
            f'SET LOCAL search_path = "{address.schema.replace(chr(34), chr(34) * 2)}"; SET LOCAL jit = off;'
            f" SET LOCAL lock_timeout = {max(1, int(busy_seconds * 1000))}"
        )
        self._read = f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {local}".encode()
        self._write = f"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; {local}".encode()
        self._left_behind: list[ConnectionPool[Any]] = []
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._pool: ConnectionPool[Any] | None = None
        self._opening = threading.Lock()
        self._current = False

    @contextmanager
    def read(self) -> Iterator[PostgresConnection]:
        """Lend a connection that sees one state of the database."""
        with self._begun(self._read) as raw, closing(PostgresConnection(raw, writes=False)) as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[PostgresConnection]:
        """Lend a connection whose changes are made all together at the end, or not at all."""
        if self.read_only:
            raise StoreError("it was opened for reading only.", place=self.place)
        with self._begun(self._write) as raw:
            with closing(PostgresConnection(raw, writes=True)) as connection:
                yield connection
            self._commit(raw)

    @contextmanager
    def plain(self) -> Iterator[psycopg.Connection[Any]]:
        """Lend a connection without a transaction, for work that PostgreSQL does outside of one."""
        with self._lent() as raw:
            yield raw

    def settle(self, tables: Iterable[str]) -> None:
        """Give back the space of rows that are gone, and let the planner know those that are there."""
        with self.plain() as raw:
            for table in tables:
                raw.execute(sql.SQL("VACUUM (ANALYZE) {}").format(sql.Identifier(self.address.schema, table)))

    def exists(self) -> bool:
        """Tell whether there is something to read."""
        return True

    def close(self) -> None:
        """Close the connections; they are opened again when the database is used again."""
        if os.getpid() != self._pid:
            self._begin_anew()
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def _begin_anew(self) -> None:
        """Begin anew in a child process: connections must not cross a fork, not even to be closed."""
        if self._pool is not None:
            self._left_behind.append(self._pool)
            self._finalizer.detach()
        self._start()

    @contextmanager
    def _begun(self, begin: bytes) -> Iterator[psycopg.Connection[Any]]:
        """Lend a connection in a transaction, which is rolled back unless it was committed."""
        with self._lent(begin) as raw:
            try:
                yield raw
            finally:
                if not raw.closed and raw.info.transaction_status != _IDLE:
                    raw.execute(b"ROLLBACK")

    def _commit(self, raw: psycopg.Connection[Any]) -> None:
        """Commit, and tell when the server did not wait for the standby that it should have waited for."""
        warnings: list[str] = []

        def note(diagnostic: errors.Diagnostic) -> None:
            if diagnostic.sqlstate == "01000":
                warnings.append(diagnostic.message_primary or "")

        raw.add_notice_handler(note)
        try:
            raw.execute(b"COMMIT")
        except psycopg.OperationalError as error:
            if not raw.closed:
                raise
            raise CommitUnknownError(
                "the connection was lost while the change was committed; whether it was made is not known.",
                place=self.place,
                hint="Look whether it is there before you try again.",
            ) from error
        finally:
            raw.remove_notice_handler(note)
        if warnings:
            raise CommitUnknownError(
                f"the change is on the primary only ({self.address.shown(warnings[0])}).",
                place=self.place,
                hint="It is lost if the primary is lost now; check the standby.",
            )

    @contextmanager
    def _lent(self, begin: bytes = b"") -> Iterator[psycopg.Connection[Any]]:
        """Lend a connection, and say in our words what the database answers to what is done with it."""
        if os.getpid() != self._pid:
            self._begin_anew()
        try:
            pool = self._opened()
            raw = self._taken(pool, begin)
            try:
                yield raw
            finally:
                pool.putconn(raw)
        except psycopg.Error as error:
            raise self._explained(error) from error

    def _taken(self, pool: ConnectionPool[Any], begin: bytes) -> psycopg.Connection[Any]:
        """Take a connection and begin; one that the server has closed meanwhile is replaced."""
        deadline = time.monotonic() + self.busy_seconds
        while True:
            raw: psycopg.Connection[Any] = pool.getconn(timeout=max(0.001, deadline - time.monotonic()))
            try:
                if begin:
                    raw.execute(begin)
            except psycopg.OperationalError:
                lost = raw.closed
                pool.putconn(raw)
                if not lost or time.monotonic() > deadline:
                    raise
            except BaseException:
                pool.putconn(raw)
                raise
            else:
                return raw

    def _opened(self) -> ConnectionPool[Any]:
        """Return the pool, opened when needed; the first connection looks at the schema."""
        pool = self._pool
        if pool is not None:
            return pool
        with self._opening:
            if self._pool is None:
                if not self._current:
                    self._bring_up_to_date()
                    self._current = True
                pool = ConnectionPool(
                    self.address.conninfo,
                    kwargs=self._options(),
                    configure=_configure,
                    min_size=0,
                    max_size=self.most_connections,
                    timeout=self.busy_seconds,
                    reconnect_timeout=self.busy_seconds,
                    num_workers=1,
                    open=True,
                )
                self._finalizer = weakref.finalize(self, pool.close)
                self._pool = pool
            return self._pool

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"autocommit": True, "prepare_threshold": None, "client_encoding": "utf8"}
        if not self.address.names("connect_timeout"):
            options["connect_timeout"] = _CONNECT_SECONDS
        if not self.address.names("application_name"):
            options["application_name"] = "leporello"
        return options

    def schema_plan(self) -> SchemaPlan:
        """Say what it takes to bring the tables up to date."""
        try:
            with self._connected() as raw:
                is_current(raw, self.address.schema, self.place)  # refuses what is not for this version
                return plan(raw, self.address.schema, self.place)
        except psycopg.Error as error:
            raise self._explained(error) from error

    def _bring_up_to_date(self) -> None:
        with self._connected() as raw:
            if is_current(raw, self.address.schema, self.place):
                return
            if self.read_only:
                raise StoreError(
                    "it has no tables of this version and was opened for reading only.",
                    place=self.place,
                    hint="They are made when the first message is kept.",
                )
            migrate(raw, self.address.schema, self.place, busy_seconds=self.busy_seconds)

    def _connected(self) -> psycopg.Connection[Any]:
        """Return a connection of its own to a database that can hold our text."""
        try:
            raw = psycopg.connect(self.address.conninfo, **self._options())
        except psycopg.ProgrammingError as error:
            problem = f"the address cannot be read: {self.address.shown(str(error)).strip()}."
            raise StoreError(problem, place=self.place) from None
        if raw.info.parameter_status("server_encoding") != "UTF8":
            raw.close()
            raise StoreError(
                "the database does not keep its text in UTF-8.",
                place=self.place,
                hint="Make one with CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0.",
            )
        return raw

    def _explained(self, error: psycopg.Error) -> StoreError:
        if isinstance(error, (errors.LockNotAvailable, errors.SerializationFailure, errors.DeadlockDetected)):
            return self._busy()
        if isinstance(error, PoolTimeout):
            return StoreBusyError(
                f"no connection was free, or none could be made, for {self.busy_seconds:g} s.",
                place=self.place,
                hint="Nothing was changed; try again, and check that the database runs.",
            )
        said = error.diag.message_primary or str(error).strip().partition("\n")[0] or type(error).__name__
        problem, hint = _EXPLANATIONS.get(error.sqlstate or "", ("", ""))
        if not problem and isinstance(error, psycopg.OperationalError) and not error.sqlstate:
            problem, hint = "the database cannot be reached, or the connection was lost", "Nothing was changed."
        said = self.address.shown(said)
        problem = f"{problem} ({said})." if problem else f"the database answered: {said}."
        return StoreError(problem, place=self.place, hint=hint)

    def _busy(self) -> StoreBusyError:
        return StoreBusyError(
            f"another process kept it locked for more than {self.busy_seconds:g} s.",
            place=self.place,
            hint="Nothing was changed; try again.",
        )


def _configure(raw: psycopg.Connection[Any]) -> None:
    raw.adapters.register_dumper(str, _TextDumper)
    raw.adapters.register_dumper(Lexemes, _LexemesDumper)


_REPLICA: Final = ("it is a read-only replica", "Nothing was changed; name the primary, or add target_session_attrs.")
_LIMITED: Final = "Nothing was changed; try again, or raise the limit that the database has for its user."
_EXPLANATIONS: Final = {
    "28P01": ("the password was not accepted", "Set it in the address, in PGPASSWORD or in ~/.pgpass."),
    "28000": ("this user may not connect", "Check user, host and pg_hba.conf."),
    "3D000": ("there is no such database", "Make it with `createdb`."),
    "42501": ("this user may not do that", "Grant it CREATE on the database once, or let another make the tables."),
    "0A000": _REPLICA,  # where a transaction that writes is begun
    "23505": ("another process has written the same meanwhile", "Nothing was changed; try again."),
    "25006": _REPLICA,
    "25P03": ("the database ended a transaction that waited for this process", _LIMITED),
    "25P04": ("the database ended a transaction that took too long", _LIMITED),
    "53100": ("the disk is full", "Nothing was changed; make room and try again."),
    "53300": ("the server has no connection left", "Nothing was changed; use fewer, or pgbouncer in front of it."),
    "57014": ("the database ended a statement", _LIMITED),
    "57P01": ("the server was shut down", "Try again when it runs."),
    "57P02": ("the server crashed", "Try again when it runs."),
    "57P03": ("the server is starting up", "Try again when it runs."),
}
