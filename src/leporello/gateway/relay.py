"""Passes an answer on as it comes, and watches the client meanwhile."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from starlette.types import Receive, Send

    Headers = list[tuple[bytes, bytes]]


class Client:
    """The other end of a request: takes the answer in pieces, and may leave at any moment."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self.status = 0
        """The status of the answer once it has begun: no other can be given then."""

    async def start(self, status: int, headers: Headers) -> None:
        """Begin the answer."""
        self.status = status
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

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
        """Do the work as long as the client is there; it is cancelled when the client leaves. False if it left."""
        task = asyncio.ensure_future(work)
        leaving = asyncio.ensure_future(self._gone())
        try:
            await asyncio.wait({task, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
                return True
            return False
        finally:
            leaving.cancel()
            task.cancel()
            await asyncio.gather(task, leaving, return_exceptions=True)

    async def _gone(self) -> None:
        """Wait until the client is gone; its request was read to the end before."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
