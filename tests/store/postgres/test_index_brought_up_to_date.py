"""The index is made anew while others write, delete and do the same: nothing is left out, nothing comes back."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from leporello.errors import StoreBusyError, StoreError
from leporello.store.postgres import PostgresStore, index
from leporello.store.relational.reading import load_readable

if TYPE_CHECKING:
    from tests.fixtures.databases import Schemas

    from leporello.messages import Message
    from leporello.store.records import Deletion
    from leporello.store.relational.dialect import Connection

TODO = "SELECT value FROM settings WHERE key = 'index_todo' FOR UPDATE"
SOON = 0.3


def said(*texts: str) -> list[Message]:
    return [{"role": "user", "content": text} for text in texts]


@pytest.fixture
def store(schemas: Schemas) -> PostgresStore:
    store = schemas.open("here")
    for n in range(4):
        store.append(f"c{n}", said("apple", "pear", f"word{n}"))
    return store


def outdated(store: PostgresStore) -> None:
    """Have the index as a version before made it."""
    with store._db.write() as connection:
        connection.execute("UPDATE settings SET value = '1' WHERE key = 'prepare_version'")


def outdated_texts(store: PostgresStore) -> int:
    with store._db.write() as connection:
        return int(connection.execute("UPDATE search SET text = ' old '").rowcount)


def test_who_makes_it_anew_waits_for_another_who_does_some_of_it(schemas: Schemas, store: PostgresStore) -> None:
    other = schemas.open("here")
    assert outdated_texts(store) == 12
    with ThreadPoolExecutor(1) as pool:
        with other._db.write() as connection:
            connection.execute(TODO)
            rebuilt = pool.submit(store.rebuild_index)
            threading.Event().wait(SOON)
            assert not rebuilt.done()
        rebuilt.result()
    assert store.index_backlog() == 0
    assert all(store.check_index(f"c{n}") == [] for n in range(4))


def test_planted_who_does_not_wait_leaves_the_index_as_it_was(
    schemas: Schemas, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    catch_up = index.catch_up
    monkeypatch.setattr(index, "catch_up", lambda connection, count, **_: catch_up(connection, count, wait=False))
    outdated_texts(store)
    begin_rebuild = index.begin_rebuild

    def begun(connection: Connection) -> None:
        begin_rebuild(connection)
        connection.execute("COMMIT")
        held.enter_context(other._db.write()).execute(TODO)

    other = schemas.open("here")
    monkeypatch.setattr(index, "begin_rebuild", begun)
    with ExitStack() as held:
        store.rebuild_index()
    assert store.index_backlog() > 0


def test_a_message_that_is_deleted_meanwhile_stays_out(
    schemas: Schemas, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _found_after_deleting_meanwhile(schemas, store, monkeypatch) == []


def test_planted_what_was_read_before_the_lock_comes_back(
    schemas: Schemas, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store._db.read() as connection:
        before = load_readable(connection, [row[0] for row in connection.execute("SELECT id FROM messages")])
    monkeypatch.setattr(index, "load_readable", lambda _, numbers: {n: before[n] for n in numbers})
    assert _found_after_deleting_meanwhile(schemas, store, monkeypatch) == ["m1"]


def _found_after_deleting_meanwhile(
    schemas: Schemas, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """Delete a message after the index was asked which ones it lacks; return what the index has too much."""
    other, take = schemas.open("here"), index.take_from_index
    deleted: list[Deletion] = []

    def taken(connection: Connection, *arguments: Any) -> None:
        if not deleted:
            deleted.append(other.delete("c0", first=1, last=1))
        take(connection, *arguments)

    monkeypatch.setattr(index, "take_from_index", taken)
    with store._db.write() as connection:
        index.begin_rebuild(connection)
    with store._db.write() as connection:
        index.catch_up(connection, 100, wait=True)
    assert deleted[0].messages == 1
    return [finding.where for finding in store.check_index()]


def test_a_conversation_that_is_deleted_meanwhile_goes_with_its_index(
    schemas: Schemas, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    _remove_while_it_is_indexed(schemas, store, monkeypatch)
    assert store.check_index() == []
    assert store.purge().complete


def test_planted_who_does_not_wait_leaves_entries_behind(
    schemas: Schemas, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "_lock", lambda *_: None)
    with pytest.raises(StoreError, match="foreign key"):
        _remove_while_it_is_indexed(schemas, store, monkeypatch)


def _remove_while_it_is_indexed(schemas: Schemas, store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the rows of a deleted conversation while another process has indexed it again, but not committed."""
    hidden: list[Any] = []
    with monkeypatch.context() as patch:
        patch.setattr(store, "remove", hidden.append)
        store.delete("c0")
    with store._db.write() as connection:
        index.begin_rebuild(connection)
    with ThreadPoolExecutor(1) as pool:
        with schemas.open("here")._db.write() as connection:
            index.catch_up(connection, 100, wait=True)
            removed = pool.submit(store.remove, hidden[0])
            threading.Event().wait(SOON)
            assert not removed.done()
        removed.result()


def test_who_has_a_conversation_waits_for_nobody_who_may_want_it(schemas: Schemas, store: PostgresStore) -> None:
    """One that catches up has the row that says how far it came, and waits for conversations."""
    outdated(store)
    with schemas.open("here")._db.write() as connection:
        connection.execute(TODO)
        store.append("c0", said("plum"))
    assert store.index_backlog() > 0
    store.append("c0", said("quince"))
    store.rebuild_index()
    assert store.check_index() == []
    assert len(store.search("quince").hits) == len(store.search("plum").hits) == 1


def test_planted_who_waits_for_it_is_noticed(
    schemas: Schemas, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "_begin_unless_others_do", index.begin_rebuild)
    outdated(store)
    impatient = schemas.open("here", busy_seconds=SOON)
    with schemas.open("here")._db.write() as connection:
        connection.execute(TODO)
        with pytest.raises(StoreBusyError):
            impatient.append("c0", said("plum"))


def test_what_another_version_indexed_without_its_part_is_found_meanwhile(
    schemas: Schemas, store: PostgresStore
) -> None:
    with store._db.write() as connection:
        connection.execute("UPDATE search SET terms = ts_delete(terms, '#0')")
    assert not store.search("pear").hits  # the planted defect: the index says that it is of this version
    outdated(store)
    new = schemas.open("here")
    assert len(new.search("pear").hits) == 4
    new.append("c0", said("pear again"))  # which begins to bring it up to date
    assert new.index_backlog() > 0
    assert len(new.search("pear").hits) == 5
    new.rebuild_index()
    assert len(store.search("pear").hits) == len(new.search("pear").hits) == 5
