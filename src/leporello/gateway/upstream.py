"""The providers behind the gateway: raw HTTP to an address that only the configuration decides."""

from __future__ import annotations

import os
import re
import zlib
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import httpx2

from leporello.caching.providers import route_of
from leporello.config.keys import VARIABLES
from leporello.gateway.errors import Refused
from leporello.gateway.scrub import Scrubber

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    from leporello.config.model import Gateway

CONNECT_SECONDS: Final = 20.0
IDLE_SECONDS: Final = 3.0
"""How long a connection is kept for the next request: shorter than servers keep theirs."""

ANTHROPIC_VERSION: Final = "2023-06-01"

_PASSED_ON: Final = frozenset({"accept", "content-type", "http-referer", "idempotency-key", "openai-beta", "x-title"})
"""Headers of a client that concern the provider; none of them names a person or carries a key."""

_PASSED_BACK: Final = re.compile(
    r"content-type|cache-control|retry-after(-ms)?|(x-|openai-|anthropic-)?request-id|x-should-retry"
    r"|(x-|anthropic-)ratelimit-[a-z0-9-]+|(openai|anthropic)-(processing-ms|version|model)"
)
"""Headers of a provider that concern the client; any other may speak of the account or of the machines behind."""

_PACKED: Final = frozenset({"gzip", "x-gzip", "deflate"})
_PIECE: Final = 64 * 1024


class Upstream:
    """One provider: where it is, and the key for it."""

    def __init__(
        self, name: str, base_url: str, api_key_env: str | None, client: httpx2.AsyncClient, longest: int
    ) -> None:
        self.name = name
        self.base_url = base_url.rstrip("/")
        self._variable = api_key_env
        self._client = client
        self._longest = longest

    async def send(
        self, path: str, content: bytes | None, headers: Mapping[str, str], query: str = "", method: str = "POST"
    ) -> Reply:
        """Send a request and return the answer as soon as it begins; its body is still to be read."""
        address = f"{self.base_url}{path}{'?' + query if query else ''}"
        own = {**self._credentials(headers), "accept-encoding": "identity"}
        sent = passed_on(headers) | {name.encode(): value.encode("latin-1") for name, value in own.items()}
        request = self._client.build_request(method, address, content=content, headers=sent)
        try:
            response = await self._client.send(request, stream=True)
        except httpx2.TimeoutException as error:
            raise Refused(504, "the provider did not answer in time.", retry_after=5) from error
        except httpx2.HTTPError as error:
            raise Refused(502, "the provider cannot be reached.", retry_after=5) from error
        if response.is_success or response.is_error:
            return Reply(response, self._longest)
        await response.aclose()
        raise Refused(502, f"the provider answered with the status {response.status_code}, which no answer has.")

    def scrubber(self) -> Scrubber:
        """Return what takes this gateway's key and address out of the provider's texts."""
        return Scrubber(self._key(), self.own_address or "")

    @property
    def own_address(self) -> str | None:
        """The address, unless it is the one that everybody knows the provider by."""
        return None if self._is_public else self.base_url

    def provider(self, model: str) -> str:
        """Return who serves a model there, as prices and windows know him; "" for a server of one's own."""
        known = route_of(model, "anthropic" if self.name == "anthropic" else "", self.base_url)
        return "" if known == "custom" else known

    def environment(self) -> dict[str, str]:
        """Return the environment in which the key for this provider is where everybody looks for it."""
        key = self._key()
        return {**os.environ, VARIABLES[self.name]: key} if key else dict(os.environ)

    def _key(self) -> str:
        return os.environ.get(self._variable, "").strip() if self._variable else ""

    def _credentials(self, headers: Mapping[str, str]) -> dict[str, str]:
        key = self._key()
        if not key and self._is_public:
            raise Refused(502, f"the gateway has no key for its provider: its operator must set {self._variable}.")
        if self.name == "anthropic":
            version = {"anthropic-version": headers.get("anthropic-version", ANTHROPIC_VERSION)}
            return {**version, "x-api-key": key} if key else version
        return {"authorization": f"Bearer {key}"} if key else {}

    @property
    def _is_public(self) -> bool:
        return urlsplit(self.base_url).hostname in {"api.openai.com", "api.anthropic.com"}


def connect(settings: Gateway) -> tuple[dict[str, Upstream], httpx2.AsyncClient]:
    """Return the providers of the configuration, and the client that talks to them; whoever asked for it closes it."""
    seconds = settings.limits.seconds
    client = httpx2.AsyncClient(
        timeout=httpx2.Timeout(seconds, connect=CONNECT_SECONDS, pool=None),
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=IDLE_SECONDS),
        follow_redirects=False,
    )
    named: dict[str, Any] = {"openai": settings.upstreams.openai, "anthropic": settings.upstreams.anthropic}
    longest = settings.limits.answer_bytes
    found = {name: Upstream(name, one.base_url, one.api_key_env, client, longest) for name, one in named.items()}
    return found, client


def passed_on(headers: Mapping[str, str]) -> dict[bytes, bytes]:
    """Return the headers of a client that go to the provider, byte for byte; one that came twice as one list."""
    found: dict[bytes, list[bytes]] = {}
    for name, value in headers.items():
        if name in _PASSED_ON or (name.startswith("anthropic-") and name != "anthropic-version"):
            found.setdefault(name.encode("latin-1"), []).append(value.encode("latin-1"))
    return {name: b", ".join(values) for name, values in found.items()}


class Reply:
    """A provider's answer: its body comes in pieces, and is unpacked only as far as it may be long."""

    def __init__(self, response: httpx2.Response, longest: int) -> None:
        self._response = response
        self._longest = longest
        self.status = response.status_code
        self.is_success = response.is_success
        self.headers: dict[str, str] = dict(response.headers)
        self.is_stream = self.headers.get("content-type", "").startswith("text/event-stream")

    def passed_back(self) -> list[tuple[bytes, bytes]]:
        """Return the headers that go to the client."""
        raw = ((name.lower(), value) for name, value in self._response.headers.raw)
        return [(name, value) for name, value in raw if _PASSED_BACK.fullmatch(name.decode("latin-1"))]

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes; Refused when it does not come to its end, is too long or cannot be unpacked."""
        length = 0
        unpack = _unpacker(self.headers.get("content-encoding", ""))
        try:
            async for chunk in self._response.aiter_raw():
                for piece in unpack(chunk):
                    length += len(piece)
                    if length > self._longest:
                        raise Refused(502, f"the provider's answer is longer than {self._longest:,} bytes.")
                    yield piece
        except httpx2.TimeoutException as error:
            raise Refused(504, "the provider's answer did not come in time.", retry_after=5) from error
        except httpx2.HTTPError as error:
            raise Refused(502, "the provider's answer broke off.", retry_after=1) from error
        except zlib.error as error:
            raise Refused(502, "the provider's answer cannot be unpacked.", retry_after=1) from error

    async def read(self) -> bytes:
        """Return the whole body."""
        return b"".join([piece async for piece in self.pieces()])

    async def aclose(self) -> None:
        """Let the connection go."""
        await self._response.aclose()


def _unpacker(encoding: str) -> Callable[[bytes], Iterator[bytes]]:
    """Return what unpacks a body piece by piece: a small one that unpacks to a huge one is noticed on the way."""
    names = [name.strip().lower() for name in encoding.split(",") if name.strip() not in ("", "identity")]
    if not names:
        return lambda chunk: iter([chunk])
    if len(names) > 1 or names[0] not in _PACKED:
        raise Refused(502, "the provider's answer is packed in a way that was not asked for.")
    inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)

    def unpacked(chunk: bytes) -> Iterator[bytes]:
        while chunk and not inflate.eof:
            piece = inflate.decompress(chunk, _PIECE)
            chunk = inflate.unconsumed_tail
            yield piece

    return unpacked
