"""A provider's answer, whose body comes in pieces; its first events can be read before any is passed on."""

from __future__ import annotations

import json
import zlib
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import aiohttp

from leporello.gateway.decompression import Zlib, pieces
from leporello.gateway.errors import Refused
from leporello.gateway.headers import to_client
from leporello.gateway.sse import Events

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from leporello.gateway.dialects import WireFormat

_COMPRESSED: Final = frozenset({"gzip", "x-gzip", "deflate"})


def is_success(status: int) -> bool:
    """Tell whether a status is 2xx."""
    return HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES


class Reply:
    """A provider's answer: its body is decompressed and passed on in pieces, up to `longest` bytes."""

    def __init__(self, response: aiohttp.ClientResponse, longest: int, *, with_client_key: bool = False) -> None:
        self._response = response
        self._longest = longest
        self.with_client_key = with_client_key
        """Whether the client paid for it with a key of its own."""
        self.status: int = response.status
        self.is_success: bool = is_success(response.status)
        self.headers: dict[str, str] = {name.lower(): value for name, value in response.headers.items()}
        self.is_stream: bool = self.headers.get("content-type", "").startswith("text/event-stream")
        self._coming = self._decompressed()
        self._read: list[bytes] = []  # pieces that were read and not passed on yet

    def passed_back(self) -> list[tuple[bytes, bytes]]:
        """Return the headers that go to the client."""
        return to_client(self._response.raw_headers, own_account=self.with_client_key)

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes; Refused when it breaks off, is too long or cannot be decompressed."""
        while self._read:
            yield self._read.pop(0)
        async for piece in self._coming:
            yield piece

    async def read(self) -> bytes:
        """Return the whole body."""
        return b"".join([piece async for piece in self.pieces()])

    async def peek(self) -> bytes:
        """Return the whole body, which is still to be passed on."""
        self._read = [await self.read()]
        return self._read[0]

    async def error_inside(self, dialect: WireFormat) -> bytes | None:
        """Return the error that an answer with a good status begins with, as a body; None when there is none.

        A provider of the Responses API says 200 before it looks at the input: that it is too long is the first event
        with content. The events that are read here are passed on later, unless the input can be folded.
        """
        if not self.is_success or not dialect.fails_inside:
            return None
        error = dialect.refusal(await (self._first_event(dialect) if self.is_stream else self._whole()))
        return json.dumps(error).encode() if error is not None else None

    async def aclose(self) -> None:
        """Close the connection."""
        self._response.close()

    async def _first_event(self, dialect: WireFormat) -> Any:
        """Read up to the first event that says more than that an answer is about to come."""
        events = Events()
        async for piece in self._coming:
            self._read.append(piece)
            for event in events.feed(piece):
                if event.data is not None and not dialect.is_opening(event.data):
                    return event.data
        return None

    async def _whole(self) -> Any:
        try:
            return json.loads(await self.peek())
        except (ValueError, RecursionError):
            return None

    async def _decompressed(self) -> AsyncIterator[bytes]:
        length = 0
        decompress = decompressing(self.headers.get("content-encoding", ""))
        try:
            async for chunk in self._response.content.iter_any():
                for piece in decompress(chunk):
                    length += len(piece)
                    if length > self._longest:
                        raise Refused(502, f"the provider's answer is longer than {self._longest:,} bytes.")
                    yield piece
        except TimeoutError as error:
            raise Refused(504, "the provider's answer did not come in time.", retry_after=5) from error
        except aiohttp.ClientError as error:
            raise Refused(502, "the provider's answer broke off.", retry_after=1) from error
        except zlib.error as error:
            raise Refused(502, "the provider's answer cannot be unpacked.", retry_after=1) from error


def decompressing(encoding: str) -> Callable[[bytes], Iterable[bytes]]:
    """Return the function that decompresses the chunks of a body with this header `content-encoding`."""
    names = [name.strip().lower() for name in encoding.split(",") if name.strip() not in ("", "identity")]
    if not names:
        return lambda chunk: (chunk,)
    if len(names) > 1 or names[0] not in _COMPRESSED:
        raise Refused(502, "the provider's answer is packed in a way that was not asked for.")
    decompressor = Zlib(zlib.MAX_WBITS | 32)  # gzip or zlib, whichever it is
    return lambda chunk: pieces(chunk, decompressor)
