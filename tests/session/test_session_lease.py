"""The right to compact: one process at a time, for as long as it takes, and no longer than it lives."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from leporello.errors import ContextTooLongError, StoreBusyError
from leporello.messages import role_of
from leporello.session import Session
from leporello.session.folding import LEASE_SECONDS
from leporello.session.lease import Lease
from leporello.store import Branch
from leporello.store.sqlite import SQLiteStore
from leporello.testing.lifecycle import RecordingEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from leporello.messages import Message

pytestmark = pytest.mark.slow

HOLDER = """
import sys
from leporello.session.lease import Lease
from leporello.store import Branch, open_store

branch = Branch(open_store(sys.argv[1]), "talk", number=1)
lease = Lease(branch=branch, token="a", seconds=float(sys.argv[2]))
print(lease.acquire(), flush=True)
sys.stdin.read()
"""


class Slow(SQLiteStore):
    """A store in which time passes only when a lease is prolonged; the second time that fails."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, clock=lambda: self.now)
        self.now = 0.0
        self.prolonged = 0

    def acquire(self, *args: Any, **options: Any) -> bool:
        """Take the lease, after a while."""
        self.now, self.prolonged = self.now + 0.012, self.prolonged + 1
        if self.prolonged == 2:
            raise StoreBusyError("it is in use by others.", place="here")
        return super().acquire(*args, **options)


class NeverProlonged(Lease):
    """A lease as it must not be: acquired once, while time passes."""

    def _renew(self) -> bool:
        store = self.branch.store
        assert isinstance(store, Slow)
        if not store.prolonged:
            return super()._renew()
        store.now, store.prolonged = store.now + 0.012, store.prolonged + 1
        return True


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SQLiteStore]:
    with SQLiteStore(tmp_path / "s.db") as opened:
        yield opened


def lease(store: SQLiteStore, kind: type[Lease] = Lease, seconds: float = 60.0) -> Lease:
    return kind(branch=Branch(store, "talk", number=1), token="a", seconds=seconds)


def is_held(store: SQLiteStore) -> bool:
    """Tell whether the lease is held, without keeping it."""
    free = store.acquire("talk", "somebody else", seconds=1)
    store.release("talk", "somebody else")
    return not free


def eventually(happens: Callable[[], bool]) -> bool:
    """Wait for what another thread or process does."""
    until = time.monotonic() + 30
    while not happens() and time.monotonic() < until:
        time.sleep(0.01)
    return happens()


def check_prolonged(path: Path, kind: type[Lease]) -> None:
    with Slow(path) as store, SQLiteStore(path, clock=lambda: store.now) as others:
        held = lease(store, kind, seconds=0.03)
        assert held.acquire()
        try:
            assert eventually(lambda: store.prolonged > 8)
            assert is_held(others)
        finally:
            held.release()
        assert not is_held(others)


def test_it_is_prolonged_as_long_as_it_is_held(tmp_path: Path) -> None:
    check_prolonged(tmp_path / "s.db", Lease)


def test_one_that_is_not_prolonged_would_be_noticed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        check_prolonged(tmp_path / "s.db", NeverProlonged)


def test_that_of_another_process_is_left_alone(store: SQLiteStore) -> None:
    store.acquire("talk", "b", seconds=60)
    assert not lease(store).acquire()
    lease(store).release()
    assert is_held(store)


def test_a_process_that_waits_gets_it_when_it_is_given_back(store: SQLiteStore) -> None:
    store.acquire("talk", "b", seconds=60)
    giving = threading.Timer(0.1, store.release, ("talk", "b"))
    giving.start()
    held = lease(store)
    assert held.acquire(wait=30)
    held.release()
    giving.join()


def test_what_a_killed_process_held_is_free_soon(tmp_path: Path) -> None:
    path, soon = tmp_path / "s.db", 20.0
    with SQLiteStore(path) as store:
        command = [sys.executable, "-c", HOLDER, store.url, str(LEASE_SECONDS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        process.kill()
    with SQLiteStore(path) as now, SQLiteStore(path, clock=lambda: time.time() + soon) as then:
        assert is_held(now)
        assert not is_held(then)


def newest_turn(messages: list[Message]) -> list[Message]:
    return messages[max(at for at, message in enumerate(messages) if role_of(message) == "user") :]


class Folding(RecordingEngine):
    """An engine that keeps the newest turn."""

    def compress(self, messages: list[Message], *args: Any, **options: Any) -> Any:
        """Fold."""
        return newest_turn(messages)


@pytest.fixture
def session(store: SQLiteStore, answer: Callable[..., Any]) -> Iterator[Session]:
    with Session.open("talk", store=store, engine=Folding(), config={}, context_length=100_000, model="m") as opened:
        for number in range(6):
            opened.add({"role": "user", "content": f"question {number}"})
            opened.request()
            opened.record(answer(f"answer {number}"))
        opened.add({"role": "user", "content": "and now?"})
        opened.request()
        yield opened


def test_after_an_overflow_a_session_waits_for_who_is_compacting(session: Session, store: SQLiteStore) -> None:
    """It cannot go on without: the one who has the right gives it back, or was killed and is not there any more."""
    store.acquire("talk", "a killed process", seconds=0.3)
    assert session.recover(ContextTooLongError("too long"))


def test_else_it_goes_on_without(session: Session, store: SQLiteStore) -> None:
    store.acquire("talk", "another process", seconds=60)
    report = session.compress()
    assert (report.status, report.reason) == ("refused", "another process is compacting this conversation")


def test_two_sessions_have_two_names(store: SQLiteStore) -> None:
    engines = [RecordingEngine(), RecordingEngine()]
    for engine in engines:
        Session.open("talk", store=store, engine=engine, config={}, context_length=100_000).close()
    tokens = {
        call.options["lease_token"] for engine in engines for call in engine.calls if "lease_token" in call.options
    }
    assert len(tokens) == 2
