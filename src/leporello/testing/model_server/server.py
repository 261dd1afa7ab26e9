"""The model server: a provider on a free port of this machine, in a thread of its own."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Route

from leporello.testing.model_server.cache import PromptCache
from leporello.testing.model_server.checks import Checks
from leporello.testing.model_server.delivery import ClosableProtocol, Delivery
from leporello.testing.model_server.failures import WORDINGS, Failure, Planned
from leporello.testing.model_server.provider import Provider, UsageHook
from leporello.testing.model_server.script import echo

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence
    from types import TracebackType
    from typing import Self

    from starlette.requests import Request as HttpRequest

    from leporello.testing.model_server.requests import ReceivedRequest
    from leporello.testing.model_server.script import Scripted

_LOOPBACK = "127.0.0.1"
_START_SECONDS = 10.0
_STOP_SECONDS = 10.0


def _any_but_bad(key: str) -> bool:
    return key not in {"", "bad"}


class ModelServer:
    """A provider for tests; use it as a context manager.

    script            what to say, in order: a text, a `Step`, a `Failure`, or a function of the `ReceivedRequest`
    then              what to say after that; by default the newest message is repeated
    window            refuse requests that count more tokens than this
    output_limit      refuse requests for a longer answer than this
    wording           whose words an overflow is refused with (`WORDINGS`); by default those of the dialect
    reserves_output   count the requested answer into the window, as some providers do
    models            the names that are served; any, by default
    accepts_key       which keys are accepted; by default all but "bad" and none at all
    fails_inside      tell an overflow of the Responses API inside of an answer, as its provider does, not as an error
    remembers         keep responses, so that later requests may refer to them (the Responses API)
    gap               let up to this many seconds pass before each event of a streamed answer, as chance has it
    usage             called with each request and its counted usage, returns the usage to report; by default a
                      `PromptCache` by the provider's rules, `as_counted` for none
    """

    def __init__(
        self,
        script: Iterable[Scripted] = (),
        *,
        then: Scripted = echo,
        window: int | None = None,
        output_limit: int | None = None,
        wording: str = "",
        reserves_output: bool = False,
        models: Sequence[str] | None = None,
        accepts_key: Callable[[str], bool] = _any_but_bad,
        fails_inside: bool = False,
        remembers: bool = True,
        gap: float = 0.0,
        usage: UsageHook | None = None,
        port: int = 0,
    ) -> None:
        if wording and wording not in WORDINGS:
            raise ValueError(f"unknown wording {wording!r}: use one of {', '.join(sorted(WORDINGS))}")
        checks = Checks(
            window=window,
            output_limit=output_limit,
            wording=wording,
            reserves_output=reserves_output,
            models=models,
            accepts_key=accepts_key,
            fails_inside=fails_inside,
        )
        self._provider = Provider(
            checks=checks, script=script, then=then, usage=usage or PromptCache(), remembers=remembers, gap=gap
        )
        self._port = port
        self._ready = threading.Event()

    @property
    def base_url(self) -> str:
        """The address of the server."""
        return f"http://{_LOOPBACK}:{self._port}"

    @property
    def openai_url(self) -> str:
        """The `base_url` for the `openai` package."""
        return f"{self.base_url}/v1"

    @property
    def anthropic_url(self) -> str:
        """The `base_url` for the `anthropic` package."""
        return self.base_url

    @property
    def requests(self) -> list[ReceivedRequest]:
        """The requests for completions so far, refused ones too."""
        return self._provider.requests()

    def script(self, *steps: Scripted) -> None:
        """Add steps to the end of the script."""
        self._provider.extend(steps)

    def fail(
        self,
        failure: Failure,
        *,
        times: int = 1,
        seconds: float = 1.0,
        retry_after: float = 1.0,
        wording: str = "",
    ) -> None:
        """Let the next `times` requests fail; the script goes on after them where it was."""
        planned = Planned(failure=failure, seconds=seconds, retry_after=retry_after, wording=wording)
        self._provider.plan(planned, times)

    def heal(self) -> None:
        """Stop failing: what is left of the planned failures is forgotten."""
        self._provider.heal()

    def __enter__(self) -> Self:
        """Bind, start and wait until it answers."""
        self._provider.closing = False
        self._ready.clear()
        self._socket = socket.create_server((_LOOPBACK, self._port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else a short answer takes 40 ms
        self._port = self._socket.getsockname()[1]
        self._server = uvicorn.Server(self._settings())
        self._thread = threading.Thread(target=self._serve, name="leporello-model-server", daemon=True)
        self._thread.start()
        if not self._ready.wait(_START_SECONDS):
            self.close()
            raise RuntimeError(f"the model server did not start within {_START_SECONDS:g} s")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self.close()

    def close(self) -> None:
        """Stop answering, and wait for the thread to end."""
        self._provider.closing = True
        self._server.should_exit = True
        self._thread.join(_STOP_SECONDS)
        self._socket.close()
        if self._thread.is_alive():
            raise RuntimeError(f"the model server did not stop within {_STOP_SECONDS:g} s")

    def wait(self) -> None:
        """Serve until the thread ends: for a process that does nothing else."""
        self._thread.join()

    def _serve(self) -> None:
        self._server.run(sockets=[self._socket])

    def _settings(self) -> uvicorn.Config:
        return uvicorn.Config(
            self._app(),
            http=ClosableProtocol,
            ws="none",
            loop="asyncio",
            lifespan="on",
            log_config=None,
            access_log=False,
            timeout_keep_alive=75,  # as providers do: a busy client comes back to a connection after many seconds
            timeout_graceful_shutdown=1,
        )

    def _app(self) -> Starlette:
        async def chat(http: HttpRequest) -> Delivery:
            return await self._provider.complete(http, "openai")

        async def messages(http: HttpRequest) -> Delivery:
            return await self._provider.complete(http, "anthropic")

        async def responses(http: HttpRequest) -> Delivery:
            return await self._provider.complete(http, "responses")

        async def count(http: HttpRequest) -> Delivery:
            return await self._provider.count(http, "responses" if "/responses/" in http.url.path else "anthropic")

        async def compact(http: HttpRequest) -> Delivery:
            return await self._provider.compact(http)

        async def stored(http: HttpRequest) -> Delivery:
            return await self._provider.stored(http)

        async def models(http: HttpRequest) -> Delivery:
            return self._provider.list_models(http)

        routes = [
            Route("/v1/chat/completions", chat, methods=["POST"]),
            Route("/v1/messages", messages, methods=["POST"]),
            Route("/v1/messages/count_tokens", count, methods=["POST"]),
            Route("/v1/responses", responses, methods=["POST"]),
            Route("/v1/responses/input_tokens", count, methods=["POST"]),
            Route("/v1/responses/compact", compact, methods=["POST"]),
            Route("/v1/responses/{id}", stored, methods=["GET", "DELETE"]),
            Route("/v1/responses/{id}/input_items", stored),
            Route("/v1/responses/{id}/cancel", stored, methods=["POST"]),
            Route("/v1/models", models),
        ]
        return Starlette(routes=routes, lifespan=self._announce)

    @contextlib.asynccontextmanager
    async def _announce(self, app: Starlette) -> AsyncIterator[None]:
        self._ready.set()
        yield
