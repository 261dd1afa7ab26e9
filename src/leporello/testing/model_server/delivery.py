"""How an answer travels: at once, slowly, or not to its end."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from typing import TYPE_CHECKING, Any

from starlette.responses import Response
from uvicorn.protocols.http.h11_impl import H11Protocol

from leporello.testing.model_server.failures import Failure, Planned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from starlette.types import Receive, Scope, Send

_silent = logging.getLogger(f"{__name__}.connections")
"""Where the server complains of broken connections: they are what was ordered, not news."""
_silent.propagate = False
_silent.addHandler(logging.NullHandler())

_TICK_SECONDS = 0.02
_DRIP_SECONDS = 0.05


class ClosableProtocol(H11Protocol):
    """HTTP/1.1 whose connections a response can close, as a provider's do when it breaks."""

    def connection_made(self, transport: Any) -> None:
        """Hand the connection to the requests that come over it."""
        super().connection_made(transport)
        self.logger: logging.Logger = _silent
        self.app_state: dict[str, Any] = {**self.app_state, "close": transport.close}


class Delivery(Response):
    """Send chunks in the way that a planned failure prescribes; without one, one after the other.

    Before each of them up to `gap` seconds pass, which chance decides.
    """

    def __init__(
        self,
        chunks: Sequence[bytes],
        *,
        status: int = 200,
        media_type: str = "application/json",
        headers: dict[str, str] | None = None,
        planned: Planned | None = None,
        closing: Callable[[], bool] = lambda: False,
        gap: float = 0.0,
    ) -> None:
        super().__init__(status_code=status, headers=headers, media_type=media_type)
        self._chunks = chunks
        self._planned = planned
        self._closing = closing
        self._gap = gap
        del self.headers["content-length"]
        if media_type != "text/event-stream":
            self.headers["content-length"] = str(sum(map(len, chunks)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        failure = self._planned.failure if self._planned else None
        if failure is Failure.CLOSED_BEFORE_ANSWER:
            scope["state"]["close"]()
            return
        if failure is Failure.SLOW_START and self._planned:
            await self._pause(self._planned.seconds, receive)
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        if failure is Failure.CLOSED_IN_ANSWER:
            await self._send_half(send)
            scope["state"]["close"]()
            return
        if failure is Failure.DRIPPING and self._planned:
            await self._drip(self._planned.seconds, receive, send)
        else:
            for chunk in self._chunks:
                if self._gap:
                    await asyncio.sleep(random.uniform(0, self._gap))  # noqa: S311 - no secret
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_half(self, send: Send) -> None:
        whole = b"".join(self._chunks)
        await send({"type": "http.response.body", "body": whole[: len(whole) // 2], "more_body": True})

    async def _drip(self, seconds: float, receive: Receive, send: Send) -> None:
        """Send single bytes for this many seconds, then the rest."""
        whole = b"".join(self._chunks)
        sent = 0
        for _ in _moments(seconds, _DRIP_SECONDS):
            if sent >= len(whole) - 1 or self._closing():
                break
            await send({"type": "http.response.body", "body": whole[sent : sent + 1], "more_body": True})
            sent += 1
            await self._pause(_DRIP_SECONDS, receive)
        await send({"type": "http.response.body", "body": whole[sent:], "more_body": True})

    async def _pause(self, seconds: float, receive: Receive) -> None:
        """Wait, but no longer than the server runs and the client stays."""
        gone = asyncio.ensure_future(receive())
        for _ in _moments(seconds, _TICK_SECONDS):
            if self._closing() or gone.done():
                break
            await asyncio.wait([gone], timeout=_TICK_SECONDS)
        gone.cancel()


def _moments(seconds: float, tick: float) -> Iterator[int]:
    """Yield until the time is over, and at most as often as it holds ticks."""
    end = time.monotonic() + seconds
    for count in range(int(seconds / tick) + 1):
        if time.monotonic() >= end:
            return
        yield count
