"""The connection to a client: sends the answer in pieces, and notices when the client disconnects."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from starlette.types import Receive, Send

    Headers = list[tuple[bytes, bytes]]


class ClientConnection:
    """The connection to the client of one request."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self.headers: Headers = []
        """The headers that every answer has, whatever it is begun with."""
        self.status: int = 0
        """The status of the answer once it has begun, 0 before."""

    async def start(self, status: int, headers: Headers) -> None:
        """Begin the answer."""
        self.status = status
        await self._send({"type": "http.response.start", "status": status, "headers": [*headers, *self.headers]})

    async def write(self, content: bytes) -> None:
        """Send the next piece; waits as long as the client is slow."""
        if content:
            await self._send({"type": "http.response.body", "body": content, "more_body": True})

    async def finish(self, content: bytes = b"") -> None:
        """Send the last piece."""
        await self._send({"type": "http.response.body", "body": content, "more_body": False})

    async def answer(self, status: int, headers: Headers, content: bytes) -> None:
        """Send a whole answer."""
        length = (b"content-length", str(len(content)).encode())
        await self.start(status, [*headers, length])
        await self.finish(content)

    async def stays_for(self, work: Coroutine[Any, Any, None]) -> bool:
        """Run work until the client disconnects, which cancels it; False if it did."""
        return await run_until(work, self._gone())

    async def _gone(self) -> None:
        """Wait until the client disconnects; its request was read before."""
        while (await self._receive())["type"] != "http.disconnect":
            pass


async def run_until(work: Coroutine[Any, Any, None], end: Coroutine[Any, Any, None]) -> bool:
    """Run work until another coroutine ends, which cancels it; tells whether the work ended first."""
    running, ending = asyncio.current_task(), asyncio.ensure_future(end)
    assert running is not None  # noqa: S101 - a coroutine runs in a task
    is_over = is_cancelled = False

    def cancel(ended: asyncio.Future[None]) -> None:
        nonlocal is_cancelled
        if not is_over:
            ended.exception()  # it ended, however it did
            is_cancelled = running.cancel()

    ending.add_done_callback(cancel)
    try:
        await work
    except (asyncio.CancelledError, Exception):
        if not is_cancelled:
            raise
    finally:
        is_over = True
        ending.cancel()
    if is_cancelled and running.uncancel():  # by another one too
        raise asyncio.CancelledError
    return not is_cancelled
