"""How much of the gateway one key may use at the same time: requests, bytes of their bodies, and threads that compute.

Python runs one thread at a time, so a key with many threads would take most of the machine from the others. Each key
has a lane of a few threads instead; what it asks beyond that waits, and the others do not.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
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

HEAVY_SHARE: Final = 0.5
"""A key that computed for more than this part of the last seconds gives way to the others."""

GIVE_WAY_SECONDS: Final = 0.05
_REMEMBERED_SECONDS: Final = 10.0


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
    """The threads that compute for one key; use it from the event loop.

    A key that computes all the time has one thread instead, and each piece of its work is put off a little while others
    are at work: every thread that wants the interpreter makes all others slower.
    """

    def __init__(self, lanes: Lanes, width: int = LANE_WIDTH, clock: Callable[[], float] = time.monotonic) -> None:
        self._lanes = lanes
        self._clock = clock
        self._slots = asyncio.Semaphore(width)
        self._alone = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._load = 0.0
        self._counted = clock()

    @property
    def is_heavy(self) -> bool:
        """Whether the key has computed for most of the last seconds."""
        self._add(0.0)
        return self._load > HEAVY_SHARE * _REMEMBERED_SECONDS

    async def run(self, executor: Executor | None, function: Callable[[], T]) -> T:
        """Run a function in a thread when it is this key's turn; begun, it is carried to its end."""
        self._loop = asyncio.get_running_loop()
        async with self._slots:
            if not self.is_heavy:
                return await self._timed(executor, function)
            async with self._alone:
                if self._lanes.others_work(self):
                    await asyncio.sleep(GIVE_WAY_SECONDS)
                return await self._timed(executor, function)

    @contextmanager
    def idle(self) -> Iterator[None]:
        """Let another thread of the key compute while this one, which runs in the lane, waits for a model."""
        loop, started = self._loop, self._clock()
        assert loop is not None  # noqa: S101 - `run` has set it
        loop.call_soon_threadsafe(self._slots.release)
        try:
            yield
        finally:
            asyncio.run_coroutine_threadsafe(self._slots.acquire(), loop).result()
            loop.call_soon_threadsafe(self._add, started - self._clock())

    async def _timed(self, executor: Executor | None, function: Callable[[], T]) -> T:
        loop, started = asyncio.get_running_loop(), self._clock()
        self._lanes.working[self] += 1
        try:
            return await to_the_end(_in_thread(loop, executor, function))
        finally:
            self._lanes.working[self] -= 1
            self._lanes.working += Counter()  # drops those at zero
            self._add(self._clock() - started)

    def _add(self, seconds: float) -> None:
        """Count time that was computed; what lies further back counts less."""
        now = self._clock()
        self._load = self._load * math.exp((self._counted - now) / _REMEMBERED_SECONDS) + seconds
        self._counted = now


class Lanes:
    """A lane for each key that computes something."""

    def __init__(self) -> None:
        self._lanes: WeakValueDictionary[str, Lane] = WeakValueDictionary()
        self.working: Counter[Lane] = Counter()
        """How many threads compute in which lane now."""

    def of(self, owner: str) -> Lane:
        """Return the lane of a key."""
        lane = self._lanes.get(owner)
        if lane is None:
            lane = self._lanes[owner] = Lane(self)
        return lane

    def others_work(self, lane: Lane) -> bool:
        """Tell whether another key computes now."""
        return any(other is not lane for other in self.working)


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


async def _in_thread(loop: asyncio.AbstractEventLoop, executor: Executor | None, function: Callable[[], T]) -> T:
    return await loop.run_in_executor(executor, function)
