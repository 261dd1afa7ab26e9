"""What is acknowledged is there: through restarts, lost connections, and the failover to a standby."""

from __future__ import annotations

import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from tests.fixtures.cluster import Cluster, url_of
from tests.fixtures.databases import SOAK

from leporello.errors import CommitUnknownError, StoreError
from leporello.store.postgres import PostgresStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leporello.messages import Message

pytestmark = pytest.mark.slow

WRITERS, BUSY_SECONDS, LONGEST_SECONDS = 4, 2.0, 60.0
MESSAGES = 1_500 if SOAK else 60


def said(text: str) -> list[Message]:
    return [{"role": "user", "content": text}]


class Writers:
    """Threads that each write a conversation of their own, and note what was acknowledged.

    After an error a writer tries again; where a commit was cut off, with the ids that its message may have.
    """

    def __init__(self, url: str, count: int = MESSAGES) -> None:
        self._url = url
        self._count = count
        self._noted = threading.Condition()
        self.acknowledged: dict[str, list[str]] = {f"writer {n}": [] for n in range(WRITERS)}
        self.errors: list[StoreError] = []
        self.longest = 0.0
        """The longest time in which one call answered, or failed."""

    def wait_for(self, share: float) -> None:
        """Wait until a share of all messages is acknowledged."""
        with self._noted:
            wanted = share * self._count * WRITERS
            assert self._noted.wait_for(lambda: sum(map(len, self.acknowledged.values())) >= wanted, LONGEST_SECONDS)

    def run(self) -> Any:
        pool = ThreadPoolExecutor(WRITERS)
        writing = [pool.submit(self._write, key) for key in self.acknowledged]
        pool.shutdown(wait=False)
        return writing

    def _write(self, key: str) -> None:
        with closing(PostgresStore(self._url, busy_seconds=BUSY_SECONDS)) as store:
            for n in range(self._count):
                self._say(store, key, f"{key} says {n}")

    def _say(self, store: PostgresStore, key: str, text: str) -> None:
        deadline = time.monotonic() + LONGEST_SECONDS
        attempted: tuple[str, ...] = ()
        while True:
            started = time.monotonic()
            try:
                store.append(key, said(text), attempted=attempted)
            except StoreError as error:
                self.errors.append(error)
                attempted = error.ids if isinstance(error, CommitUnknownError) else attempted
                if time.monotonic() > deadline:
                    raise
                threading.Event().wait(0.05)
            else:
                break
            finally:
                self.longest = max(self.longest, time.monotonic() - started)
        with self._noted:
            self.acknowledged[key].append(text)
            self._noted.notify_all()


def lost(url: str, writers: Writers) -> list[str]:
    """Return what was acknowledged and is not there exactly once and in order, and what a check finds wrong."""
    wrong: list[str] = []
    with closing(PostgresStore(url)) as store:
        for key, acknowledged in writers.acknowledged.items():
            found = [row.message["content"] for row in store.messages(key)]
            if found != acknowledged:
                wrong.append(f"{key}: {len(found)} found of {len(acknowledged)}")
            wrong += map(str, store.check_chain(key))
        wrong += map(str, [*store.check_index(), *store.check_file()])
    return wrong


@pytest.fixture
def primary(clusters: type[Cluster]) -> Cluster:
    return clusters(max_wal_senders="4", wal_level="replica", hot_standby="on").start()


@pytest.fixture
def standby(primary: Cluster, clusters: type[Cluster]) -> Cluster:
    """A synchronous standby: a commit is acknowledged when it is there too."""
    found = clusters(of=primary).start()
    primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
    primary.execute("SELECT pg_reload_conf()")
    primary.wait_for("SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'")
    return found


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT, signal.SIGKILL])
def test_a_restart_under_load_loses_nothing(primary: Cluster, how: signal.Signals) -> None:
    writers = Writers(primary.url)
    writing = writers.run()
    for share in (0.2, 0.5, 0.7) if SOAK else (0.4,):
        writers.wait_for(share)
        if how == signal.SIGKILL:
            primary.kill()
        else:
            primary.stop(how)
        primary.start()
    for each in writing:
        each.result(LONGEST_SECONDS)
    assert writers.errors, "no writer noticed the restart"
    assert writers.longest < BUSY_SECONDS + 10
    assert lost(primary.url, writers) == []


def test_connections_that_are_cut_again_and_again_lose_nothing(primary: Cluster) -> None:
    writers = Writers(primary.url)
    writing = writers.run()
    for share in range(1, 10):
        writers.wait_for(share / 10)
        primary.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'leporello'")
    for each in writing:
        each.result(LONGEST_SECONDS)
    assert lost(primary.url, writers) == []


def test_a_failover_to_the_synchronous_standby_loses_nothing_that_was_acknowledged(
    primary: Cluster, standby: Cluster
) -> None:
    url = url_of(primary, standby)
    writers = Writers(url)
    writing = writers.run()
    writers.wait_for(0.4)
    primary.kill()
    standby.promote()
    for each in writing:
        each.result(LONGEST_SECONDS)
    assert writers.errors, "no writer noticed the failover"
    assert writers.longest < BUSY_SECONDS + 10
    assert lost(url, writers) == []


def test_a_standby_that_is_not_waited_for_loses_some_of_it(primary: Cluster, standby: Cluster) -> None:
    """The planted defect: the same failover, with commits that are acknowledged before the standby has them."""
    primary.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
    primary.execute("SELECT pg_reload_conf()")
    with closing(PostgresStore(primary.url)) as store:
        store.append("writer 0", said("before"))
    standby.wait_for("SELECT count(*) > 0 FROM pg_namespace WHERE nspname = 'leporello'")
    standby.stop()
    writers = Writers(primary.url, 5)
    for each in writers.run():
        each.result(LONGEST_SECONDS)
    primary.kill()
    standby.start().promote()
    assert lost(standby.url, writers)


def test_a_commit_whose_wait_for_the_standby_was_cancelled_is_not_acknowledged(
    primary: Cluster, standby: Cluster
) -> None:
    with closing(PostgresStore(primary.url)) as store, ThreadPoolExecutor(1) as pool:
        store.append("c", said("on both"))
        standby.stop()
        waiting = pool.submit(store.append, "c", said("on the primary only"))
        primary.wait_for("SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
        primary.execute("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
        with pytest.raises(CommitUnknownError, match="on the primary only") as caught:
            waiting.result(LONGEST_SECONDS)
        again = pool.submit(store.append, "c", said("on the primary only"), attempted=caught.value.ids)
        primary.wait_for("SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
        standby.start()
        assert again.result(LONGEST_SECONDS) == caught.value.ids
        standby.promote()
        with closing(PostgresStore(standby.url)) as promoted:
            assert [row.message["content"] for row in promoted.messages("c")] == ["on both", "on the primary only"]


def test_a_read_only_replica_is_read_and_says_what_it_is(primary: Cluster, standby: Cluster) -> None:
    with (
        closing(PostgresStore(primary.url, busy_seconds=1)) as store,
        closing(PostgresStore(standby.url, busy_seconds=1)) as replica,
    ):
        store.append("c", said("one"))
        standby.wait_for("SELECT count(*) > 0 FROM pg_tables WHERE tablename = 'messages'")
        primary.execute("SET synchronous_commit = remote_apply; CREATE TABLE passed_by (id integer)")
        assert [row.message["content"] for row in replica.messages("c")] == ["one"]
        assert replica.search("one").hits
        with pytest.raises(StoreError, match="read-only replica"):
            replica.append("c", said("two"))
        primary.kill()
        with pytest.raises(StoreError):
            store.append("c", said("two"))
        standby.promote()
        replica.append("c", said("two"))
        assert [row.message["content"] for row in replica.messages("c")] == ["one", "two"]


FREE = 3


@pytest.fixture
def few(clusters: type[Cluster]) -> Cluster:
    """A server with few connections for users that are not its administrators."""
    return clusters(max_connections=str(3 + FREE), superuser_reserved_connections="3").start()


def test_a_server_without_a_free_connection_is_told_and_recovered_from(few: Cluster) -> None:
    with closing(PostgresStore(few.url, busy_seconds=1)) as store:
        store.append("c", said("one"))
        store.close()
        few.execute("CREATE ROLE ordinary LOGIN; GRANT ALL ON SCHEMA leporello TO ordinary")
        few.execute("GRANT ALL ON ALL TABLES IN SCHEMA leporello TO ordinary")
        few.execute("GRANT ALL ON ALL SEQUENCES IN SCHEMA leporello TO ordinary")
    ordinary = few.url.replace("postgres@", "ordinary@")
    with closing(PostgresStore(ordinary, busy_seconds=1)) as store:
        held = list(_held(ordinary))
        started = time.monotonic()
        with pytest.raises(StoreError, match=r"connection slots|no connection"):
            store.append("c", said("two"))
        assert time.monotonic() - started < 10
        for connection in held:
            connection.close()
        few.wait_for("SELECT count(*) < 3 FROM pg_stat_activity WHERE backend_type = 'client backend'")
        store.append("c", said("two"))
        assert [row.message["content"] for row in store.messages("c")] == ["one", "two"]


def _held(url: str) -> Iterator[psycopg.Connection[Any]]:
    """Take all connections of the server; one that was just closed is free a little later."""
    deadline = time.monotonic() + LONGEST_SECONDS
    taken = 0
    while taken < FREE:
        try:
            yield psycopg.connect(url)
            taken += 1
        except psycopg.OperationalError:
            assert time.monotonic() < deadline, f"{taken} of {FREE} connections could be taken"
            threading.Event().wait(0.02)
