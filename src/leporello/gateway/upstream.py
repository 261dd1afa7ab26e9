"""The providers behind the gateway: raw HTTP to an address that only the configuration decides."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import httpx2

from leporello.caching.providers import route_of
from leporello.config.keys import VARIABLES
from leporello.gateway.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leporello.config.model import Gateway

CONNECT_SECONDS: Final = 20.0
IDLE_SECONDS: Final = 3.0
"""How long a connection is kept for the next request: shorter than servers keep theirs."""

ANTHROPIC_VERSION: Final = "2023-06-01"

_PASSED_ON: Final = frozenset({"accept", "content-type", "http-referer", "idempotency-key", "openai-beta", "x-title"})
"""Headers of a client that concern the provider; none of them names a person or carries a key."""

_KEPT_BACK: Final = frozenset(
    {
        "connection",
        "content-encoding",
        "content-length",
        "date",
        "keep-alive",
        "openai-organization",
        "openai-project",
        "proxy-authenticate",
        "server",
        "set-cookie",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "www-authenticate",
    }
)
"""Headers of a provider that concern this connection, or the account behind it, and not the client."""


class Upstream:
    """One provider: where it is, and the key for it."""

    def __init__(self, name: str, base_url: str, api_key_env: str | None, client: httpx2.AsyncClient) -> None:
        self.name = name
        self.base_url = base_url.rstrip("/")
        self._variable = api_key_env
        self._client = client

    async def send(
        self, path: str, content: bytes | None, headers: Mapping[str, str], query: str = "", method: str = "POST"
    ) -> httpx2.Response:
        """Send a request and return the answer as soon as it begins; its body is still to be read."""
        address = f"{self.base_url}{path}{'?' + query if query else ''}"
        own = {**self._credentials(headers), "accept-encoding": "identity"}
        sent = passed_on(headers) | {name.encode(): value.encode("latin-1") for name, value in own.items()}
        request = self._client.build_request(method, address, content=content, headers=sent)
        try:
            return await self._client.send(request, stream=True)
        except httpx2.TimeoutException as error:
            raise Refused(504, "the provider did not answer in time.", retry_after=5) from error
        except httpx2.HTTPError as error:
            raise Refused(502, "the provider cannot be reached.", retry_after=5) from error

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
    found = {name: Upstream(name, one.base_url, one.api_key_env, client) for name, one in named.items()}
    return found, client


def passed_on(headers: Mapping[str, str]) -> dict[bytes, bytes]:
    """Return the headers of a client that go to the provider, byte for byte; one that came twice as one list."""
    found: dict[bytes, list[bytes]] = {}
    for name, value in headers.items():
        if name in _PASSED_ON or (name.startswith("anthropic-") and name != "anthropic-version"):
            found.setdefault(name.encode("latin-1"), []).append(value.encode("latin-1"))
    return {name: b", ".join(values) for name, values in found.items()}


def passed_back(response: httpx2.Response) -> list[tuple[bytes, bytes]]:
    """Return the headers of a provider's answer that go to the client."""
    raw = ((name.lower(), value) for name, value in response.headers.raw)
    return [(name, value) for name, value in raw if name.decode("latin-1") not in _KEPT_BACK]
