"""A thread that owns a conversation: an engine may hold something that belongs to a thread."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from leporello.gateway.limits import in_thread, to_the_end

if TYPE_CHECKING:
    from collections.abc import Callable

    from leporello.gateway.limits import Lane

T = TypeVar("T")


class Worker:
    """Makes calls one after the other in its own thread; a lane says how many threads of a key compute at a time."""

    def __init__(self, lane: Lane | None = None) -> None:
        self._lane = lane
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="leporello-gateway")

    async def run(self, function: Callable[..., T], *args: Any, **options: Any) -> T:
        """Call a function in the thread; begun, it is carried to its end."""
        call = partial(function, *args, **options)
        if self._lane is not None:
            return await self._lane.run(self._thread, call)
        return await to_the_end(in_thread(self._thread, call))

    def submit(self, function: Callable[[], Any]) -> None:
        """Call a function in the thread when what is under way there is finished, and wait for nothing."""
        self._thread.submit(function)

    def stop(self) -> None:
        """Let the thread go when it has finished what was asked."""
        self._thread.shutdown(wait=False)
