"""The sessions of the agent API: an agent for each conversation, in a thread of its own, one turn after the other."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, TypeVar

from leporello.agent import Agent, MainModel, Toolbox, Workspace, default_tools, main_route
from leporello.agent.events import TurnEnded
from leporello.agent.route import with_route
from leporello.agent.turn_hooks import plugin_tools
from leporello.errors import StoreError
from leporello.gateway.client_sessions import is_clients
from leporello.gateway.errors import Refused
from leporello.gateway.limits import shielded
from leporello.gateway.pool import Pool
from leporello.plugins.enabled import EnabledPlugins
from leporello.redact import logger
from leporello.session import Session
from leporello.session.hygiene import compact_if_full
from leporello.session.worker import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping

    from leporello.config import Config
    from leporello.events import Event, Sink
    from leporello.messages import Message
    from leporello.plugins import EngineSource
    from leporello.store import Store

T = TypeVar("T")
MOST_OPEN: Final = 256
"""How many conversations are held ready, each with a thread of its own."""

_NOT_OURS: Final = "this conversation belongs to a client of the drop-in endpoints."
_BYTES_PER_TOKEN: Final = 4
_END: Final = object()
_log = logger("leporello.gateway")


class AgentSession:
    """One conversation with an agent; messages are answered in the order in which they came."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.used: float = 0.0
        self.weight: int = 0
        """About how many bytes it holds."""
        self.turn: asyncio.Lock = asyncio.Lock()
        self._agent: Agent | None = None
        self._worker = Worker()

    @property
    def busy(self) -> bool:
        """Whether a turn is under way."""
        return self.turn.locked()

    @property
    def is_open(self) -> bool:
        """Whether its agent is open."""
        return self._agent is not None

    @property
    def agent(self) -> Agent:
        """The agent; call it only in the thread of the session."""
        assert self._agent is not None  # noqa: S101 - it is opened before it is used
        return self._agent

    async def call(self, work: Callable[[Agent], T]) -> T:
        """Call a function with the agent, in its thread."""
        return await shielded(self._worker.run(work, self.agent))

    async def open(self, make: Callable[[], Agent]) -> None:
        """Open the conversation."""
        self._agent = await shielded(self._worker.run(make))

    async def speak(self, message: Message, *, respond: bool) -> AsyncGenerator[Event, None]:
        """Add a message and yield the events of the turn; closing the generator stops the turn."""
        loop, queue = asyncio.get_running_loop(), asyncio.Queue[Any]()

        def put(event: Any) -> None:
            loop.call_soon_threadsafe(queue.put_nowait, event)

        running = self._worker.run(_speaking, self.agent, message, respond, put)
        try:
            while (event := await queue.get()) is not _END:
                yield event
        finally:
            if not running.done():
                await asyncio.to_thread(self.agent.stop)
            await shielded(_wait(running))
            self.weight = _BYTES_PER_TOKEN * self.agent.session.usage().tokens
        running.result()

    async def close(self) -> None:
        """End the session and its thread."""
        try:
            if self._agent is not None:
                await shielded(self._worker.run(self._agent.close))
        finally:
            self._worker.stop()


class Agents:
    """The sessions of all agents."""

    def __init__(
        self,
        config: Config,
        store: Store,
        sink: Sink,
        engine_options: Mapping[str, Any],
    ) -> None:
        self._config = config
        self._store = store
        self._sink = sink
        self._options = engine_options
        self.pool: Pool[tuple[str, str], AgentSession] = Pool(most_open=MOST_OPEN)
        self._source: EngineSource | None = None
        self._plugins = EnabledPlugins(config)

    @asynccontextmanager
    async def session(self, owner: str, name: str) -> AsyncIterator[AgentSession]:
        """Open a session, if it is not open, and keep it for this caller alone inside the block."""
        key = (owner, name)
        while True:
            await self.pool.closed(key)
            session = self.pool.get(key)
            if session is None:
                session = AgentSession(owner)
                self.pool.put(key, session)
            async with session.turn:
                if self.pool.get(key) is not session:  # it was ended while we waited
                    continue
                try:
                    if not session.is_open:
                        await self._open(key, session)
                    yield session
                finally:
                    session.used = time.monotonic()
                return

    async def end(self, owner: str, name: str) -> None:
        """End a session if it is open, after the running turn."""
        session = self.pool.get((owner, name))
        if session is None:
            return
        async with session.turn:
            if self.pool.get((owner, name)) is session:
                await self.pool.close((owner, name))

    async def _open(self, key: tuple[str, str], session: AgentSession) -> None:
        await self.pool.make_room(0)
        try:
            await session.open(partial(self._agent, *key))
        except BaseException:
            self.pool.remove(key, session)
            await session.close()
            raise

    def _agent(self, owner: str, name: str) -> Agent:
        """Open an agent on a conversation; it may only read the workspace, as no user can agree to more."""
        info = self._store.info(name, owner=owner)
        if info is not None and is_clients(info):
            raise Refused(409, _NOT_OURS)
        settings = self._config.gateway
        route = main_route(self._config)
        inbox: deque[Event] = deque()

        def receive(event: Event) -> None:
            self._sink(event)
            inbox.append(event)

        session = Session.open(
            name,
            engine=self._source,
            store=self._store,
            config=with_route(self._config, route),
            system=settings.system or _system_prompt(),
            dialect=route.dialect,
            owner=owner,
            platform="gateway",
            on_event=receive,
            **self._options,
        )
        self._source = session.engine_source
        tools = default_tools(Workspace(settings.workspace)) if settings.workspace else []
        plugins = self._plugins
        tools += plugin_tools(plugins.tools, tools)
        return Agent(session, MainModel(route), Toolbox(tools), inbox=inbox, hooks=plugins.hooks)


def _speaking(agent: Agent, message: Message, respond: bool, put: Callable[[Any], None]) -> None:
    """Run one turn: fold if the conversation is too large, store the message, let the agent answer."""
    session = agent.session
    try:
        compact_if_full(session)
        session.add(message)
        _check_stored(session, "message")
        for event in agent.go_on() if respond else ():
            if isinstance(event, TurnEnded):
                _check_stored(session, "answer")
            put(event)
    finally:
        put(_END)


def _check_stored(session: Session, what: str) -> None:
    """Undo the turn and raise StoreError if a message, or its answer, could not be stored."""
    if session.unstored:
        session.undo()
        raise StoreError(f"the {what} cannot be stored at the moment.", hint="The turn was taken back; send it again.")


async def _wait(running: asyncio.Future[None]) -> None:
    await asyncio.wait({running})


def _system_prompt() -> str:
    return files("leporello.gateway").joinpath("prompts", "assistant.md").read_text("utf-8").strip()
