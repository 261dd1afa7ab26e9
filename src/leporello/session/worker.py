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
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._thread.submit(_call, partial(function, *args, **options), loop, future)
        return future

    def submit(self, function: Callable[[], Any]) -> None:
        """Call a function in the thread when what is under way there is finished, and wait for nothing."""
        self._thread.submit(function)

    def stop(self) -> None:
        """Let the thread go when it has finished what was asked."""
        self._thread.shutdown(wait=False)


def _call(function: Callable[[], T], loop: asyncio.AbstractEventLoop, future: asyncio.Future[T]) -> None:
    """Call a function and tell its caller's event loop, with one future less than `run_in_executor` needs."""
    try:
        result = function()
    except BaseException as error:  # noqa: BLE001 - it is the caller's
        loop.call_soon_threadsafe(_fail, future, error)
        del future  # which holds the error, whose traceback holds this frame
    else:
        loop.call_soon_threadsafe(_succeed, future, result)


def _succeed(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
