"""What all requests share: the configuration, the store, the conversations, the providers."""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from leporello import llm
from leporello.errors import LeporelloError
from leporello.events import log_event
from leporello.gateway.dialogue import Dialogue
from leporello.gateway.errors import Refused
from leporello.gateway.keys import Keys, from_this_machine
from leporello.gateway.limits import Turnstile
from leporello.gateway.metrics import Metrics
from leporello.gateway.recent import Recent
from leporello.gateway.rooms import Rooms
from leporello.gateway.shelf import Shelf
from leporello.gateway.upstream import connect
from leporello.session.opening import open_session

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from leporello.config import Config
    from leporello.events import Event
    from leporello.gateway.live import Known, Live
    from leporello.gateway.upstream import Upstream
    from leporello.llm import LLM
    from leporello.plugins import EngineSource
    from leporello.store import Store

_NAME: Final = re.compile(r"[A-Za-z0-9._:@-]{1,128}")
_LOOK_SECONDS: Final = 20.0
_PURGE_PAUSE: Final = 5.0
_PURGE_SECONDS: Final = 1.0
_MOST_MODELS: Final = 128  # a client may name any model
_log = logging.getLogger("leporello.gateway")


class House:
    """The gateway without its doors."""

    def __init__(
        self,
        config: Config,
        store: Store,
        *,
        engine_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.config = config
        self.settings = config.gateway
        self.store = store
        self.keys = Keys(self.settings.api_keys)
        self.turnstile = Turnstile(self.settings.limits.concurrency)
        self.metrics = Metrics()
        self.shelf = Shelf(store, self._dialogue)
        self._options = dict(engine_options or {})
        self.rooms = Rooms(config, store, self.shelf, self._hear, self._options)
        self._windows: Recent[tuple[str, str], int] = Recent(_MOST_MODELS)
        self._sources: Recent[tuple[str, str, int], EngineSource] = Recent(_MOST_MODELS)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Serve while this is open; at the end every conversation is ended properly."""
        self.upstreams, client = connect(self.settings)
        await self.shelf.load()
        background = [asyncio.ensure_future(self._tidy()), asyncio.ensure_future(self._purge())]
        try:
            yield
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
            await self.rooms.close()
            await self.shelf.close()
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

    def give_back(self, live: Live, model: str) -> None:
        """Take a conversation back, and remember the window of its model: the provider may have named another."""
        self._windows.put((live.known.dialect, model), live.window)
        self.shelf.release(live)

    def _dialogue(self, known: Known, model: str) -> Dialogue:
        """Open a conversation, in the thread that it lives in."""
        upstream = self.upstreams[known.dialect]
        window = self._windows.get((known.dialect, model)) or 0
        kind = (known.dialect, model, window)
        opened = open_session(
            known.key,
            model=model,
            provider=upstream.provider(model),
            base_url=upstream.own_address,
            context_length=window or None,
            engine=self._sources.get(kind),
            store=self.store,
            config=self.config,
            system=None,
            dialect=known.dialect,
            owner=known.owner,
            platform="gateway",
            on_event=self._hear,
            options=self._options or {"llm": self._summariser(upstream, model)},
        )
        if opened.source is not None:
            self._sources.put(kind, opened.source)
        return Dialogue(opened, with_tools=self.settings.tools and bool(known.family))

    def _summariser(self, upstream: Upstream, model: str) -> LLM | None:
        """Return who writes summaries: as configured, else the conversation's own provider, with the gateway's key."""
        route = {
            "default": model or None,
            "base_url": upstream.own_address,
            "provider": upstream.provider(model) or "auto",
        }
        main = self.config.model.model_copy(update=route)
        return llm.connect(self.config, environ=upstream.environment(), main=main)

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
                await self.shelf.expire(idle)
                await self.rooms.expire(idle)
            except LeporelloError as error:
                _log.warning("idle conversations could not be ended: %s", error)

    async def _purge(self) -> None:
        """Take what was deleted out of the store, in slices between which others write."""
        while True:
            await asyncio.sleep(_PURGE_PAUSE)
            try:
                await asyncio.to_thread(self.store.purge, seconds=_PURGE_SECONDS)
            except LeporelloError as error:
                _log.warning("what was deleted could not be purged: %s", error)


def checked_name(name: str) -> str:
    """Return the name that a client gave its conversation, or refuse it."""
    if not _NAME.fullmatch(name):
        raise Refused(400, "the name of a conversation has 1 to 128 letters, digits and . _ : @ -")
    return name
