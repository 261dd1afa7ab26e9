"""Keeps the connection alive while a streamed answer has not begun.

The conversation may be folded or sent twice, and with the engine's tools an answer is shown at its end only. Clients
give up on a stream that is silent for five minutes. After a while of silence the answer is begun with what its dialect
has for that: a comment, Anthropic's `ping`, or an event that nobody knows, as comments do not reset the timer of Codex.
The provider's answer follows in the same stream, and an error is sent as an event; before, it keeps its status.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from leporello.gateway.client_connection import ClientConnection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from leporello.gateway.client_connection import Headers
    from leporello.gateway.dialects import WireFormat
    from leporello.gateway.errors import Refused

SILENCE: Final = 45.0
"""Seconds without a byte after which something is sent: fewer than a proxy waits, after most errors."""

_STREAM: Final[list[tuple[bytes, bytes]]] = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]


class KeepAliveConnection(ClientConnection):
    """A connection that is kept alive until the answer begins."""

    def __init__(self, client: ClientConnection, dialect: WireFormat, *, silence: float = SILENCE) -> None:
        self._client = client
        self.headers: Headers = client.headers
        self._dialect = dialect
        self._silence = silence
        self._waiting: asyncio.Task[None] | None = None
        self.begun: bool = False
        """Whether the answer was begun before the provider began it."""

    @property
    def status(self) -> int:  # type: ignore[override]
        """The status of the answer once it has begun."""
        return self._client.status

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        """Keep it alive inside the block until the answer begins."""
        self._waiting = asyncio.ensure_future(self._keep_alive())
        try:
            yield
        finally:
            await self._stop()

    async def start(self, status: int, headers: Headers) -> None:
        """Begin the answer, unless it has begun."""
        await self._stop()
        if not self.begun:
            await self._client.start(status, headers)

    async def write(self, content: bytes) -> None:
        """Send the next piece."""
        await self._client.write(content)

    async def finish(self, content: bytes = b"") -> None:
        """Send the last piece."""
        await self._client.finish(content)

    async def answer(self, status: int, headers: Headers, content: bytes) -> None:
        """Send a whole answer; as an event when it is an error and the answer has begun."""
        await self._stop()
        if not self.begun:
            await self._client.answer(status, headers, content)
        elif status < 400:  # noqa: PLR2004 - no error
            await self._client.finish(content)
        else:
            await self._client.finish(self._dialect.failure(_error(content)))

    async def refuse(self, refused: Refused) -> None:
        """Send an error as an event, when the answer has begun."""
        await self._client.finish(self._dialect.failure(refused.body(self._dialect.name)["error"]))

    async def _keep_alive(self) -> None:
        await asyncio.sleep(self._silence)
        self.begun = True
        await self._client.start(200, _STREAM)
        while True:
            await self._client.write(self._dialect.keep_alive)
            await asyncio.sleep(self._silence)

    async def _stop(self) -> None:
        if self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            waiting.cancel()
            with suppress(asyncio.CancelledError):
                await waiting


def _error(content: bytes) -> dict[str, Any]:
    try:
        data = json.loads(content)
    except ValueError:
        data = None
    error = data.get("error") if isinstance(data, dict) else None
    return error if isinstance(error, dict) else {"message": content[:1000].decode("utf-8", "replace")}
