"""The thread pool for background work: two threads for the whole process, started when they are first needed.

The work itself is kept as jobs in the store; the pool runs functions that claim them. So nothing is lost when the
process ends, and another process can continue.
"""

from __future__ import annotations

import os
import threading
from collections import Counter, deque
from typing import TYPE_CHECKING, Protocol, TypeAlias

from leporello.errors import StoreError
from leporello.redact import logger

if TYPE_CHECKING:
    from collections.abc import Callable

THREADS = 2
_log = logger()

Work: TypeAlias = "Callable[[], None]"


class Executor(Protocol):
    """Runs work later."""

    def submit(self, work: Work, whose: str) -> None:
        """Run this soon; it must not raise."""

    def drain(self, whose: str, seconds: float) -> bool:
        """Wait up to `seconds` until everything submitted under a name has run; tell whether it has."""


class ThreadPool:
    """Daemon threads that run what is submitted, in order; a child process after a fork starts with none."""

    def __init__(self, threads: int = THREADS) -> None:
        self._threads = threads
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def submit(self, work: Work, whose: str) -> None:
        """Run this soon."""
        with self._changed:
            self._waiting.append((work, whose))
            self._pending[whose] += 1
            if len(self._running) < self._threads:
                thread = threading.Thread(target=self._run, name="leporello-lcm", daemon=True)
                self._running.append(thread)
                thread.start()
            self._changed.notify_all()

    def drain(self, whose: str, seconds: float) -> bool:
        """Wait up to `seconds` until nothing of this name is left to run; tell whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._pending[whose], seconds)

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Work, str]] = deque()
        self._pending: Counter[str] = Counter()
        self._running: list[threading.Thread] = []

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    self._changed.wait()
                work, whose = self._waiting.popleft()
            try:
                work()
            except StoreError as error:  # it is closed, gone or in use by others; the row comes back
                _log.info("work in the background was put off: %s", error)
            except Exception:  # noqa: BLE001 - one failed piece of work must not end the thread; it is reported
                _log.exception("work in the background failed; its row in the store comes back")
            finally:
                with self._changed:
                    self._pending -= Counter({whose: 1})
                    self._changed.notify_all()


_POOL = ThreadPool()


def pool() -> Executor:
    """Return the pool of this process."""
    return _POOL
