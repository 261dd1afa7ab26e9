"""`Session` for programs with an event loop, which no call blocks."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from leporello.engine import strict_keywords
from leporello.session.session import Session
from leporello.session.session_properties import SessionProperties
from leporello.session.worker import Worker

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping, Sequence
    from types import TracebackType

    from leporello.config import Config
    from leporello.engine import CompactionReport, ContextEngine
    from leporello.events import Event, Sink
    from leporello.llm import LLM
    from leporello.messages import Dialect, Message, ToolCall
    from leporello.plugins import EngineSource
    from leporello.session.accounts import SessionUsage
    from leporello.store import BranchInfo, Store

T = TypeVar("T")


class AsyncSession(SessionProperties):
    """A `Session` whose methods are awaited.

    A thread of its own constructs the engine and makes every call on it, because an engine may hold something that
    belongs to a thread, as a database connection does. Events are delivered in the event loop.
    """

    def __init__(self, session: Session, worker: Worker) -> None:
        super().__init__(session._opened)  # noqa: SLF001 - the same package
        self._session = session
        self._worker = worker
        self._closed = False

    @classmethod
    @strict_keywords
    async def open(
        cls,
        session_id: str | None = None,
        *,
        model: str | None = None,
        provider: str | None = None,
        base_url: str | None = None,
        context_length: int | None = None,
        engine: str | ContextEngine | EngineSource | None = None,
        store: Store | str | os.PathLike[str] | None = None,
        config: Config | Mapping[str, Any] | str | os.PathLike[str] | None = None,
        system: str | None = None,
        dialect: Dialect = "openai",
        owner: str = "",
        platform: str = "library",
        on_event: Sink | None = None,
        llm: LLM | Literal["auto"] | None = "auto",
        api_key: str | None = None,
        api_mode: str | None = None,
        engine_tools: bool = True,
    ) -> AsyncSession:
        """Open a conversation; see `Session.open`."""
        opening = partial(
            Session.open,
            session_id,
            model=model,
            provider=provider,
            base_url=base_url,
            context_length=context_length,
            engine=engine,
            store=store,
            config=config,
            system=system,
            dialect=dialect,
            owner=owner,
            platform=platform,
            on_event=None if on_event is None else _in_loop(asyncio.get_running_loop(), on_event),
            llm=llm,
            api_key=api_key,
            api_mode=api_mode,
            engine_tools=engine_tools,
        )
        return await cls._in_a_thread(opening)

    @classmethod
    async def _in_a_thread(cls, opening: Callable[[], Session]) -> AsyncSession:
        """Open a session in the thread that it belongs to from then on."""
        worker = Worker()
        try:
            session = await worker.run(opening)
        except BaseException:
            worker.stop()
            raise
        return cls(session, worker)

    async def add(self, *messages: Message | Mapping[str, Any]) -> None:
        """Add what the user said, the results of tool calls, or any other message; it is stored at once."""
        await self._run(self._session.add, *messages)

    async def request(self, tools: Sequence[dict[str, Any]] | None = None) -> dict[str, Any]:
        """Return what to send; see `Session.request`."""
        return await self._run(self._session.request, tools)

    async def record(self, response: Any) -> list[ToolCall]:
        """Take the model's answer and return the calls that you must answer; see `Session.record`."""
        return await self._run(self._session.record, response)

    async def stream(self, chunks: AsyncIterable[T]) -> AsyncIterator[T]:
        """Pass the chunks of a streamed answer on unchanged, and record it at the end; see `Session.stream`."""
        reading = await self._run(self._session._begin_stream)  # noqa: SLF001 - the same package
        complete = False
        try:
            async for chunk in chunks:
                reading.take(chunk)
                yield chunk
            complete = True
        finally:
            # Shielded: an answer that breaks off because its task was cancelled must be recorded all the same.
            await asyncio.shield(self._run(self._session.record_stream, reading, complete=complete))

    async def recover(self, error: BaseException) -> bool:
        """After an overflow answer fold once; see `Session.recover`."""
        return await self._run(self._session.recover, error)

    async def compress(self, focus: str | None = None) -> CompactionReport:
        """Fold the conversation now; `focus` says what the summary should keep most of."""
        return await self._run(self._session.compress, focus)

    async def switch_model(
        self,
        model: str,
        *,
        provider: str | None = None,
        base_url: str | None = None,
        context_length: int | None = None,
    ) -> None:
        """Go on with another model; the engine computes its budgets again."""
        options = {"provider": provider, "base_url": base_url, "context_length": context_length}
        await self._run(self._session.switch_model, model, **options)

    async def undo(self) -> list[Message]:
        """Remove the newest message of the user and all that followed; returns the removed messages."""
        return await self._run(self._session.undo)

    async def fork(self, before: str | None = None, *, head: bool = True) -> AsyncSession:
        """Return a session on a new branch, with a thread of its own; see `Session.fork`."""
        opened = await self._run(self._session._open_fork, before, head=head)  # noqa: SLF001 - the same package
        return await self._in_a_thread(partial(Session._begun, opened, self.engine))  # noqa: SLF001 - the same

    async def open_branch(self, number: int) -> AsyncSession:
        """Return a session on another branch, with a thread of its own; see `Session.open_branch`."""
        opened = await self._run(self._session._on_branch, number)  # noqa: SLF001 - the same package
        return await self._in_a_thread(partial(Session._begun, opened))  # noqa: SLF001 - the same

    async def branches(self) -> list[BranchInfo]:
        """List the branches of the conversation in the order in which they were made."""
        return await self._run(self._session.branches)

    async def pin(self, message_id: str, *, pinned: bool = True) -> None:
        """Keep a message verbatim in the window at every fold, or no longer."""
        await self._run(self._session.pin, message_id, pinned=pinned)

    async def reset(self, session_id: str | None = None) -> str:
        """End this conversation and begin another with the same engine; returns its name."""
        return await self._run(self._session.reset, session_id)

    async def usage(self) -> SessionUsage:
        """Return where the conversation stands: its size by part, its compactions, its cost."""
        return await self._run(self._session.usage)

    async def close(self) -> None:
        """End the session; opened again under its name, the conversation continues where it was."""
        if self._closed:
            return
        try:
            await self._run(self._session.close)
        finally:
            self._closed = True
            self._worker.stop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _run(self, function: Callable[..., T], *args: Any, **options: Any) -> T:
        if self._closed:  # the session raises its own error, for which no thread is needed
            return function(*args, **options)
        return await self._worker.run(function, *args, **options)


def _in_loop(loop: asyncio.AbstractEventLoop, sink: Sink) -> Sink:
    """Return a sink that calls another one in the event loop; when that is closed, events are dropped."""

    def deliver(event: Event) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(sink, event)

    return deliver
