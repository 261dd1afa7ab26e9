"""Files of an earlier schema are brought up to date, once, with everything in them."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from leporello.errors import StoreError
from leporello.messages import Message, fingerprint
from leporello.messages.listed_message import read_message
from leporello.store.codec import encode, next_chain
from leporello.store.search.prepare import prepared_text
from leporello.store.sqlite import SQLiteStore, migrations
from leporello.store.sqlite.connection import SQLiteConnection
from leporello.store.sqlite.index import make_index, row_text

if TYPE_CHECKING:
    from pathlib import Path

MESSAGES: list[Message] = [
    {"role": "user", "content": "an old question about berths"},
    {"role": "assistant", "content": "an old answer"},
    {"role": "user", "content": "汉字 as they were packed before"},
]
SUMMARY: Message = {"role": "user", "content": "What an engine wrote."}
MERGED: Message = {"role": "assistant", "content": "What an engine wrote.\n\nan old answer"}


def old_file(path: Path) -> None:
    """Write a file as the first schema has it, by its own script."""
    with closing(sqlite3.connect(path, isolation_level=None, factory=SQLiteConnection)) as connection:
        connection.executescript(migrations.versions()[1])
        connection.execute("PRAGMA user_version = 1")
        connection.execute(f"PRAGMA application_id = {migrations.APPLICATION_ID}")
        make_index(connection)
        connection.execute("UPDATE settings SET value = 0 WHERE key = 'index_todo'")
        connection.execute("INSERT INTO conversations (owner, key, created, updated, listed) VALUES ('', 'c', 1, 1, 3)")
        chain = b""
        for number, message in enumerate(MESSAGES, 1):
            seen, encoded = read_message(message), encode(message)
            chain = next_chain(chain, encoded.verbatim)
            connection.execute(
                "INSERT INTO messages (conversation, seq, place, time, tokens, size, role, name, tool, fingerprint,"
                " chain, body) VALUES (1, ?, ?, 1, 1, ?, ?, '', '', ?, ?, ?)",
                (number, number, seen.size, seen.role, bytes.fromhex(seen.fingerprint), chain, encoded.verbatim),
            )
            text = row_text(prepared_text(message), 1, "")
            connection.execute("INSERT INTO search (rowid, text) VALUES (?, ?)", (number, text))
        connection.execute("UPDATE conversations SET next_seq = 4, chain = ?", (chain,))
        connection.executemany(
            "INSERT INTO emitted (conversation, fingerprint, origin) VALUES (1, ?, ?)",
            [(bytes.fromhex(fingerprint(SUMMARY)), None), (bytes.fromhex(fingerprint(MERGED)), 2)],
        )


def problems(store: SQLiteStore) -> list[Any]:
    return [*store.check_chain("c"), *store.check_index(), *store.check_index("c"), *store.check_file()]


def test_an_old_file_is_brought_up_to_date_with_everything_in_it(tmp_path: Path) -> None:
    old_file(tmp_path / "old.db")
    with SQLiteStore(tmp_path / "old.db") as store:
        assert [m.message for m in store.messages("c")] == MESSAGES
        assert problems(store) == []
        with store._db.read() as connection:
            assert connection.execute("PRAGMA user_version").fetchone() == (max(migrations.versions()),)


def test_an_old_file_gets_counters_that_go_on_counting(tmp_path: Path) -> None:
    old_file(tmp_path / "old.db")
    with closing(sqlite3.connect(tmp_path / "old.db")) as connection, connection:
        connection.execute("UPDATE messages SET state = 1 WHERE id = 2")
    with SQLiteStore(tmp_path / "old.db") as store:
        info = store.info("c")
        assert info is not None
        assert (info.messages, info.tokens, info.superseded) == (2, 2, 1)
        store.append("c", [{"role": "assistant", "content": "a new answer"}])
        store.fork("c", before="m4")
        store.delete("c", first=1, last=1)
        info = store.info("c")
        assert info is not None
        assert (info.messages, info.superseded) == (1, 2)
        assert [row.tokens for row in store.messages("c")] == [info.tokens]
        assert problems(store) == []


@pytest.mark.parametrize("counter", ["conversations.messages", "branches.messages", "branches.tokens"])
def test_the_checks_catch_a_counter_that_is_wrong(tmp_path: Path, counter: str) -> None:
    table, column = counter.split(".")
    old_file(tmp_path / "old.db")
    with SQLiteStore(tmp_path / "old.db") as store:
        assert problems(store) == []
        with store._db.write() as connection:
            connection.execute(f"UPDATE {table} SET {column} = {column} + 1")  # noqa: S608 - names of ours
        assert [finding.where for finding in store.check_file()] == ["c"]


def test_an_old_file_still_knows_what_an_engine_wrote(tmp_path: Path) -> None:
    old_file(tmp_path / "old.db")
    with SQLiteStore(tmp_path / "old.db") as store:
        done = store.ingest("c", [SUMMARY, MERGED, MESSAGES[2], {"role": "assistant", "content": "new"}])
        assert done.ids == (None, "m2", "m3", "m4")
        assert problems(store) == []


def test_an_old_file_is_not_indexed_again(tmp_path: Path) -> None:
    """The index is of the same version: a migration leaves it alone, so nothing is missing from a search meanwhile."""
    old_file(tmp_path / "old.db")
    with SQLiteStore(tmp_path / "old.db") as store:
        assert store.index_backlog() == 0


def test_an_old_file_is_refused_for_reading_only_and_left_as_it_is(tmp_path: Path) -> None:
    old_file(tmp_path / "old.db")
    before = (tmp_path / "old.db").read_bytes()
    with SQLiteStore(tmp_path / "old.db", read_only=True) as store, pytest.raises(StoreError, match="older version"):
        list(store.messages("c"))
    assert (tmp_path / "old.db").read_bytes() == before


def test_a_migration_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that breaks half way is rolled back, whatever it did before."""
    old_file(tmp_path / "old.db")
    broken = {**migrations.versions(), 2: "CREATE TABLE half (x);\nSELECT * FROM nowhere;"}
    with monkeypatch.context() as patched:
        patched.setattr(migrations, "versions", lambda: broken)
        with SQLiteStore(tmp_path / "old.db") as store, pytest.raises(StoreError, match="nowhere"):
            list(store.messages("c"))
    with SQLiteStore(tmp_path / "old.db") as store:
        assert [m.message for m in store.messages("c")] == MESSAGES
        assert problems(store) == []


def test_the_checks_catch_a_migration_that_loses_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted defect: the next schema deletes a message, and the same checks say so."""
    old_file(tmp_path / "old.db")
    newest = max(migrations.versions())
    careless = {**migrations.versions(), newest + 1: "DELETE FROM messages WHERE id = 2;"}
    monkeypatch.setattr(migrations, "versions", lambda: careless)
    with SQLiteStore(tmp_path / "old.db") as store:
        assert {finding.where for finding in problems(store)} == {"before m3", "m2", "c"}


def test_a_copy_of_the_old_file_is_kept_until_a_purge(tmp_path: Path) -> None:
    file, copy = tmp_path / "old.db", tmp_path / "old.db.schema-1.bak"
    old_file(file)
    with SQLiteStore(file) as store:
        assert [m.message for m in store.messages("c")] == MESSAGES
        assert copy.stat().st_mode & 0o777 == 0o600
        with closing(sqlite3.connect(copy)) as connection:
            assert connection.execute("PRAGMA user_version").fetchone() == (1,)
            assert connection.execute("SELECT count(*) FROM messages").fetchone() == (len(MESSAGES),)
        store.delete("c")
        assert store.purge().complete
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old.db"]


def test_a_new_file_and_an_empty_old_one_need_no_copy(tmp_path: Path) -> None:
    with SQLiteStore(tmp_path / "new.db") as store:
        store.append("c", MESSAGES)
    old_file(tmp_path / "old.db")
    with closing(sqlite3.connect(tmp_path / "old.db", isolation_level=None)) as connection:
        connection.execute("DELETE FROM messages")
    with SQLiteStore(tmp_path / "old.db") as store:
        assert list(store.messages("c")) == []
    assert list(tmp_path.glob("*.bak")) == []


@pytest.mark.slow
@pytest.mark.parametrize("version", range(1, max(migrations.versions())))
def test_a_migration_that_is_killed_in_the_middle_is_made_anew(tmp_path: Path, version: int) -> None:
    """The process ends at one statement or another; the file is as it was then, and is brought up to date later."""
    script = """
import os, sqlite3, sys
from pathlib import Path
from leporello.store.sqlite import migrations
whole, left = migrations.statements, int(sys.argv[2])
def some(script):
    global left
    for statement in whole(script):
        left -= 1
        if left < 0:
            os._exit(9)
        yield statement
migrations.statements = some
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
migrations.migrate(connection, sys.argv[1], busy_seconds=5, path=Path(sys.argv[1]))
"""
    for after in (0, 3, 11, 25, 40):
        file = tmp_path / f"{after}.db"
        old_file(file)
        with closing(sqlite3.connect(file, isolation_level=None)) as connection:
            for number in range(2, version + 1):
                connection.executescript(migrations.versions()[number])
            connection.execute(f"PRAGMA user_version = {version}")
        done = subprocess.run([sys.executable, "-c", script, str(file), str(after)], check=False, timeout=60)
        assert done.returncode in (0, 9)
        with SQLiteStore(file) as store:
            assert [m.message for m in store.messages("c")] == MESSAGES
            assert problems(store) == []


def test_every_schema_is_numbered_from_one_on_without_gaps() -> None:
    assert list(migrations.versions()) == list(range(1, len(migrations.versions()) + 1))
