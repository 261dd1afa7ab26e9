"""The thread of a conversation: an engine may hold something that belongs to one, as a database connection does."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Worker:
    """Makes calls one after the other in its own thread."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="leporello-session")

    def run(self, function: Callable[..., T], *args: Any, **options: Any) -> asyncio.Future[T]:
        """Call a function in the thread; a caller that is cancelled meanwhile does not stop it."""
        return asyncio.get_running_loop().run_in_executor(self._thread, partial(function, *args, **options))

    def submit(self, function: Callable[[], Any]) -> None:
        """Call a function in the thread when what is under way there is finished, and wait for nothing."""
        self._thread.submit(function)

    def stop(self) -> None:
        """Let the thread go when it has finished what was asked."""
        self._thread.shutdown(wait=False)
