"""A pool of open sessions, each with a thread of its own, with limits on their number, memory and idle time."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from leporello.errors import LeporelloError
from leporello.messages.visible import one_line
from leporello.redact import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MOST_BYTES: Final = 64 * 1024 * 1024
"""How many bytes the sessions of a pool hold: a few of the longest windows, or many short ones."""

_log = logger("leporello.gateway")


class Held(Protocol):
    """An open session in the pool."""

    used: float
    """When it was used last."""

    @property
    def owner(self) -> str:
        """The owner of its conversation."""

    @property
    def weight(self) -> int:
        """About how many bytes it holds."""

    @property
    def busy(self) -> bool:
        """Whether a request is running in it."""

    async def close(self) -> None:
        """End the session."""


async def _closed(one: Held) -> None:
    """End a session; a failure is logged."""
    try:
        await one.close()
    except LeporelloError as error:
        _log.warning("a conversation could not be ended properly: %s", one_line(str(error)))
    except Exception:  # noqa: BLE001 - what an engine does at its end must not end the others
        _log.exception("a conversation could not be ended properly")


K = TypeVar("K")
HeldT = TypeVar("HeldT", bound=Held)


class Pool(Generic[K, HeldT]):
    """Open sessions by key; use it from the event loop."""

    def __init__(
        self, *, most_open: int, most_bytes: int = MOST_BYTES, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most_open = most_open
        self._most_bytes = most_bytes
        self._clock = clock
        self._held: dict[K, HeldT] = {}
        self._closing: dict[K, asyncio.Future[None]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[K]:
        return iter(list(self._held))

    def get(self, key: K) -> HeldT | None:
        """Return an open session, or None."""
        return self._held.get(key)

    def put(self, key: K, one: HeldT) -> None:
        """Add an open session."""
        one.used = self._clock()
        self._held[key] = one

    def remove(self, key: K, one: HeldT) -> None:
        """Remove a session without ending it."""
        if self._held.get(key) is one:
            del self._held[key]

    async def closed(self, key: K) -> None:
        """Wait until a session that is being ended has ended."""
        if key in self._closing:
            await asyncio.shield(self._closing[key])

    async def close(self, key: K) -> None:
        """Remove a session and end it; a failure is logged."""
        one = self._held.pop(key, None)
        if one is None:
            return
        closing = self._closing[key] = asyncio.ensure_future(_closed(one))
        closing.add_done_callback(lambda _: self._closing.pop(key, None))
        await asyncio.shield(closing)

    async def close_all(self) -> None:
        """End all sessions."""
        for key in self:
            await self.close(key)

    async def expire(self, idle: float) -> int:
        """End the sessions that were not used for this many seconds; returns how many."""
        ended = 0
        while (key := self._idle_since(self._clock() - idle)) is not None:  # looked for anew: meanwhile they are used
            await self.close(key)
            ended += 1
        await self.make_room(0)
        return ended

    async def make_room(self, more: int = 1) -> None:
        """Evict sessions until this many more fit: the least recently used ones of the owner that holds most."""
        while shares := self._shares_beyond(more):
            idle = [(key, one) for key, one in self._held.items() if not one.busy]
            if not idle:
                return
            largest = max((one.owner for _, one in idle), key=shares.__getitem__)
            oldest = min((item for item in idle if item[1].owner == largest), key=lambda item: item[1].used)
            await self.close(oldest[0])

    def _idle_since(self, moment: float) -> K | None:
        return next((key for key, one in self._held.items() if not one.busy and one.used <= moment), None)

    def _shares_beyond(self, more: int) -> Counter[str]:
        """Return the share of each owner in what exceeds its limit, sessions or bytes; empty if neither does."""
        sessions = self._held.values()
        if len(sessions) + more > self._most_open:
            return Counter(one.owner for one in sessions)
        shares: Counter[str] = Counter()
        if sum(one.weight for one in sessions) > self._most_bytes:
            for one in sessions:
                shares[one.owner] += one.weight
        return shares
