"""The store behind PgBouncer in transaction mode: every transaction may get another connection of the server."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import psycopg
import pytest

from leporello.store import JournalRow, StoredWindow, open_store
from leporello.store.postgres import PostgresStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.cluster import Cluster

pytestmark = pytest.mark.slow

WRITERS, TURNS = 4, 12
_SETTINGS = """
[databases]
* = host={server} user=postgres
[pgbouncer]
listen_addr =
unix_socket_dir = {folder}
listen_port = 6432
auth_type = any
pool_mode = transaction
default_pool_size = 2
logfile = {folder}/log
"""


@pytest.fixture
def address(clusters: type[Cluster]) -> Iterator[str]:
    """Return an address of a server behind PgBouncer, which has two connections to it."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        pytest.fail("There is no PgBouncer for this test: apt-get install pgbouncer.")
    server = clusters().start()
    folder = server.folder / "bouncer"
    folder.mkdir()
    settings = folder / "pgbouncer.ini"
    settings.write_text(_SETTINGS.format(server=server.folder, folder=folder), encoding="utf-8")
    options: dict[str, Any] = {}
    if os.geteuid() == 0:
        user = pwd.getpwnam("nobody")
        os.chown(folder, user.pw_uid, user.pw_gid)
        options = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    process = subprocess.Popen([program, settings], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
    url = f"postgresql://postgres@/postgres?host={quote(str(folder))}&port=6432"
    deadline = time.monotonic() + 60
    while True:
        try:
            psycopg.connect(url, connect_timeout=5).close()
        except psycopg.OperationalError:
            assert process.poll() is None, (folder / "log").read_text(encoding="utf-8")
            assert time.monotonic() < deadline, "PgBouncer does not answer"
            threading.Event().wait(0.05)
        else:
            break
    yield url
    process.terminate()
    process.wait(30)


def work(address: str, number: int) -> list[str]:
    """Do of everything something in a conversation of its own; return what is wrong with it."""
    name = f"talk {number}"
    with closing(PostgresStore(address)) as store:
        for n in range(TURNS):
            ids = store.append(
                name,
                [
                    {"role": "user", "content": f"question {n} of {number} about ships"},
                    {"role": "assistant", "content": f"answer {n} " * 200},
                ],
                known={1: [f"{number} {n}".encode()]},
                request=JournalRow(reason="request", keep=0, added=()),
            )
            window = StoredWindow(version=store.window(name).version, items=({"m": ids[0]}, {"m": ids[1]}))
            store.save_window(name, window, JournalRow(reason="compaction", keep=0, added=()))
            assert store.acquire(name, "me", seconds=30)
            store.release(name, "me")
        store.append(f"many {number}", [{"role": "user", "content": f"row {n}"} for n in range(400)])
        found = [
            len(store.search("ships", conversation=name, limit=50).hits) == TURNS,
            len(store.search(f'"question 3 of {number}"').hits) == 1,
            len(list(store.messages(name))) == 2 * TURNS,
            len(store.search("row", conversation=f"many {number}", limit=100).hits) == 100,
        ]
        findings = [*store.check_chain(name), *store.check_index(name)]
    return [f"{name}: {found}"] * (not all(found)) + list(map(str, findings))


def left_behind(address: str) -> list[Any]:
    """Return what later users of the server's connections would find changed."""
    found = []
    set_by_pgbouncer = {"application_name", "client_encoding"}
    with (
        psycopg.connect(address, autocommit=True) as one,
        psycopg.connect(address, autocommit=True) as other,
        one.transaction(),
        other.transaction(),  # both connections of the server
    ):
        for each in (one, other):
            found += each.execute("SELECT name, setting FROM pg_settings WHERE source = 'session'").fetchall()
            found += each.execute("SELECT name FROM pg_prepared_statements").fetchall()
    return [row for row in found if row[0] not in set_by_pgbouncer]


def test_everything_works_and_nothing_is_left_on_a_connection(address: str) -> None:
    with ThreadPoolExecutor(WRITERS) as pool:
        wrong = [each for found in pool.map(lambda n: work(address, n), range(WRITERS)) for each in found]
    assert wrong == []
    assert left_behind(address) == []
    with closing(open_store(address)) as store:
        assert store.check_file() == []


def test_a_setting_that_outlives_its_transaction_is_noticed(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted defect: SET instead of SET LOCAL."""
    store = PostgresStore(address)
    monkeypatch.setattr(store._db, "_write", store._db._write.replace(b"SET LOCAL", b"SET"))
    store.append("talk", [{"role": "user", "content": "hello"}])
    store.close()
    assert left_behind(address)
