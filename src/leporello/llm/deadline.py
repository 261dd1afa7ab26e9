"""A time limit for a whole call, whatever the other side does.

The limits of HTTP clients are limits between two bytes: a server that sends one byte a second is never late. Here the
call runs as a task on an event loop of its own, in a thread of its own, and is cancelled when its time is up: while it
connects, waits, or reads. Cancelling closes the connection, so nothing is left behind. The caller's thread waits only a
moment longer than the limit, for the one thing that cannot be cancelled, a name lookup that hangs.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_T = TypeVar("_T")
_GRACE_SECONDS = 0.5


def within(seconds: float, ask: Callable[[], Awaitable[_T]]) -> _T:
    """Return what `ask` returns, or raise what it raises, or TimeoutError after `seconds`."""
    if seconds <= 0:
        raise TimeoutError("no time is left for this call")
    outcome: Future[_T] = Future()
    threading.Thread(target=_work, args=(seconds, ask, outcome), name="leporello-model-call", daemon=True).start()
    return outcome.result(seconds + _GRACE_SECONDS)


def _work(seconds: float, ask: Callable[[], Awaitable[_T]], outcome: Future[_T]) -> None:
    try:
        outcome.set_result(asyncio.run(_bounded(seconds, ask)))
    except BaseException as error:  # noqa: BLE001 - carried over to the thread that waits
        outcome.set_exception(error)


async def _bounded(seconds: float, ask: Callable[[], Awaitable[_T]]) -> _T:
    async with asyncio.timeout(seconds):
        return await ask()
