"""Processes of the previous and of this release on one database, and what an upgrade says before it is done.

The newer release is a copy of the package with one more migration: another process runs it. An older one is the wheel
that LEPORELLO_OLDER_WHEEL names; without it a copy of the package takes its place.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from click.testing import CliRunner
from psycopg import sql

import leporello
from leporello.cli.main import commands
from leporello.errors import StoreError
from leporello.store.postgres import migrations
from leporello.store.sqlite import SQLiteStore

if TYPE_CHECKING:
    from tests.fixtures.databases import Schemas

NEWEST = max(migrations.versions())
ADDS = f"-- serves {NEWEST}\nALTER TABLE conversations ADD COLUMN place_of_birth text NOT NULL DEFAULT '';\n"
REMOVES = "ALTER TABLE conversations DROP COLUMN title;\n"
APPEND = """
import sys
from leporello.store import open_store
with open_store(sys.argv[1]) as store:
    for text in sys.argv[3:]:
        store.append(sys.argv[2], [{"role": "user", "content": text}])
    print(*[row.message["content"] for row in store.messages(sys.argv[2])])
"""


class Release:
    """The package in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def run(self, *arguments: str) -> str:
        """Run Python with this release."""
        done = subprocess.run(
            [sys.executable, *arguments],
            env={"PYTHONPATH": str(self._folder)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


def copied(folder: Path, migration: str = "") -> Release:
    """Copy the package, with another migration."""
    package = folder / "leporello"
    shutil.copytree(Path(leporello.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    if migration:
        added = package / "store" / "postgres" / "schema" / f"{NEWEST + 1:04}.sql"
        added.write_text(migration, encoding="utf-8")
    return Release(folder)


def told(*arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(commands, ["store", "upgrade", *arguments, "--json"])
    assert result.exit_code == 0, (result.output, result.exception)
    found: dict[str, Any] = json.loads(result.output)
    return found


@pytest.mark.slow
def test_the_previous_release_goes_on_beside_a_newer_one_that_only_adds(schemas: Schemas, tmp_path: Path) -> None:
    newer, url = copied(tmp_path, ADDS), schemas.url("shared")
    before = schemas.open("shared")
    before.append("c", [{"role": "user", "content": "one"}])
    assert newer.run("-c", APPEND, url, "c", "two") == "one two"
    before.append("c", [{"role": "user", "content": "three"}])
    opened_later = schemas.open("shared")
    opened_later.append("c", [{"role": "user", "content": "four"}])
    assert newer.run("-c", APPEND, url, "c", "five") == "one two three four five"
    assert opened_later.check_chain("c") == opened_later.check_index() == opened_later.check_file() == []
    assert told("--plan", "--store", url)["statements"] == []


@pytest.mark.slow
def test_the_previous_release_is_stopped_by_a_newer_one_that_removes(schemas: Schemas, tmp_path: Path) -> None:
    """Also the planted defect for the test above: a migration that does not say that it serves older processes."""
    newer, url = copied(tmp_path, REMOVES), schemas.url("shared")
    schemas.open("shared").append("c", [{"role": "user", "content": "one"}])
    plan = newer.run("-m", "leporello", "store", "upgrade", "--plan", "--store", url)
    assert "DROP COLUMN title" in plan
    assert "cannot use it then" in plan
    schemas.open("shared").append("c", [{"role": "user", "content": "two"}])
    newer.run("-m", "leporello", "store", "upgrade", "--store", url)
    with pytest.raises(StoreError, match=f"schema {NEWEST + 1}; this version of Leporello knows {NEWEST}"):
        schemas.open("shared").append("c", [{"role": "user", "content": "three"}])


def at_once(older: Release, schemas: Schemas) -> None:
    """Require that both releases write to the same conversations at once, and everything is there once and in order."""
    url, this = schemas.url("shared"), Release(Path(leporello.__file__).parents[1])
    older.run("-c", APPEND, url, "c", "first")
    words = {each: [f"{each}{n}" for n in range(15)] for each in ("older", "newer")}
    writers = [(release, key, words[name]) for key in "cd" for name, release in (("older", older), ("newer", this))]
    with ThreadPoolExecutor(len(writers)) as pool:
        list(pool.map(lambda each: each[0].run("-c", APPEND, url, each[1], *each[2]), writers))
    with schemas.open("shared") as store:
        for key in "cd":
            found = [row.message["content"] for row in store.messages(key)]
            assert {who: [each for each in found if each in said] for who, said in words.items()} == words
            assert len(found) == 30 + (key == "c")
            assert store.check_chain(key) == store.check_index(key) == []
            assert {hit.snippet for hit in store.search("older7", conversation=key).hits} == {"older7"}
        assert store.check_file() == store.check_index() == []


@pytest.mark.slow
def test_an_older_release_and_this_one_write_at_once(schemas: Schemas, tmp_path: Path) -> None:
    wheel = os.environ.get("LEPORELLO_OLDER_WHEEL")
    if wheel:
        shutil.unpack_archive(wheel, tmp_path, "zip")
    at_once(Release(tmp_path) if wheel else copied(tmp_path), schemas)


@pytest.mark.slow
def test_planted_an_older_release_that_locks_no_conversation_is_noticed(schemas: Schemas, tmp_path: Path) -> None:
    older, locks = copied(tmp_path), '" FOR UPDATE" if writes else ""'
    file = tmp_path / "leporello" / "store" / "postgres" / "connection.py"
    text = file.read_text(encoding="utf-8")
    assert locks in text
    file.write_text(text.replace(locks, '""'), encoding="utf-8")
    with pytest.raises(AssertionError):
        at_once(older, schemas)


def test_a_plan_changes_nothing(schemas: Schemas) -> None:
    store = schemas.open("new")
    plan = told("--plan", "--store", schemas.url("new"))
    assert (plan["version"], plan["newest"], plan["done"]) == (0, NEWEST, False)
    assert any(statement.startswith("CREATE TABLE messages") for statement in plan["statements"])
    with psycopg.connect(store._db.address.conninfo) as connection:
        found = connection.execute(
            "SELECT count(*) FROM pg_namespace WHERE nspname = %s", (store._db.address.schema,)
        ).fetchone()
    assert found == (0,)
    assert told("--store", schemas.url("new"))["done"]
    assert told("--plan", "--store", schemas.url("new"))["version"] == NEWEST
    assert list(store.conversations()) == []


def test_a_database_of_this_release_without_the_note_of_whom_it_serves_is_current(schemas: Schemas) -> None:
    store = schemas.open("here")
    store.append("c", [{"role": "user", "content": "one"}])
    address = store._db.address
    with psycopg.connect(address.conninfo, autocommit=True) as connection:
        table = sql.Identifier(address.schema, "settings")
        connection.execute(sql.SQL("DELETE FROM {} WHERE key = 'serves'").format(table))
    assert [row.message["content"] for row in schemas.open("here").messages("c")] == ["one"]


def test_what_a_file_needs_is_told_too(tmp_path: Path) -> None:
    with SQLiteStore(tmp_path / "store.db") as store:
        store.append("c", [{"role": "user", "content": "one"}])
    assert told("--plan", "--store", str(tmp_path / "store.db"))["statements"] == []
    result = CliRunner().invoke(commands, ["store", "upgrade", "--plan", "--store", str(tmp_path / "store.db")])
    assert "nothing to do" in result.output
