"""What only a database that several processes share has to show: concurrency, migrations, secrets, one search."""

from __future__ import annotations

import multiprocessing
import os
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit, urlunsplit
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from tests.fixtures.databases import server

from leporello.errors import StaleTipError, StoreBusyError, StoreError
from leporello.store import Node, SearchFilter, open_store
from leporello.store.postgres import PostgresStore, candidates, expression, migrations
from leporello.store.postgres.address import parse
from leporello.store.postgres.expression import TermPhrase, parse as parse_expression
from leporello.store.relational import writing
from leporello.store.search import prepared_text
from leporello.store.search.rank import exactness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.fixtures.databases import Schemas

    from leporello.messages import Message
    from leporello.store import Store


def said(*texts: str, role: str = "user") -> list[Message]:
    return [{"role": role, "content": text} for text in texts]


def texts(store: Store, conversation: str = "c", owner: str = "") -> list[Any]:
    return [stored.message["content"] for stored in store.messages(conversation, owner=owner)]


@pytest.fixture
def store(schemas: Schemas) -> PostgresStore:
    return schemas.open("here")


def raw(store: PostgresStore) -> psycopg.Connection[Any]:
    """Return a connection of another program to the tables of a store."""
    address = store._db.address
    connection = psycopg.connect(address.conninfo, autocommit=True)
    connection.execute(sql.SQL("SET search_path = {}").format(sql.Identifier(address.schema)))
    return connection


# several at once


def test_writers_of_one_conversation_take_turns_and_lose_nothing(store: PostgresStore) -> None:
    with ThreadPoolExecutor(6) as pool:
        for each in [pool.submit(store.append, "c", said(f"{n} a", f"{n} b")) for n in range(30)]:
            each.result()
    found = texts(store)
    assert sorted(found) == sorted(f"{n} {letter}" for n in range(30) for letter in "ab")
    assert all(found[at][-1] == "a" and found[at + 1] == found[at].replace("a", "b") for at in range(0, 60, 2))
    assert [stored.seq for stored in store.messages("c")] == list(range(1, 61))
    assert store.check_chain("c") == store.check_index() == store.check_file() == []


def test_the_same_list_handed_over_by_several_at_once_is_stored_once(schemas: Schemas) -> None:
    listed = said(*(f"word {n}" for n in range(20)))
    stores = [schemas.open("here") for _ in range(4)]
    stores[0].ingest("c", listed[:5])
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda each: each.ingest("c", listed), stores))
    assert texts(stores[0]) == [each["content"] for each in listed]
    assert len(stores[0].branches("c")) == 1


def test_of_several_who_append_behind_one_message_one_does(schemas: Schemas) -> None:
    stores = [schemas.open("here") for _ in range(4)]
    (tip,) = stores[0].append("c", said("question"))

    def answer(store: PostgresStore) -> bool:
        try:
            store.append("c", said("answer", role="assistant"), behind=tip)
        except StaleTipError:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(answer, stores)) == 1
    assert texts(stores[0]) == ["question", "answer"]


def _append(url: str, name: str) -> None:
    with PostgresStore(url) as store:
        store.append(name, said(f"from {name}"))


@pytest.mark.slow
def test_several_processes_make_the_tables_at_once(schemas: Schemas) -> None:
    url = schemas.url("fresh")
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_append, args=(url, f"c{n}")) for n in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    assert len(list(schemas.open("fresh").conversations())) == 4


def test_a_job_is_claimed_by_one_of_many(schemas: Schemas) -> None:
    stores = [schemas.open("here") for _ in range(4)]
    for n in range(12):
        stores[0].add_job(f"c{n}", "fold", "1", {"n": n})

    def work(store: PostgresStore) -> list[int]:
        done = []
        while job := store.claim_job("worker", seconds=60):
            done.append(job.payload["n"])
            store.finish_job(job)
        return done

    with ThreadPoolExecutor(4) as pool:
        assert sorted(n for done in pool.map(work, stores) for n in done) == list(range(12))


def test_a_lease_ends_by_the_clock_of_the_database(schemas: Schemas) -> None:
    one, other = schemas.open("here"), schemas.open("here")
    assert one.acquire("c", "one", seconds=60)
    assert not other.acquire("c", "other", seconds=60)
    with raw(one) as connection:
        row = connection.execute("SELECT expires - extract(epoch FROM clock_timestamp()) FROM leases").fetchone()
        assert row is not None
        assert 30 < row[0] < 61
        connection.execute("UPDATE leases SET expires = extract(epoch FROM clock_timestamp()) - 1")
    assert other.acquire("c", "other", seconds=60)


def test_a_conversation_that_another_holds_is_waited_for_within_a_limit(schemas: Schemas) -> None:
    store = schemas.open("here", busy_seconds=0.2)
    store.append("c", said("one"))
    with raw(store) as connection, connection.transaction():
        connection.execute("SELECT * FROM conversations FOR UPDATE")
        with pytest.raises(StoreBusyError, match="Nothing was changed"):
            store.append("c", said("two"))
        store.append("another", said("goes on"))
    store.append("c", said("two"))
    assert texts(store) == ["one", "two"]


def test_a_pool_without_a_free_connection_is_waited_for_within_a_limit(schemas: Schemas) -> None:
    store = schemas.open("here", busy_seconds=0.2, most_connections=1)
    store.append("c", said("one"))
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with store._db.read():
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        with pytest.raises(StoreBusyError):
            store.append("c", said("two"))
    finally:
        done.set()
        thread.join()
    store.append("c", said("two"))
    assert texts(store) == ["one", "two"]


# one transaction, whatever happens to the connection


def test_connections_that_the_server_ended_are_replaced(schemas: Schemas) -> None:
    name = uuid4().hex  # the database may serve others
    with PostgresStore(f"{schemas.url('here')}&application_name={name}") as store:
        store.append("c", said("one"))
        with psycopg.connect(server(), autocommit=True) as connection:
            query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s"
            assert connection.execute(query, (name,)).fetchall() == [(True,)]
        store.append("c", said("two"))
        assert texts(store) == ["one", "two"]


@pytest.mark.parametrize("limit", ["statement_timeout", "idle_in_transaction_session_timeout"])
def test_a_limit_of_the_database_is_told_and_changes_nothing(
    schemas: Schemas, store: PostgresStore, limit: str
) -> None:
    store.append("c", said("one"))
    url = f"{schemas.url('here')}&options=-c%20{limit}%3D100"
    with PostgresStore(url) as limited:
        assert texts(limited) == ["one"]
        with pytest.raises(StoreError, match="raise the limit"):
            _change_slowly(limited, "SELECT pg_sleep(5)" if limit == "statement_timeout" else "SELECT 1")
        limited.append("c", said("two"))
    assert texts(store) == ["one", "two"]
    assert [info.title for info in store.conversations()] == [""]


def test_a_row_that_another_process_wrote_meanwhile_is_told(store: PostgresStore) -> None:
    store.append("c", said("one"))
    with pytest.raises(StoreError, match="another process has written the same meanwhile"), store._db.write() as own:
        own.execute("INSERT INTO settings (key, value) VALUES ('schema', '1')")


def _change_slowly(store: PostgresStore, statement: str) -> None:
    with store._db.write() as connection:
        connection.execute("UPDATE conversations SET title = 'other'")
        connection.execute(statement)
        threading.Event().wait(0.5)
        connection.execute("SELECT 1")


def test_a_connection_lost_in_the_middle_changes_nothing(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.append("c", said("one"))

    def lost(connection: Any, *args: Any) -> list[int]:
        numbers = insert(connection, *args)
        (pid,) = connection.execute("SELECT pg_backend_pid()").fetchone()
        with raw(store) as other:
            other.execute("SELECT pg_terminate_backend(%s)", (pid,))
        connection.execute("SELECT 1")
        return numbers

    insert = writing.insert
    monkeypatch.setattr("leporello.store.relational.messages.insert", lost)
    with pytest.raises(StoreError):
        store.append("c", said("two"))
    monkeypatch.undo()
    assert texts(store) == ["one"]
    store.append("c", said("two"))
    assert texts(store) == ["one", "two"]


def test_a_child_process_opens_connections_of_its_own(store: PostgresStore) -> None:
    store.append("c", said("parent"))
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            store.append("c", said("child"))
            store.close()
            os.write(writing, b"done")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 4) == b"done"
    os.close(reading)
    os.close(writing)
    store.append("c", said("parent again"))
    assert texts(store) == ["parent", "child", "parent again"]


def test_a_query_that_was_not_read_to_its_end_does_not_end_another_one(schemas: Schemas) -> None:
    """What was raised keeps where it was raised, until somebody has logged it."""
    store = schemas.open(most_connections=1)
    store.append("c", said(*map(str, range(600))))
    kept: list[Iterator[Any]] = []
    for write in (store._db.read, store._db.write):
        with write() as connection:
            kept.append(connection.walk("SELECT id FROM messages"))
            next(kept[0])
        with write() as connection:
            rows = connection.walk("SELECT id FROM messages")
            next(rows)
            kept.clear()
            assert len(list(rows)) == 599
        with write() as connection:
            next(connection.walk("SELECT id FROM messages"))
        assert len(texts(store)) == 600


def test_nothing_outlives_a_transaction(store: PostgresStore) -> None:
    """Behind pgbouncer in transaction mode the next transaction may be another program's."""
    store.append("c", said("one " * 900, "two"))
    store.search("two words")
    store.rebuild_index()
    with store._db.plain() as connection:
        for statement in (
            "SELECT count(*) FROM pg_prepared_statements",
            "SELECT count(*) FROM pg_cursors",
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'",
            "SELECT count(*) FROM pg_settings WHERE source = 'session'",
            "SELECT count(*) FROM pg_listening_channels()",
        ):
            row = connection.execute(statement.encode()).fetchone()
            assert row == (0,), statement


# the schema


def test_a_schema_that_is_too_new_is_refused(schemas: Schemas) -> None:
    store = schemas.open("here")
    store.append("c", said("one"))
    with raw(store) as connection:
        connection.execute("UPDATE settings SET value = '99' WHERE key IN ('schema', 'serves')")
    with pytest.raises(StoreError, match=r"schema 99; this version of Leporello knows \d+"):
        schemas.open("here").append("c", said("two"))


def test_a_database_that_does_not_keep_its_text_in_utf_8_is_refused() -> None:
    name, parts = f"t_{uuid4().hex[:12]}", urlsplit(server())
    with psycopg.connect(server(), autocommit=True) as connection:
        made = "CREATE DATABASE {} ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
        connection.execute(sql.SQL(made).format(sql.Identifier(name)))
        try:
            store = open_store(urlunsplit(parts._replace(path=f"/{name}")))
            with pytest.raises(StoreError, match="does not keep its text in UTF-8"):
                store.append("c", said("汉字"))
            with pytest.raises(StoreError, match="does not keep its text in UTF-8"):
                store.schema_plan()
        finally:
            connection.execute(sql.SQL("DROP DATABASE {}").format(sql.Identifier(name)))


def test_tables_of_another_program_are_left_alone(schemas: Schemas) -> None:
    store = schemas.open("theirs")
    with psycopg.connect(server(), autocommit=True) as connection:
        theirs = sql.Identifier(store._db.address.schema)
        connection.execute(sql.SQL("CREATE SCHEMA {0}; CREATE TABLE {0}.messages (id integer)").format(theirs))
    with pytest.raises(StoreError, match="tables of another program"):
        store.append("c", said("one"))


def test_reading_alone_makes_no_tables(schemas: Schemas) -> None:
    with pytest.raises(StoreError, match="opened for reading only"):
        list(schemas.open("nothing", read_only=True).conversations())
    schemas.open("here").append("c", said("one"))
    reader = schemas.open("here", read_only=True)
    assert texts(reader) == ["one"]
    with pytest.raises(StoreError, match="for reading only"):
        reader.append("c", said("two"))


def test_the_conversation_leads_every_primary_key(store: PostgresStore) -> None:
    store.append("c", said("one"))
    with raw(store) as connection:
        rows = connection.execute(
            "SELECT c.relname, a.attname FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid"
            " JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]"
            " WHERE i.indisprimary AND c.relnamespace = %s::regnamespace",
            (store._db.address.schema,),
        ).fetchall()
    apart = {"known": "hash", "jobs": "id", "settings": "key", "conversations": "id"}
    assert {name: column for name, column in rows if column != "conversation"} == apart
    assert len(rows) > 18


def test_migrations_are_numbered_from_one() -> None:
    assert list(migrations.versions()) == list(range(1, len(migrations.versions()) + 1))


# secrets


SECRET = "hunter2-Zo/o:@%"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me:{quote(SECRET, safe='')}@127.0.0.1:1/db?connect_timeout=1",
        f"postgresql://me@127.0.0.1:1/db?password={quote(SECRET, safe='')}&connect_timeout=1",
        f"postgresql://me:{quote(SECRET, safe='')}@127.0.0.1:wrong/db",
        f"postgresql://me:{quote(SECRET, safe='')}@127.0.0.1/db?no_such_option=1",
    ],
)
def test_a_password_is_never_shown(url: str, caplog: pytest.LogCaptureFixture) -> None:
    store = open_store(url)
    with pytest.raises(StoreError) as caught:
        store.append("c", said("one"))
    chain: BaseException | None = caught.value
    shown = [store.url, repr(store), caplog.text]
    while chain is not None:
        shown.append(f"{chain} {chain!r}")
        chain = chain.__cause__
    assert all(SECRET not in text and quote(SECRET, safe="") not in text for text in shown), shown
    assert "me@127.0.0.1" in store.url


def test_the_address_goes_to_libpq_as_it_is_but_for_the_schema() -> None:
    address = parse("postgres://me:pw@a,b:5433/db?sslmode=verify-full&schema=mine&target_session_attrs=read-write")
    assert address.schema == "mine"
    assert address.conninfo == "postgresql://me:pw@a,b:5433/db?sslmode=verify-full&target_session_attrs=read-write"
    assert "pw" not in address.place
    assert address.shown("no pw here") == "no *** here"


# owners


def test_two_owners_never_see_each_other(store: PostgresStore) -> None:
    """Every method that takes an owner is asked for the other's things, and one without the condition is noticed."""
    ids = {}
    for owner in ("ann", "bob"):
        (ids[owner],) = store.append("c", said(f"secret of {owner}"), owner=owner)
        leaf = Node(
            level=0,
            text="x",
            tokens=1,
            source_tokens=1,
            made_by="extract",
            covers=(),
            first_seq=1,
            last_seq=1,
            messages=1,
            time_from=0.0,
            time_to=1.0,
        )
        (node,) = store.add_nodes("c", [leaf], owner=owner)
        assert store.node(node.id, owner="ann" if owner == "bob" else "bob") is None
    assert set(store.get(ids.values(), owner="ann")) == {ids["ann"]}
    assert [hit.id for hit in store.search("secret", owner="ann").hits] == [ids["ann"]]
    assert store.neighbours([ids["bob"]], before=3, after=3, owner="ann") == []
    assert [info.owner for info in store.conversations(owner="ann")] == ["ann"]
    found = store.candidates('"secret"', filter=SearchFilter(owner="bob"), limit=9, newest_first=True).found
    assert [each.id for each in found] == [ids["bob"]]
    with raw(store) as connection:  # the planted defect: a message that stands in the other's conversation
        connection.execute("UPDATE messages SET conversation = 1, seq = 2, id = 99 WHERE conversation = 2")
        connection.execute("UPDATE search SET conversation = 1, id = 99 WHERE conversation = 2")
    assert set(store.get(["m99"], owner="ann")) == {"m99"}


# checks, with a planted defect for each


DEFECTS = {
    "a dropped row": "DELETE FROM messages WHERE seq = 3",
    "the last row dropped": "DELETE FROM messages WHERE seq = 6",
    "a changed byte": "UPDATE messages SET body = set_byte(body, 30, 65) WHERE seq = 4",
    "two rows swapped": "UPDATE messages SET seq = 9 - seq WHERE seq IN (4, 5)",
    "a lost payload": "DELETE FROM payloads",
    "a changed payload": "UPDATE payloads SET data = set_byte(data, 9, 1)",
    "a miscounted payload": "UPDATE payloads SET uses = 2",
    "a message that is not in the index": "DELETE FROM search WHERE id = 3",
    "a stray entry in the index": "UPDATE search SET id = 999 WHERE id = 3",
    "another text in the index": "UPDATE search SET text = ' other ' WHERE id = 3",
    "a miscounted branch": "UPDATE branches SET messages = 2",
    "a branch that does not exist": "UPDATE messages SET branch = 7 WHERE seq = 4",
}


def problems(store: PostgresStore) -> list[Any]:
    return [*store.check_chain("c"), *store.check_index(), *store.check_index("c"), *store.check_file()]


@pytest.mark.parametrize("defect", DEFECTS)
def test_damage_is_found(store: PostgresStore, defect: str) -> None:
    store.append("c", said(*(f"word{n} and more words" for n in range(5)), "long " * 3000))
    assert problems(store) == []
    with raw(store) as connection:
        connection.execute("ALTER TABLE messages DROP CONSTRAINT messages_pkey; DROP INDEX messages_seq")
        connection.execute(DEFECTS[defect].encode())
    assert problems(store)


# what PostgreSQL cannot hold


def test_nul_is_kept_in_messages_and_refused_in_names(store: PostgresStore) -> None:
    message: Message = {"role": "user", "name": "a\0b", "content": "x\0y \ud800 " + "z\0" * 3000}
    store.append("c", [message])
    (stored,) = store.messages("c")
    assert stored.message == message
    for key, owner in (("a\0b", ""), ("a", "b\0c")):
        with pytest.raises(StoreError, match="NUL"):
            store.append(key, said("x"), owner=owner)
    with pytest.raises(StoreError, match="too long"):
        store.append("k" * 3000, said("x"))


def test_a_message_of_very_many_words_is_indexed_within_the_limits_of_a_tsvector(store: PostgresStore) -> None:
    words = [f"слово{n:07d}" for n in range(30_000)]
    store.append("c", said(" ".join(words), "short"))
    assert [hit.seq for hit in store.search(words[17]).hits] == [1]
    assert [hit.seq for hit in store.search("short").hits] == [2]
    assert store.check_index("c") == []


# one search


def corpus(count: int) -> list[Message]:
    """Return messages of every kind of text, many of which answer the same question."""
    chance = random.Random(7)
    kinds: list[Callable[[int], str]] = [
        lambda n: f"the deploy of service{n % 17} failed with code {n}",
        lambda n: f"src/app_{n % 9}/module.py raised ValueError in deploy_step",
        lambda n: f"ticket 3f2504e0-4f89-41d3-9a0c-{n:012x} about the deploy",
        lambda n: f"部署失败了 {n} 服务 deploy",
        lambda n: f"サーバーdeploy{n % 5}エラー",
        lambda n: f"deploy 🚀 done {n} 👍",
        lambda n: "deploy " * (n % 40 + 1) + f"again item-{n % 31}-beta",
        lambda n: f"we talked about the budget and the weather, deploy number {n}",
    ]
    return [
        {
            "role": "user" if n % 2 else "assistant",
            "content": chance.choice(kinds)(n),
            "timestamp": 1_700_000_000 + 60 * n,
        }
        for n in range(count)
    ]


QUESTIONS = (
    "deploy", "failed code", '"deploy of service3"', "src/app_3/module.py", "deploy_step", "item-7-beta",
    "3f2504e0-4f89-41d3-9a0c-0000000000ff", "部署失败", "エラー", "🚀", "deploy -weather", "nothing at all like this",
    "what did we say about the deploy of service5?", "why did the deploy fail with code 77?",
    "budget weather role:user",
    '"talked about the budget and the weather"', "服务 deploy", "which item was the deploy again about?",
)  # fmt: skip


@pytest.fixture(params=["one part", "many parts"])
def both(
    schemas: Schemas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[tuple[Store, Store]]:
    if request.param == "many parts":
        monkeypatch.setattr(candidates, "_SHORT", 100)
        for module in (candidates, expression):
            monkeypatch.setattr(module, "PART", 5)
    stores = open_store(tmp_path / "same.db"), schemas.open("same")
    messages = corpus(1_200)
    for each in stores:
        for start in range(0, len(messages), 300):
            each.append("c", messages[start : start + 300])
        each.append("d", messages[:40])
        each.append("e", messages[:40], owner="other")
    yield stores
    for each in stores:
        each.close()


@pytest.mark.slow
def test_the_same_questions_have_the_same_hits_in_the_same_order(both: tuple[Store, Store]) -> None:
    here, there = both
    for question in QUESTIONS:
        for options in ({}, {"conversation": "c"}, {"sort": "recency"}, {"limit": 50}):
            ours = here.search(question, **options)
            theirs = there.search(question, **options)
            assert [(hit.id, hit.score, hit.snippet) for hit in ours.hits] == [
                (hit.id, hit.score, hit.snippet) for hit in theirs.hits
            ], (question, options)
            assert ours.complete == theirs.complete
            if ours.cursor:
                again = [each.search(question, cursor=ours.cursor, **options) for each in both]
                assert [hit.id for hit in again[0].hits] == [hit.id for hit in again[1].hits]
    terms = sorted({term for message in corpus(50) for term in prepared_text(message).split()})
    assert here.term_counts(terms) == there.term_counts(terms)


@pytest.mark.slow
@pytest.mark.parametrize("both", ["many parts"], indirect=True)
def test_a_part_that_is_left_out_would_be_noticed(both: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "PART", 6)
    with pytest.raises(AssertionError):
        test_the_same_questions_have_the_same_hits_in_the_same_order(both)


@pytest.mark.slow
def test_another_score_would_be_noticed(both: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leporello.store.postgres.candidates._B", 0.0)
    with pytest.raises(AssertionError):
        test_the_same_questions_have_the_same_hits_in_the_same_order(both)


def quoted_phrases(stores: tuple[Store, Store]) -> None:
    """Require the same pages of both, whichever of them has made the cursor."""
    words = ["the", "of", "mind", "gap", "gaps", "gapless", "box"]
    chance = random.Random(5)
    said = [{"role": "user", "content": " ".join(chance.choices(words, k=chance.randrange(3, 12)))} for _ in range(600)]
    for each in stores:
        each.append("phrases", said)  # type: ignore[arg-type]
    for _ in range(60):
        phrase = f'"{" ".join(chance.choices(words, k=chance.randrange(1, 5)))}"'
        for sort in ("relevance", "recency"):
            cursor = None
            for page in range(9):
                found = [
                    each.search(phrase, conversation="phrases", limit=11, cursor=cursor, sort=sort) for each in stores
                ]
                hits, others = ([(hit.id, hit.score, hit.snippet) for hit in each.hits] for each in found)
                assert hits == others, (phrase, sort, page)
                assert found[0].complete == found[1].complete
                assert (found[0].cursor is None) == (found[1].cursor is None)
                cursor = found[page % 2].cursor
                if cursor is None:
                    break


@pytest.mark.slow
def test_quoted_phrases_have_the_same_pages(both: tuple[Store, Store]) -> None:
    quoted_phrases(both)


@pytest.mark.slow
@pytest.mark.parametrize("both", ["one part"], indirect=True)
@pytest.mark.parametrize("defect", ["what has the phrase is told when blocks are cut", "parts of words count"])
def test_planted_phrases_that_an_index_finds_in_its_own_way_are_noticed(
    both: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch, defect: str
) -> None:
    has_phrase = exactness if defect == "parts of words count" else lambda *_: True
    monkeypatch.setattr("leporello.store.search.hits.stands_in", has_phrase)
    with pytest.raises(AssertionError):
        quoted_phrases(both)


def test_the_parts_of_the_index_are_asked_in_few_turns_the_newest_first(store: PostgresStore) -> None:
    """Each turn reads what a word has in the whole index, and what was indexed since it was tidied up."""
    with raw(store) as connection:
        query = sql.SQL("SELECT array_agg(n ORDER BY n) FROM generate_series(0, 1220) n GROUP BY {0} ORDER BY {0}")
        turns = connection.execute(query.format(sql.SQL(candidates._AT_ONCE))).fetchall()
    assert [n for (turn,) in turns for n in turn] == list(range(1221))
    assert [turn for (turn,) in turns[:2]] == [[0], [1]]
    assert sum(turn[0] <= 1_000_000 >> expression.PART for (turn,) in turns) < 20
    assert len(turns) < 60  # at ten million


def test_a_search_is_narrowed_by_a_term_only_where_that_helps(store: PostgresStore) -> None:
    def terms(conversation: str) -> tuple[bool, bool]:
        """Tell whether all conversations, and a single one, are looked for by a term."""
        with store._db.read() as connection:
            scopes = [
                candidates._scope(connection, SearchFilter(conversation=each), parted=True)
                for each in (None, conversation)
            ]
        return bool(scopes[0] and scopes[0].term), bool(scopes[1] and scopes[1].term)

    store.append("large", said(*(f"deployment {n}" for n in range(1_400))))
    store.append("small", said("deployment"))
    assert terms("large") == (False, False)
    assert terms("small") == (False, True)
    store.append("theirs", said("deployment"), owner="other")
    assert terms("large") == (True, False)
    store.delete("theirs", owner="other")
    assert terms("large") == (True, False)  # its messages are found until it is purged
    store.purge()
    assert terms("large") == (False, False)


def test_a_phrase_is_looked_for_in_a_bounded_number_of_messages(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append("c", said("mind the gap", *["the gap, and mind the step"] * 20))
    found = store.search('"mind the gap"')
    assert (len(found.hits), found.complete) == (1, True)
    monkeypatch.setattr(candidates, "_JUDGED", 20)
    found = store.search('"mind the gap"')
    assert (len(found.hits), found.complete) == (0, False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"a b" AND "c"', (TermPhrase(("a", "b")), TermPhrase(("c",)))),
    ],
)
def test_expressions_are_read(text: str, expected: Any) -> None:
    found = parse_expression(text)
    assert getattr(found, "parts", found) == expected


def test_a_session_is_resumed_from_the_database(schemas: Schemas) -> None:
    from leporello import Session

    url = schemas.url("session")
    for n in range(2):
        with Session.open("chat", model="gpt-4o-mini", store=url) as session:
            session.add({"role": "user", "content": f"question {n}"})
            session.request()
            session.record({"role": "assistant", "content": f"answer {n}"})
    assert texts(schemas.open("session"), "chat") == ["question 0", "answer 0", "question 1", "answer 1"]
