"""The limits of one key: requests at a time, bytes of their bodies, and running threads.

Python runs one thread at a time, so a key with many threads would slow the others down. The threads of each key are
limited to a few; its further calls wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import WeakValueDictionary

from leporello.gateway.errors import Refused
from leporello.messages.visible import one_line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from leporello.session.worker import Worker

T = TypeVar("T")
_log = logging.getLogger("leporello.gateway")

BODIES_HELD: Final = 4
"""How many bodies of the greatest length the running requests of one key may have together."""

THREADS_PER_KEY: Final = 2
"""How many threads of one key may run at a time: one can compute while the other writes to the disk."""


class ConcurrencyLimit:
    """Limits the running requests of each key and the bytes of their bodies; one more is refused, not queued."""

    def __init__(self, requests: int, body_bytes: int) -> None:
        self._most = requests
        self._most_bytes = body_bytes * BODIES_HELD
        self._running: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()

    @property
    def running(self) -> int:
        """How many requests run now."""
        return self._running.total()

    @contextmanager
    def slot(self, owner: str, status: int = HTTPStatus.TOO_MANY_REQUESTS) -> Iterator[Slot]:
        """Let one request of a key run; one too many is refused with this status."""
        if self._running[owner] >= self._most:
            told = f"{self._most} requests of this key are running; try again in a second."
            raise Refused(status, told, retry_after=1)
        self._running[owner] += 1
        slot = Slot(self._bytes, owner, self._most_bytes, status)
        try:
            yield slot
        finally:
            slot.release()
            self._running[owner] -= 1
            if not self._running[owner]:
                del self._running[owner]
                del self._bytes[owner]


class Slot:
    """One running request, and how many bytes it holds."""

    def __init__(self, held: Counter[str], owner: str, most: int, status: int) -> None:
        self._held = held
        self._owner = owner
        self._most = most
        self._status = status
        self._own = 0

    def hold(self, count: int) -> None:
        """Count more bytes; Refused when the key's requests hold too many together."""
        if self._held[self._owner] + count > self._most:
            raise Refused(
                self._status,
                f"the running requests of this key hold {self._most:,} bytes; try again when one is answered.",
                retry_after=1,
            )
        self._held[self._owner] += count
        self._own += count

    def release(self) -> None:
        """Give the bytes back."""
        self._held[self._owner] -= self._own
        self._own = 0


class ThreadLimit:
    """Limits the running threads of one key; use it from the event loop."""

    def __init__(self, width: int = THREADS_PER_KEY) -> None:
        self._slots = asyncio.Semaphore(width)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self, function: Callable[[], T], worker: Worker | None = None) -> T:
        """Run a function in a thread, that of a worker or any, when one is free; once begun, it is finished."""
        self._loop = loop = asyncio.get_running_loop()
        async with self._slots:
            return await shielded(worker.run(function) if worker else loop.run_in_executor(None, function))

    @contextmanager
    def idle(self) -> Iterator[None]:
        """Let another thread of the key run while this one waits for a model."""
        loop = self._loop
        assert loop is not None  # noqa: S101 - `run` has set it
        loop.call_soon_threadsafe(self._slots.release)
        try:
            yield
        finally:
            asyncio.run_coroutine_threadsafe(self._slots.acquire(), loop).result()


class ThreadLimits:
    """The thread limit of each key."""

    def __init__(self) -> None:
        self._thread_limits: WeakValueDictionary[str, ThreadLimit] = WeakValueDictionary()

    def of(self, owner: str) -> ThreadLimit:
        """Return the limit of a key."""
        threads = self._thread_limits.get(owner)
        if threads is None:
            threads = self._thread_limits[owner] = ThreadLimit()
        return threads


async def shielded(work: Awaitable[T]) -> T:
    """Wait for work to end even if the caller is cancelled, so that what was begun in the store is finished."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        task.add_done_callback(partial(_wake, ended))
        try:
            await ended
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return task.result()
    if not task.cancelled() and (failure := task.exception()) is not None:
        _log.info("work for a client that left failed: %s", one_line(str(failure)))
    raise cancelled


def _wake(waiting: asyncio.Future[None], _: asyncio.Future[Any]) -> None:
    if not waiting.done():
        waiting.set_result(None)
