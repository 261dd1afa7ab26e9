"""The providers behind the gateway: HTTP requests to the addresses in the configuration."""

from __future__ import annotations

import os
from collections import ChainMap
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from cachetools import LRUCache
from yarl import URL

from leporello.caching.providers import route_of
from leporello.config.keys import VARIABLES
from leporello.gateway.errors import Refused
from leporello.gateway.headers import CHATGPT_ACCOUNT, credentials, to_provider
from leporello.gateway.reply import Reply, is_success
from leporello.gateway.scrub import Scrubber
from leporello.llm.tls import shared_context

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leporello.config.model import AnthropicUpstream, Gateway, OpenAIUpstream

CONNECT_SECONDS: Final = 20.0
IDLE_SECONDS: Final = 3.0
"""How long a connection is kept for the next request: shorter than servers keep theirs."""

_MOST_MODELS: Final = 128  # a client may name any model
LONGEST_HEADERS: Final = 64 * 1024
"""How many bytes a line of a provider's headers may have."""

ANTHROPIC_VERSION: Final = "2023-06-01"
CHATGPT: Final = "https://chatgpt.com/backend-api/codex"


class Upstream:
    """One provider: where it is, and the key for it."""

    def __init__(
        self, name: str, settings: OpenAIUpstream | AnthropicUpstream, gateway: Gateway, client: aiohttp.ClientSession
    ) -> None:
        self.name = name
        self.base_url: str = settings.base_url.rstrip("/")
        self._variable = settings.api_key_env
        self.with_client_key: bool = bool(settings.pass_client_key)
        """Whether clients pay with keys of their own."""
        self.uncounted: LRUCache[str, bool] = LRUCache(_MOST_MODELS)
        """Models whose server refuses to be asked for the usage of a stream."""
        self._keyed = bool(gateway.api_keys)
        self._client = client
        self._longest = gateway.limits.answer_bytes
        self._proxy = _proxy(self.base_url)

    async def send(
        self, path: str, content: bytes | None, headers: Mapping[str, str], query: str = "", method: str = "POST"
    ) -> Reply:
        """Send a request and return the answer as soon as it begins; its body is still to be read."""
        address = f"{self.address_for(headers)}{path}{'?' + query if query else ''}"
        sent = {**self._own_headers(headers), **to_provider(headers)}
        try:
            response = await self._client.request(
                method,
                URL(address, encoded=True),
                data=content,
                headers=sent,
                proxy=self._proxy,
                allow_redirects=False,
            )
        except TimeoutError as error:
            raise Refused(504, "the provider did not answer in time.", retry_after=5) from error
        except (aiohttp.ClientError, OSError) as error:
            raise Refused(502, "the provider cannot be reached.", retry_after=5) from error
        if is_success(response.status) or 400 <= response.status < 600:  # noqa: PLR2004 - the statuses of refusals
            return Reply(response, self._longest, with_client_key=self.with_client_key)
        response.close()
        raise Refused(502, f"the provider answered with the status {response.status}, which no answer has.")

    def address_for(self, headers: Mapping[str, str]) -> str:
        """Return the address for a client's request: OpenAI serves logins of ChatGPT at another one than keys."""
        is_login = self.with_client_key and self.name == "openai" and CHATGPT_ACCOUNT in headers
        return CHATGPT if is_login and self._is_public else self.base_url

    def scrubber(self) -> Scrubber:
        """Return the scrubber that removes this gateway's key and address from the provider's texts."""
        return Scrubber(self._key(), self.own_address or "")

    @property
    def own_address(self) -> str | None:
        """The address, None if it is the provider's public one."""
        return None if self._is_public else self.base_url

    @property
    def is_paid_by_clients(self) -> bool:
        """Tell whether a request of the gateway's own, to an address that is not the public one, would have no key."""
        return self.with_client_key and not self._is_public and not self._key()

    @property
    def is_set_up(self) -> bool:
        """Whether the configuration or the environment says anything about it."""
        return bool(self._key()) or not self._is_public

    def provider(self, model: str) -> str:
        """Return the provider of a model there, as in the tables of prices and windows; "" for an unknown server."""
        known = route_of(model, "anthropic" if self.name == "anthropic" else "", self.base_url)
        return "" if known == "custom" else known

    def environment(self) -> Mapping[str, str]:
        """Return the environment with the key for this provider in its usual variable."""
        key = self._key()
        return ChainMap({VARIABLES[self.name]: key} if key else {}, os.environ)

    def _key(self) -> str:
        return os.environ.get(self._variable, "").strip() if self._variable else ""

    def _own_headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return the headers to add to the client's own: the key, and the version of the API."""
        key, own = self._key(), {"accept-encoding": "identity"}
        if self.name == "anthropic":
            own["anthropic-version"] = ANTHROPIC_VERSION
        if self.with_client_key:
            return own | credentials(headers, keyed=self._keyed)
        if not key and self._is_public:
            raise Refused(502, f"the gateway has no key for its provider: its operator must set {self._variable}.")
        if key:
            own |= {"x-api-key": key} if self.name == "anthropic" else {"authorization": f"Bearer {key}"}
        return own

    @property
    def _is_public(self) -> bool:
        return urlsplit(self.base_url).hostname in {"api.openai.com", "api.anthropic.com"}


def connect(settings: Gateway) -> tuple[dict[str, Upstream], aiohttp.ClientSession]:
    """Return the providers of the configuration, and the client that talks to them; the caller closes it."""
    client = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_SECONDS, ssl=shared_context()),
        timeout=aiohttp.ClientTimeout(sock_connect=CONNECT_SECONDS, sock_read=settings.limits.seconds),
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=["content-type"],
        auto_decompress=False,
        max_line_size=LONGEST_HEADERS,
        max_field_size=LONGEST_HEADERS,
    )
    upstreams = settings.upstreams
    named: dict[str, Any] = {"openai": upstreams.openai, "anthropic": upstreams.anthropic}
    found = {name: Upstream(name, one, settings, client) for name, one in named.items()}
    return {**found, "responses": found["openai"]}, client


def _proxy(address: str) -> str | None:
    """Return the proxy that the environment names for an address."""
    parts = urlsplit(address)
    proxies = getproxies()
    return None if proxy_bypass(parts.hostname or "") else proxies.get(parts.scheme, proxies.get("all"))
