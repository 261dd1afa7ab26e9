"""The main model, asked for one streamed answer after another; a stream can be left at any moment.

The official asynchronous client runs on an event loop in a thread of its own. The reader of an answer waits at a
queue, and leaving it cancels the request there: while it connects, waits, or reads. Nothing has to time out first.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias
from urllib.parse import urlsplit

from leporello.errors import ModelError, NetworkError
from leporello.llm.errors import classify
from leporello.llm.tls import shared_context

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from leporello.agent.route import MainRoute

CONNECT_SECONDS: Final = 20.0
QUIET_SECONDS: Final = 300.0
"""The longest silence in an answer; models think for minutes."""

ANTHROPIC_MAX_TOKENS: Final = 16_000
"""What Anthropic's dialect, which insists on a limit, is asked for when the configuration names none."""

_CLOSE_SECONDS: Final = 5.0
_END: Final = object()
_Letter: TypeAlias = Any
"""What the reader finds in the queue: a chunk, the end, or why there is none."""


class StoppedError(Exception):
    """The user does not want the rest of this answer; internal to the agent."""


class Model(Protocol):
    """A model that streams its answers, in the chunks of its provider's package."""

    def chunks(self, request: dict[str, Any]) -> Iterator[Any]:
        """Send a request and yield the chunks of the answer; a failure is a `ModelError`."""

    def stop(self) -> None:
        """End the answer that is being read, from any thread: no chunk follows, but a `StoppedError`."""

    def close(self) -> None:
        """Let go of the connection."""


class MainModel:
    """The model at the end of a route, asked through the official package of its dialect."""

    def __init__(self, route: MainRoute, *, quiet_seconds: float = QUIET_SECONDS) -> None:
        self.route = route
        self._quiet_seconds = quiet_seconds
        self._inbox: queue.SimpleQueue[_Letter] = queue.SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._client: Any = None

    def chunks(self, request: dict[str, Any]) -> Iterator[Any]:
        """Send a request and yield the chunks of the answer; a failure is a `ModelError`."""
        inbox = self._inbox = queue.SimpleQueue()
        task = asyncio.run_coroutine_threadsafe(self._pump(request, inbox.put), self._running_loop())
        try:
            while (letter := self._next(inbox)) is not _END:
                if isinstance(letter, (ModelError, StoppedError)):
                    raise letter
                yield letter
        finally:
            task.cancel()

    def stop(self) -> None:
        """End the answer that is being read, from any thread: no chunk follows, but a `StoppedError`."""
        self._inbox.put(StoppedError())

    def close(self) -> None:
        """Let go of the connection and end the thread."""
        loop, self._loop = self._loop, None
        if loop is None or self._thread is None:
            return
        ending = asyncio.run_coroutine_threadsafe(self._end(), loop)
        with suppress(TimeoutError):
            ending.result(_CLOSE_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join(_CLOSE_SECONDS)

    def _next(self, inbox: queue.SimpleQueue[_Letter]) -> _Letter:
        try:
            return inbox.get(timeout=self._quiet_seconds)
        except queue.Empty:
            who = self.route.who
            return NetworkError(f"{who} sent nothing for {self._quiet_seconds:g} s", provider=who)

    async def _pump(self, request: dict[str, Any], put: Callable[[_Letter], None]) -> None:
        """Carry the answer from the client to the reader."""
        try:
            ask = self._ask_anthropic if self.route.dialect == "anthropic" else self._ask_openai
            async for chunk in ask(request):
                put(chunk)
            put(_END)
        except Exception as error:  # noqa: BLE001 - the reader is promised a ModelError for whatever goes wrong
            put(classify(error, provider=self.route.who, secret=self.route.api_key))

    async def _ask_openai(self, request: dict[str, Any]) -> AsyncIterator[Any]:
        if self._client is None:
            from openai import AsyncOpenAI, DefaultAsyncHttpxClient, Timeout

            self._client = AsyncOpenAI(**self._options(Timeout, DefaultAsyncHttpxClient))
        stream = await self._client.chat.completions.create(
            model=self.route.model, stream=True, stream_options={"include_usage": True}, **self._limit(), **request
        )
        async with stream:
            async for chunk in stream:
                yield chunk

    async def _ask_anthropic(self, request: dict[str, Any]) -> AsyncIterator[Any]:
        if self._client is None:
            from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient, Timeout

            self._client = AsyncAnthropic(**self._options(Timeout, DefaultAsyncHttpxClient))
        limit = self.route.max_tokens or ANTHROPIC_MAX_TOKENS
        stream = await self._client.messages.create(model=self.route.model, max_tokens=limit, stream=True, **request)
        async with stream:
            async for event in stream:
                yield event

    def _options(self, timeout: Any, connection: Any) -> dict[str, Any]:
        """Return what a package's client is made with: retries are the agent's business, and so is silence."""
        return {
            "api_key": self.route.api_key,
            "base_url": self.route.address,
            "timeout": timeout(None, connect=CONNECT_SECONDS),
            "max_retries": 0,
            "http_client": connection(verify=shared_context()),
        }

    def _limit(self) -> dict[str, int]:
        """Return the output limit by the name that this server obeys: OpenAI's newest models refuse the old one."""
        if self.route.max_tokens is None:
            return {}
        official = urlsplit(self.route.address).hostname == "api.openai.com"
        return {"max_completion_tokens" if official else "max_tokens": self.route.max_tokens}

    async def _end(self) -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        if self._client is not None:
            await self._client.close()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop, self._client = asyncio.new_event_loop(), None
            self._thread = threading.Thread(target=_run, args=(self._loop,), name="leporello-model", daemon=True)
            self._thread.start()
        return self._loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
