"""The conversations of the agent gateway: an agent for each, in a thread of its own, one turn after the other."""

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
from leporello.errors import StoreError
from leporello.gateway.clients import is_clients
from leporello.gateway.errors import Refused
from leporello.gateway.limits import to_the_end
from leporello.gateway.pool import MOST_BYTES, Pool
from leporello.gateway.worker import Worker
from leporello.redact import logger
from leporello.session import Session
from leporello.session.hygiene import tidy

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping

    from leporello.config import Config
    from leporello.events import Event, Sink
    from leporello.messages import Message
    from leporello.plugins import EngineSource
    from leporello.store import Store

T = TypeVar("T")
MOST_OPEN: Final = 256
"""How many conversations are held ready; each has two threads."""

_NOT_OURS: Final = "this conversation belongs to a client of the drop-in endpoints."
_BYTES_PER_TOKEN: Final = 4
_END: Final = object()
_log = logger("leporello.gateway")


class AgentSession:
    """One conversation with an agent; whoever speaks waits until those before are answered."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.used = 0.0
        self.weight = 0
        """How many bytes it holds, about."""
        self.turn = asyncio.Lock()
        self._agent: Agent | None = None
        self._worker = Worker()

    @property
    def busy(self) -> bool:
        """Whether somebody speaks in it."""
        return self.turn.locked()

    @property
    def is_open(self) -> bool:
        """Whether there is an agent in it."""
        return self._agent is not None

    @property
    def agent(self) -> Agent:
        """The agent; use it only through here, it belongs to the thread of the conversation."""
        assert self._agent is not None  # noqa: S101 - it is opened before it is used
        return self._agent

    async def call(self, work: Callable[[Agent], T]) -> T:
        """Do something with the agent, in its thread."""
        return await self._worker.run(work, self.agent)

    async def open(self, make: Callable[[], Agent]) -> None:
        """Open the conversation."""
        self._agent = await self._worker.run(make)

    async def speak(self, message: Message, *, respond: bool) -> AsyncGenerator[Event, None]:
        """Say something and yield what happens; whoever stops listening stops the turn."""
        loop, queue = asyncio.get_running_loop(), asyncio.Queue[Any]()

        def put(event: Any) -> None:
            loop.call_soon_threadsafe(queue.put_nowait, event)

        running = asyncio.ensure_future(self._worker.run(_speaking, self.agent, message, respond, put))
        try:
            while (event := await queue.get()) is not _END:
                yield event
        finally:
            if not running.done():
                await asyncio.to_thread(self.agent.stop)
            await to_the_end(_wait(running))
            self.weight = _BYTES_PER_TOKEN * self.agent.session.usage().tokens
        running.result()

    async def close(self) -> None:
        """End the conversation properly, and its thread."""
        try:
            if self._agent is not None:
                await self._worker.run(self._agent.close)
        finally:
            self._worker.stop()


class Agents:
    """All conversations with agents."""

    def __init__(
        self,
        config: Config,
        store: Store,
        sink: Sink,
        engine_options: Mapping[str, Any],
        clock: Callable[[], float] = time.monotonic,
        most_open: int = MOST_OPEN,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._config = config
        self._store = store
        self._sink = sink
        self._options = engine_options
        self._clock = clock
        self._pool: Pool[tuple[str, str], AgentSession] = Pool(most_open=most_open, most_bytes=most_bytes, clock=clock)
        self._source: EngineSource | None = None

    @property
    def open(self) -> int:
        """How many conversations are held ready."""
        return len(self._pool)

    @asynccontextmanager
    async def session(self, owner: str, name: str) -> AsyncIterator[AgentSession]:
        """Have a conversation to oneself for a while; it is opened if it is not."""
        key = (owner, name)
        while True:
            await self._pool.closed(key)
            session = self._pool.get(key)
            if session is None:
                session = AgentSession(owner)
                self._pool.put(key, session)
            async with session.turn:
                if self._pool.get(key) is not session:  # it was ended while we waited
                    continue
                try:
                    if not session.is_open:
                        await self._open(key, session)
                    yield session
                finally:
                    session.used = self._clock()
                return

    async def end(self, owner: str, name: str) -> None:
        """End a conversation if it is held ready, after whoever speaks in it now."""
        session = self._pool.get((owner, name))
        if session is None:
            return
        async with session.turn:
            if self._pool.get((owner, name)) is session:
                await self._pool.close((owner, name))

    async def expire(self, idle: float) -> int:
        """End the conversations that were not used for so many seconds; returns how many."""
        return await self._pool.expire(idle)

    async def close(self) -> None:
        """End all conversations."""
        await self._pool.close_all()

    async def _open(self, key: tuple[str, str], session: AgentSession) -> None:
        await self._pool.make_room(0)
        try:
            await session.open(partial(self._agent, *key))
        except BaseException:
            self._pool.remove(key, session)
            await session.close()
            raise

    def _agent(self, owner: str, name: str) -> Agent:
        """Open an agent on a conversation; it may read the workspace, and nobody is there to agree to more."""
        info = self._store.info(name, owner=owner)
        if info is not None and is_clients(info):
            raise Refused(409, _NOT_OURS)
        settings = self._config.gateway
        route = main_route(self._config)
        inbox: deque[Event] = deque()

        def hear(event: Event) -> None:
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
            on_event=hear,
            **self._options,
        )
        self._source = session.engine_source
        tools = default_tools(Workspace(settings.workspace)) if settings.workspace else []
        return Agent(session, MainModel(route), Toolbox(tools), inbox=inbox)


def _speaking(agent: Agent, message: Message, respond: bool, put: Callable[[Any], None]) -> None:
    """Take one message: the net first, then the message is stored, then the agent answers."""
    session = agent.session
    try:
        tidy(session)
        session.add(message)
        _check_stored(session, "message")
        for event in agent.go_on() if respond else ():
            if isinstance(event, TurnEnded):
                _check_stored(session, "answer")
            put(event)
    finally:
        put(_END)


def _check_stored(session: Session, what: str) -> None:
    """Whoever sent a message must learn when it, or its answer, is not stored; the turn is taken back then."""
    if session.unstored:
        session.undo()
        raise StoreError(f"the {what} cannot be stored at the moment.", hint="The turn was taken back; send it again.")


async def _wait(running: asyncio.Future[None]) -> None:
    await asyncio.wait({running})


def _system_prompt() -> str:
    return files("leporello.gateway").joinpath("prompts", "assistant.md").read_text("utf-8").strip()
