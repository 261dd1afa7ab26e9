"""How much of the gateway one key may use at the same time: requests, bytes of their bodies, and threads that compute.

Python runs one thread at a time, so a key with many threads would take most of the machine from the others. Each key
has a lane of a few threads instead; what it asks beyond that waits, and the others do not.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakValueDictionary

from leporello.gateway.errors import Refused
from leporello.messages.visible import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from concurrent.futures import Executor
    from typing import Any

T = TypeVar("T")
_log = logging.getLogger("leporello.gateway")

BODIES_HELD: Final = 4
"""How many bodies of the greatest length the running requests of one key may have together."""

LANE_WIDTH: Final = 2
"""How many threads may compute for one key at the same time: one while another writes to the disk."""


class ConcurrencyLimit:
    """Counts what the running requests of each key hold; one more is refused, not queued."""

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
    def slot(self, owner: str) -> Iterator[Slot]:
        """Let one request of a key run."""
        if self._running[owner] >= self._most:
            raise Refused(429, f"{self._most} requests of this key are running; try again in a second.", retry_after=1)
        self._running[owner] += 1
        slot = Slot(self._bytes, owner, self._most_bytes)
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

    def __init__(self, held: Counter[str], owner: str, most: int) -> None:
        self._held = held
        self._owner = owner
        self._most = most
        self._own = 0

    def hold(self, count: int) -> None:
        """Count more bytes; Refused when the key's requests hold too many together."""
        if self._held[self._owner] + count > self._most:
            raise Refused(
                429,
                f"the running requests of this key hold {self._most:,} bytes; try again when one is answered.",
                retry_after=1,
            )
        self._held[self._owner] += count
        self._own += count

    def release(self) -> None:
        """Give the bytes back."""
        self._held[self._owner] -= self._own
        self._own = 0


class Lane:
    """The threads that compute for one key; use it from the event loop."""

    def __init__(self, width: int = LANE_WIDTH) -> None:
        self._slots = asyncio.Semaphore(width)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self, executor: Executor | None, function: Callable[[], T]) -> T:
        """Run a function in a thread when it is this key's turn; begun, it is carried to its end."""
        self._loop = asyncio.get_running_loop()
        async with self._slots:
            return await to_the_end(in_thread(executor, function))

    @contextmanager
    def idle(self) -> Iterator[None]:
        """Let another thread of the key compute while this one, which runs in the lane, waits for a model."""
        loop = self._loop
        assert loop is not None  # noqa: S101 - `run` has set it
        loop.call_soon_threadsafe(self._slots.release)
        try:
            yield
        finally:
            asyncio.run_coroutine_threadsafe(self._slots.acquire(), loop).result()


class Lanes:
    """A lane for each key that computes something."""

    def __init__(self) -> None:
        self._lanes: WeakValueDictionary[str, Lane] = WeakValueDictionary()

    def of(self, owner: str) -> Lane:
        """Return the lane of a key."""
        lane = self._lanes.get(owner)
        if lane is None:
            lane = self._lanes[owner] = Lane()
        return lane


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Carry work to its end even when its caller is cancelled: what was begun in the store is finished."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return task.result()
    if not task.cancelled() and (failure := task.exception()) is not None:
        _log.info("work for a client that left failed: %s", one_line(str(failure)))
    raise cancelled


async def in_thread(executor: Executor | None, function: Callable[[], T]) -> T:
    """Run a function in a thread."""
    return await asyncio.get_running_loop().run_in_executor(executor, function)
