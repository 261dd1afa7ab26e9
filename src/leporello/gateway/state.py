"""The state that all requests share: configuration, store, open sessions, providers, limits, metrics."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from cachetools import LRUCache

from leporello import llm
from leporello.config.engines import BUILT_IN, LOSSLESS
from leporello.errors import LeporelloError
from leporello.events import log_event
from leporello.gateway.agents import Agents
from leporello.gateway.client_session import ClientSession
from leporello.gateway.client_sessions import ClientSessions
from leporello.gateway.errors import Refused
from leporello.gateway.keys import Keys, from_this_machine
from leporello.gateway.lag import Lag
from leporello.gateway.limits import ConcurrencyLimit, ThreadLimits
from leporello.gateway.metrics import Metrics
from leporello.gateway.upstream import connect
from leporello.llm.sdk import SdkClient, wait_for_packages
from leporello.messages.visible import one_line
from leporello.prices import price_of
from leporello.redact import logger
from leporello.session.factory import open_session
from leporello.tokens import DEFAULT_WINDOW

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from leporello.config import Config
    from leporello.config.model import Gateway
    from leporello.events import Event
    from leporello.gateway.client_sessions import BranchAddress, HeldSession
    from leporello.gateway.limits import ThreadLimit
    from leporello.gateway.upstream import Upstream
    from leporello.llm import LLM, Completion
    from leporello.messages import Message
    from leporello.plugins import EngineSource
    from leporello.session.factory import OpenedSession
    from leporello.store import Store

_LOOK_SECONDS: Final = 20.0
_THREADS: Final = 32  # for what belongs to no conversation; those of a key are limited to a few
_PURGE_PAUSE: Final = 5.0
_PURGE_SECONDS: Final = 1.0
_MOST_MODELS: Final = 128  # a client may name any model
_BY_THE_MAIN_MODEL: Final = frozenset({"auto", "main"})
_log = logger("leporello.gateway")


class State:
    """The shared state, and the tasks that run beside requests."""

    def __init__(
        self,
        config: Config,
        store: Store,
        *,
        engine_options: Mapping[str, Any] | None = None,
        purges: bool = True,
    ) -> None:
        self.config = config
        self.settings: Gateway = config.gateway
        self.store = store
        self.keys: Keys = Keys(self.settings.api_keys)
        limits = self.settings.limits
        self.concurrency: ConcurrencyLimit = ConcurrencyLimit(limits.concurrency, limits.body_bytes)
        self.thread_limits: ThreadLimits = ThreadLimits()
        self.metrics: Metrics = Metrics()
        self.lag: Lag = Lag()
        self.clients: ClientSessions = ClientSessions(store, self._session, thread_limits=self.thread_limits)
        self._options = dict(engine_options or {})
        self._purges = purges
        self.agents: Agents = Agents(config, store, self._on_event, self._options)
        self._windows: LRUCache[tuple[str, str], int] = LRUCache(_MOST_MODELS)
        self._sources: LRUCache[tuple[str, str, int], EngineSource] = LRUCache(_MOST_MODELS)
        self._caches = threading.Lock()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Connect to the providers and run the background tasks inside the block; then end all sessions."""
        self.upstreams: dict[str, Upstream]
        self.upstreams, client = connect(self.settings)
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_THREADS, "leporello-gateway"))
        pause = min(_LOOK_SECONDS, self.settings.expire_minutes * 60 / 4)
        works = [self.lag.watch(), _repeatedly(self._expire_idle, pause, "idle conversations could not be ended")]
        if self._purges:
            works.append(_repeatedly(self._purge, _PURGE_PAUSE, "what was deleted could not be purged"))
        tasks = [asyncio.ensure_future(work) for work in works]
        await asyncio.to_thread(self._warm_up)
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.agents.pool.close_all()
            await self.clients.pool.close_all()
            await client.close()

    def owner(self, headers: Mapping[str, str]) -> str:
        """Return the owner of a request; Refused when it has no valid key."""
        if not self.keys:
            if not from_this_machine(headers, self.settings.cors_origins):
                raise Refused(403, "this gateway has no keys and serves this machine only, and no web page.")
            return ""
        owner = self.keys.owner(headers)
        if owner is None:
            raise Refused(401, "the key of the gateway is missing or wrong.", code="invalid_api_key")
        return owner

    async def forget(self, owner: str, conversation: str) -> None:
        """Let go of a conversation that is about to be deleted."""
        await self.agents.end(owner, conversation)
        await self.clients.forget(owner, conversation)

    def releaser(self, held: HeldSession, model: str) -> Callable[[], None]:
        """Return a function that releases a session, once, and keeps the context length that the provider named."""
        given_back = False

        def release() -> None:
            nonlocal given_back
            if not given_back:
                given_back = True
                with self._caches:
                    self._windows[held.address.dialect, model] = held.context_length
                self.clients.release(held)

        return release

    def _session(self, address: BranchAddress, model: str, threads: ThreadLimit) -> ClientSession:
        """Open a session; called in the session's own thread."""
        upstream = self.upstreams[address.dialect]
        with self._caches:
            window = self._windows.get((address.dialect, model)) or 0
            kind = (address.dialect, model, window)
            source = self._sources.get(kind)
        opened = open_session(
            address.conversation,
            branch=address.branch,
            parent=address.parent,
            model=model,
            provider=upstream.provider(model),
            base_url=upstream.own_address,
            context_length=window or None,
            engine=source,
            store=self.store,
            config=self.config,
            system=None,
            dialect=address.dialect,
            owner=address.owner,
            platform="gateway",
            on_event=self._on_event,
            **(self._options or {"llm": self._summariser(upstream, model, threads)}),
        )
        if opened.source is not None:
            with self._caches:
                self._sources[kind] = opened.source
        return ClientSession(opened, with_tools=self.settings.tools)

    def _warm_up(self) -> None:
        """Load what the first request and the first fold need: one of our engines, prices, what writes summaries."""
        price_of("any")  # loads the list
        if self.config.context.engine in (BUILT_IN, LOSSLESS):
            with suppress(LeporelloError):  # the first conversation tells what is wrong
                self._unused_session().close()
        for name, upstream in self.upstreams.items():
            if upstream.is_set_up and not self._options:
                with suppress(LeporelloError):  # the first conversation tells what is wrong
                    self._summariser(upstream, self.config.model.default or name, self.thread_limits.of(""))
        wait_for_packages()  # a request that imports meanwhile could meet half of a module

    def _unused_session(self) -> OpenedSession:
        """Open a session that nothing is said in, on a store of its own: that of the gateway may not answer yet."""
        return open_session(
            None,
            model=None,
            provider=None,
            base_url=None,
            context_length=DEFAULT_WINDOW,
            engine=None,
            store=":memory:",
            config=self.config,
            system=None,
            dialect="openai",
            owner="",
            platform="gateway",
            on_event=self._on_event,
            **(self._options or {"llm": None}),
        )

    def _summariser(self, upstream: Upstream, model: str, threads: ThreadLimit) -> LLM | None:
        """Return the model for summaries: as configured, else of the conversation's provider, with the gateway's key.

        None, for summaries without a model, where only clients have a key for an address that is not the public one.
        """
        wanted = self.config.auxiliary.compression
        if upstream.is_paid_by_clients and wanted.provider in _BY_THE_MAIN_MODEL and not wanted.base_url:
            return None
        route = {
            "default": model or None,
            "base_url": upstream.own_address,
            "provider": upstream.provider(model) or "auto",
        }
        main = self.config.model.model_copy(update=route)
        connected = llm.connect(self.config, environ=upstream.environment(), main=main)
        if isinstance(connected, SdkClient):
            connected.preload()
        return connected and _Summariser(connected, threads)

    def _on_event(self, event: Event) -> None:
        """Log and count what happens in a conversation, from any thread."""
        log_event(event)
        self.metrics.happened(event)

    async def _expire_idle(self) -> None:
        """Close idle sessions."""
        idle = self.settings.expire_minutes * 60
        await self.clients.pool.expire(idle)
        await self.agents.pool.expire(idle)

    async def _purge(self) -> None:
        """Purge deleted rows from the store, for a short time."""
        await asyncio.to_thread(self.store.purge, seconds=_PURGE_SECONDS)


async def _repeatedly(work: Callable[[], Awaitable[None]], pause: float, problem: str) -> None:
    """Do something again and again, with a pause before it; what fails is logged as this problem."""
    while True:
        await asyncio.sleep(pause)
        try:
            await work()
        except LeporelloError as error:
            _log.warning("%s: %s", problem, one_line(str(error)))


class _Summariser:
    """A model for summaries; while a thread waits for it, another thread of the same key may run."""

    def __init__(self, inner: LLM, threads: ThreadLimit) -> None:
        self._inner = inner
        self._threads = threads
        self.model = inner.model
        self.provider = inner.provider
        self.context_length = inner.context_length

    def complete(self, messages: list[Message], *, max_tokens: int, timeout: float) -> Completion:
        """Ask once."""
        with self._threads.idle():
            return self._inner.complete(messages, max_tokens=max_tokens, timeout=timeout)
