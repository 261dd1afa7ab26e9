"""What all requests share: the configuration, the store, the conversations, the providers."""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from leporello import llm
from leporello.errors import LeporelloError
from leporello.events import log_event
from leporello.gateway.agents import Agents
from leporello.gateway.client_session import ClientSession
from leporello.gateway.clients import Clients
from leporello.gateway.errors import Refused
from leporello.gateway.keys import Keys, from_this_machine
from leporello.gateway.lag import Lag
from leporello.gateway.limits import ConcurrencyLimit, Lanes
from leporello.gateway.metrics import Metrics
from leporello.gateway.recent import Recent
from leporello.gateway.upstream import connect
from leporello.messages.visible import one_line
from leporello.redact import logger
from leporello.session.factory import open_session

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from leporello.config import Config
    from leporello.events import Event
    from leporello.gateway.clients import Address, Client
    from leporello.gateway.limits import Lane
    from leporello.gateway.upstream import Upstream
    from leporello.llm import LLM, Completion
    from leporello.messages import Message
    from leporello.plugins import EngineSource
    from leporello.store import Store

_NAME: Final = re.compile(r"[A-Za-z0-9._:@-]{1,128}")
_LOOK_SECONDS: Final = 20.0
_THREADS: Final = 32  # for what belongs to no conversation; each key has a lane of a few
_PURGE_PAUSE: Final = 5.0
_PURGE_SECONDS: Final = 1.0
_MOST_MODELS: Final = 128  # a client may name any model
_log = logger("leporello.gateway")


class State:
    """The gateway without its endpoints."""

    def __init__(
        self,
        config: Config,
        store: Store,
        *,
        engine_options: Mapping[str, Any] | None = None,
        purges: bool = True,
    ) -> None:
        self.config = config
        self.settings = config.gateway
        self.store = store
        self.keys = Keys(self.settings.api_keys)
        self.concurrency = ConcurrencyLimit(self.settings.limits.concurrency, self.settings.limits.body_bytes)
        self.lanes = Lanes()
        self.metrics = Metrics()
        self.lag = Lag()
        self.clients = Clients(store, self._session, lanes=self.lanes)
        self._options = dict(engine_options or {})
        self._purges = purges
        self.agents = Agents(config, store, self._hear, self._options)
        self._windows: Recent[tuple[str, str], int] = Recent(_MOST_MODELS)
        self._sources: Recent[tuple[str, str, int], EngineSource] = Recent(_MOST_MODELS)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Serve while this is open; at the end every conversation is ended properly."""
        self.upstreams, client = connect(self.settings)
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_THREADS, "leporello-gateway"))
        works = [self._tidy(), self.lag.watch(), *([self._purge()] if self._purges else [])]
        tasks = [asyncio.ensure_future(work) for work in works]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.agents.close()
            await self.clients.close()
            await client.aclose()

    def owner(self, headers: Mapping[str, str]) -> str:
        """Return whose request this is; Refused when nobody may make it."""
        if not self.keys:
            if not from_this_machine(headers):
                raise Refused(403, "this gateway has no keys and serves this machine only, and no web page.")
            return ""
        owner = self.keys.owner(headers)
        if owner is None:
            raise Refused(401, "the key of the gateway is missing or wrong.", code="invalid_api_key")
        return owner

    def releaser(self, client: Client, model: str) -> Callable[[], None]:
        """Return what gives a conversation back, once, and remembers the model's window as the provider named it."""
        given_back = False

        def release() -> None:
            nonlocal given_back
            if not given_back:
                given_back = True
                self._windows.put((client.address.dialect, model), client.context_length)
                self.clients.release(client)

        return release

    def _session(self, address: Address, model: str, lane: Lane) -> ClientSession:
        """Open a conversation, in the thread that it lives in."""
        upstream = self.upstreams[address.dialect]
        window = self._windows.get((address.dialect, model)) or 0
        kind = (address.dialect, model, window)
        opened = open_session(
            address.conversation,
            branch=address.branch,
            parent=address.parent,
            model=model,
            provider=upstream.provider(model),
            base_url=upstream.own_address,
            context_length=window or None,
            engine=self._sources.get(kind),
            store=self.store,
            config=self.config,
            system=None,
            dialect=address.dialect,
            owner=address.owner,
            platform="gateway",
            on_event=self._hear,
            **(self._options or {"llm": self._summariser(upstream, model, lane)}),
        )
        if opened.source is not None:
            self._sources.put(kind, opened.source)
        return ClientSession(opened, with_tools=self.settings.tools and address.named)

    def _summariser(self, upstream: Upstream, model: str, lane: Lane) -> LLM | None:
        """Return who writes summaries: as configured, else the conversation's own provider, with the gateway's key."""
        route = {
            "default": model or None,
            "base_url": upstream.own_address,
            "provider": upstream.provider(model) or "auto",
        }
        main = self.config.model.model_copy(update=route)
        connected = llm.connect(self.config, environ=upstream.environment(), main=main)
        return connected and _Summariser(connected, lane)

    def _hear(self, event: Event) -> None:
        """Take note of what happens in a conversation, in whatever thread it does."""
        log_event(event)
        self.metrics.happened(event)

    async def _tidy(self) -> None:
        """End conversations that nobody uses."""
        idle = self.settings.expire_minutes * 60
        while True:
            await asyncio.sleep(min(_LOOK_SECONDS, idle / 4))
            try:
                await self.clients.expire(idle)
                await self.agents.expire(idle)
            except LeporelloError as error:
                _log.warning("idle conversations could not be ended: %s", one_line(str(error)))

    async def _purge(self) -> None:
        """Take what was deleted out of the store, in slices between which others write."""
        while True:
            await asyncio.sleep(_PURGE_PAUSE)
            try:
                await asyncio.to_thread(self.store.purge, seconds=_PURGE_SECONDS)
            except LeporelloError as error:
                _log.warning("what was deleted could not be purged: %s", one_line(str(error)))


class _Summariser:
    """A model that writes summaries; while it is waited for, others of the same key compute."""

    def __init__(self, inner: LLM, lane: Lane) -> None:
        self._inner = inner
        self._lane = lane
        self.model = inner.model
        self.provider = inner.provider
        self.context_length = inner.context_length

    def complete(self, messages: list[Message], *, max_tokens: int, timeout: float) -> Completion:
        """Ask once."""
        with self._lane.idle():
            return self._inner.complete(messages, max_tokens=max_tokens, timeout=timeout)


def checked_name(name: str) -> str:
    """Return the name that a client gave its conversation, or refuse it."""
    if not _NAME.fullmatch(name):
        raise Refused(400, "the name of a conversation has 1 to 128 letters, digits and . _ : @ -")
    return name
