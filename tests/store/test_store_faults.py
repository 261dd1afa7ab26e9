"""Real processes, real files: kills, races, full and read-only disks, files that are something else."""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
import sqlite3
import stat
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from leporello.errors import StoreBusyError, StoreError
from leporello.store import JournalRow, StoredWindow, WindowItem, open_store
from leporello.store.sqlite import SQLiteStore
from leporello.store.sqlite.connection import _empty_image
from leporello.store.sqlite.migrations import migrate

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from pathlib import Path

    from leporello.messages import Message

KILLS = 200 if os.environ.get("LEPORELLO_SOAK") else 20
WORKERS = multiprocessing.get_context("forkserver")
WORKERS.set_forkserver_preload(["leporello.store"])


def said(text: str) -> Message:
    return {"role": "user", "content": f"{text} " + "padding " * (sum(map(ord, text)) % 7 * 90)}


def started(target: Any, *arguments: Any) -> tuple[Any, Connection]:
    ours, theirs = WORKERS.Pipe()
    process = WORKERS.Process(target=target, args=(theirs, *arguments), daemon=True)
    process.start()
    theirs.close()
    return process, ours


def write_until_killed(pipe: Connection, path: str, seed: int) -> None:
    """Write turns of every kind and say after each that it was written."""
    store = open_store(path)
    done = len(list(store.messages("c")))
    dice = random.Random(seed)
    handed = [m.message for m in store.messages("c")]
    while True:
        new = [said(f"message {done + n}") for n in range(dice.randint(1, 5))]
        handed += new
        if dice.random() < 0.5:
            store.append("c", new)
        else:
            store.ingest("c", handed)
        window = store.window("c")
        items: tuple[WindowItem, ...] = ({"t": f"after {done}", "role": "user"},)
        store.save_window(
            "c", StoredWindow(version=window.version, items=items), JournalRow(reason="fold", keep=0, added=())
        )
        done += len(new)
        pipe.send(done)


def assert_whole(path: Path, acknowledged: int) -> int:
    """Check that all acknowledged messages are there, at most one write more, and that every check is clean."""
    with SQLiteStore(path) as store:
        texts = [m.message["content"].split(" padding")[0].strip() for m in store.messages("c")]
        assert texts == [f"message {n}" for n in range(len(texts))]
        assert acknowledged <= len(texts) <= acknowledged + 5
        assert store.check_chain("c") == []
        assert store.check_index() == []
        assert store.check_index("c") == []
        assert store.check_file() == []
        window, journal = store.window("c"), store.journal("c")
        assert window.version == len(journal)
        assert window.items == (journal[-1].added if journal else ())
        return len(texts)


@pytest.mark.slow
def test_a_kill_at_any_moment_leaves_the_state_before_or_after_a_write(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    count = 0
    for seed in range(KILLS):
        process, pipe = started(write_until_killed, str(path), seed)
        for _ in range(random.Random(seed).randint(1, 12)):
            count = pipe.recv()
        process.kill()
        process.join()
        while pipe.poll():
            try:
                count = pipe.recv()
            except EOFError:
                break
        count = assert_whole(path, count)


def test_the_check_after_a_kill_catches_a_lost_row(tmp_path: Path) -> None:
    """Planted defect: a row that is gone without a trace."""
    path = tmp_path / "s.db"
    with SQLiteStore(path) as store:
        store.append("c", [said(f"message {n}") for n in range(9)])
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM messages WHERE seq = 9")
    with pytest.raises(AssertionError):
        assert_whole(path, 8)


def open_fresh(pipe: Connection, path: str, name: str) -> None:
    pipe.recv()
    open_store(path).append(name, [said(f"from {name}")])
    pipe.send("done")


@pytest.mark.slow
def test_eight_processes_may_open_a_fresh_file_at_the_same_moment(tmp_path: Path) -> None:
    path = tmp_path / "home" / "s.db"
    workers = [started(open_fresh, str(path), f"c{n}") for n in range(8)]
    for _, pipe in workers:
        pipe.send("go")
    assert [pipe.recv() for _, pipe in workers] == ["done"] * 8
    for process, _ in workers:
        process.join()
    with SQLiteStore(path) as store:
        assert sorted(info.key for info in store.conversations()) == [f"c{n}" for n in range(8)]
        assert store.check_file() == []


def append_many(pipe: Connection, path: str, name: str, count: int) -> None:
    store = open_store(path)
    pipe.recv()
    ids = [store.append("c", [said(f"{name} {n}")])[0] for n in range(count)]
    pipe.send(ids)


@pytest.mark.slow
def test_two_processes_append_to_one_conversation_without_loss(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    workers = [started(append_many, str(path), name, 60) for name in ("a", "b")]
    for _, pipe in workers:
        pipe.send("go")
    ids = [id_ for _, pipe in workers for id_ in pipe.recv()]
    with SQLiteStore(path) as store:
        found = list(store.messages("c"))
        assert sorted(m.id for m in found) == sorted(set(ids))
        assert [m.seq for m in found] == list(range(1, 121))
        for name in ("a", "b"):
            said_by = [m.message["content"].split()[:2] for m in found if m.message["content"].startswith(name)]
            assert said_by == [[name, str(n)] for n in range(60)]
        assert store.check_chain("c") == []


def ingest_list(pipe: Connection, path: str, count: int) -> None:
    store = open_store(path)
    pipe.recv()
    for end in range(1, count + 1):
        store.ingest("c", [said(f"message {n}") for n in range(end)])
    pipe.send("done")


@pytest.mark.slow
def test_two_processes_that_hand_over_the_same_list_store_it_once(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    workers = [started(ingest_list, str(path), 40) for _ in range(2)]
    for _, pipe in workers:
        pipe.send("go")
    assert [pipe.recv() for _, pipe in workers] == ["done"] * 2
    assert assert_whole(path, 40) == 40


@pytest.mark.slow
@pytest.mark.parametrize("on_disk", [True, False])
def test_threads_share_a_store(tmp_path: Path, on_disk: bool) -> None:
    store = open_store(tmp_path / "s.db" if on_disk else ":memory:")

    def write(name: str) -> None:
        for n in range(20):
            store.append(name, [said(str(n))])

    threads = [threading.Thread(target=write, args=(f"c{n}",)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [info.messages for info in store.conversations()] == [20] * 6
    store.close()


def use_after_fork(pipe: Connection, path: str) -> None:
    """Fork, in a process that holds connections, and use the store on both sides."""
    for address in (path, ":memory:"):
        store = open_store(address)
        store.append("c", [said("parent, before")])
        child = os.fork()
        if child == 0:
            store.append("c", [said("child")])
            os._exit(len(list(store.messages("c"))))
        _, status = os.waitpid(child, 0)
        store.append("c", [said("parent, after")])
        pipe.send((os.waitstatus_to_exitcode(status), len(list(store.messages("c")))))


@pytest.mark.slow
def test_a_store_is_safe_after_a_fork(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    _, pipe = started(use_after_fork, str(path))
    assert pipe.recv() == (2, 3)
    assert pipe.recv() == (2, 2)  # in memory, each side has its own
    with SQLiteStore(path) as store:
        assert store.check_chain("c") == []
        assert store.check_file() == []


def test_a_lock_held_elsewhere_ends_in_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    store = SQLiteStore(path, busy_seconds=0.05)
    store.append("c", [said("before")])
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusyError, match=r"kept it locked for more than 0\.05 s\. Nothing was changed"):
            store.append("c", [said("meanwhile")])
        assert len(list(store.messages("c"))) == 1  # readers do not wait
        other.execute("COMMIT")
    store.append("c", [said("after")])
    assert len(list(store.messages("c"))) == 2
    store.close()


def fill_the_disk(pipe: Connection, path: Path) -> None:
    """Write until a limit on the size of files stops it, then lift the limit and go on."""
    store = open_store(path)
    written = len(store.append("c", [said(f"message {n}") for n in range(20)]))
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 200_000, resource.RLIM_INFINITY))
    problem = ""
    while not problem:
        try:
            written += len(store.append("c", [said(f"message {written}")]))
        except StoreError as error:
            problem = str(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    store.append("c", [said(f"message {written}")])
    pipe.send((problem, written + 1))


def test_a_full_disk_loses_nothing_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    _, pipe = started(fill_the_disk, path)
    problem, written = pipe.recv()
    assert str(path) in problem
    assert "Nothing was changed" in problem
    with SQLiteStore(path) as store:
        assert len(list(store.messages("c"))) == written
        assert store.check_chain("c") == []
        assert store.check_index() == []


def test_a_database_at_its_largest_size_says_that_the_disk_is_full(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "s.db")
    store.append("c", [said("before")])
    with store._db.plain() as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages + 1}")
    with pytest.raises(StoreError, match="the disk is full"):
        store.append("c", [{"role": "user", "content": os.urandom(90_000).hex()}])
    assert len(list(store.messages("c"))) == 1
    assert store.check_file() == []
    store.close()


def write_as_nobody(pipe: Connection, path: str) -> None:
    os.setgid(65534)
    os.setuid(65534)
    try:
        open_store(path).append("c", [said("x")])
    except StoreError as error:
        pipe.send(str(error))
    else:
        pipe.send("written")


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("exists", [True, False])
def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, exists: bool) -> None:
    path = tmp_path / "s.db"
    if exists:
        open_store(path).append("c", [said("before")])
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(0o755)
    if exists:
        path.chmod(0o444)
    _, pipe = started(write_as_nobody, str(path))
    problem = pipe.recv()
    assert str(path) in problem
    assert "ermissions" in problem


def test_a_store_opened_for_reading_only_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    open_store(path).append("c", [said("before")])
    store = open_store(f"sqlite:///{path}?mode=ro")
    assert len(list(store.messages("c"))) == 1
    with pytest.raises(StoreError, match="reading only"):
        store.append("c", [said("x")])


def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    path.write_text("this is a text, and no database at all; " * 200)
    store = open_store(path)
    with pytest.raises(StoreError, match="not a SQLite database"):
        store.append("c", [said("x")])
    with pytest.raises(StoreError, match="not a SQLite database"):
        store.info("c")
    assert path.read_text().startswith("this is a text")


def test_a_damaged_file_is_reported_not_repaired(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with SQLiteStore(path) as store:
        store.append("c", [said(f"message {n}") for n in range(200)])
    data = bytearray(path.read_bytes())
    data[8192:-8192] = b"\xff" * (len(data) - 16384)
    path.write_bytes(data)
    with SQLiteStore(path) as store, pytest.raises(StoreError, match="damaged"):
        list(store.messages("c"))
    assert path.read_bytes() == data


def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE bookmarks (address)")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="of another program"):
        open_store(path).append("c", [said("x")])
    assert path.read_bytes() == before


def test_a_file_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    open_store(path).append("c", [said("x")])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreError, match="Upgrade Leporello"):
        open_store(path).append("c", [said("y")])


def test_nothing_is_created_before_the_first_write(tmp_path: Path) -> None:
    path = tmp_path / "home" / "s.db"
    store = open_store(path)
    assert list(store.conversations()) == []
    assert store.claim_job("w", seconds=1) is None
    assert store.term_counts(["x"]) == (0, {"x": 0})
    assert not path.parent.exists()
    store.append("c", [said("x")])
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert modes == dict.fromkeys(modes, 0o600)
    assert "s.db" in modes
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    store.close()


def test_the_tables_that_a_missing_file_reads_as_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def counted(opened: Any, place: str, **options: Any) -> None:
        made.append(place)
        migrate(opened, place, **options)

    monkeypatch.setattr("leporello.store.sqlite.connection.migrate", counted)
    _empty_image.cache_clear()
    store = open_store(tmp_path / "s.db")
    assert [store.info("c") for _ in range(3)] == [None] * 3
    assert made == [":memory:"]
    store.append("c", [said("x")])
    assert store.info("c") is not None


def test_a_closed_store_in_memory_says_so_instead_of_forgetting() -> None:
    store = open_store(":memory:")
    store.append("c", [said("x")])
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.info("c")
