"""The proxy in front of the processes of a gateway: passes each request on to the process of its key."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

import aiohttp
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route
from yarl import URL

from leporello.gateway.app import HANDLERS, OPEN_ROUTES, ROUTES, prepared
from leporello.gateway.bodies import check_length
from leporello.gateway.client_connection import ClientConnection, run_until
from leporello.gateway.endpoint import refuse
from leporello.gateway.errors import Refused
from leporello.gateway.headers import letters
from leporello.gateway.keys import CREDENTIALS, KEY, Keys
from leporello.gateway.lag import Lag
from leporello.gateway.metrics import CONTENT_TYPE, Metrics, merged
from leporello.gateway.paths import dialect_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Sequence

    from starlette.types import Receive, Scope, Send

    from leporello.config import Config
    from leporello.gateway.workers import WorkerProcess, Workers

_HOP_BY_HOP: Final = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade"}
)
_OWN: Final = frozenset({b"date", b"server"})
_PIECES_AHEAD: Final = 2


def create_proxy(config: Config, workers: Workers, pages: Sequence[Route] = ()) -> Starlette:
    """Return the ASGI application that passes requests on to the processes; `pages` are served by itself."""
    lag, metrics = Lag(), Metrics()

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        watching = asyncio.ensure_future(lag.watch())
        try:
            yield
        finally:
            watching.cancel()
            await workers.stop()

    proxy, figures = Proxy(config, workers, metrics), ProxyMetrics(config, workers, metrics, lag)
    app = Starlette(
        routes=[
            *OPEN_ROUTES,
            *(
                Route(path, figures if path == "/metrics" else proxy, methods=list(endpoints))
                for path, endpoints in ROUTES.items()
            ),
            *pages,
        ],
        lifespan=lifespan,
        exception_handlers=HANDLERS,
    )
    return prepared(app, config)


class Proxy:
    """Passes the requests of a key on to its process, and the answers back."""

    def __init__(self, config: Config, workers: Workers, metrics: Metrics) -> None:
        self._limits = config.gateway.limits
        self._keys = Keys(config.gateway.api_keys)
        self._workers = workers
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        request, incoming, started = Request(scope), Incoming(receive), time.monotonic()
        client = ClientConnection(receive, send)
        try:
            await self._serve(request, incoming, client)
        except Refused as refused:
            await refuse(client, refused, dialect_of(scope))
            self._metrics.answered(type(self).__name__, refused.status, time.monotonic() - started)

    async def _serve(self, request: Request, incoming: Incoming, client: ClientConnection) -> None:
        owner = self._keys.owner(request.headers)
        if owner is None:
            raise Refused(401, "the key of the gateway is missing or wrong.", code="invalid_api_key")
        check_length(request.headers, self._limits)
        await incoming.stays_for(self._pass(request, incoming, client, self._workers.of(owner)))

    async def _pass(
        self, request: Request, incoming: Incoming, client: ClientConnection, worker: WorkerProcess
    ) -> None:
        """Send the request as it comes, and the answer as that comes."""
        to = await worker.client()
        headers = [(letters(name), letters(value)) for name, value in request.headers.raw if name not in _HOP_BY_HOP]
        has_body = not {"content-length", "transfer-encoding"}.isdisjoint(request.headers)
        sent = to.request(
            request.method,
            URL(f"{worker.address}{_target(request.scope)}", encoded=True),
            headers=headers,
            data=incoming.pieces() if has_body else None,
            allow_redirects=False,
        )
        try:
            async with sent as response:
                raw = [(name.lower(), value) for name, value in response.raw_headers]
                kept = [(name, value) for name, value in raw if name not in _HOP_BY_HOP | _OWN]
                await client.start(response.status, kept)
                async for piece in response.content.iter_any():
                    await client.write(piece)
                await client.finish()
        except (aiohttp.ClientError, OSError) as error:
            raise Refused(502, "the process that serves this key broke off; try again.", retry_after=1) from error


class ProxyMetrics(Proxy):
    """Sums up the metrics of all processes."""

    def __init__(self, config: Config, workers: Workers, metrics: Metrics, lag: Lag) -> None:
        super().__init__(config, workers, metrics)
        self._lag = lag

    async def _pass(
        self, request: Request, incoming: Incoming, client: ClientConnection, worker: WorkerProcess
    ) -> None:
        async def figures(one: WorkerProcess) -> str:
            with suppress(aiohttp.ClientError, OSError, Refused):
                to = await one.client()
                async with to.get(f"{one.address}/metrics", headers=_credentials(request)) as answer:
                    return await answer.text() if answer.ok else ""
            return ""

        texts = await asyncio.gather(*(figures(one) for one in self._workers.running))
        asked = len(texts) - 1  # each process counts the request for its figures; for the client it is one
        own = self._metrics.text({"requests_running": -asked, "event_loop_gap_seconds": round(self._lag.longest, 4)})
        by_process = {"proxy": own, **{str(number): text for number, text in enumerate(texts)}}
        await client.answer(200, [(b"content-type", CONTENT_TYPE.encode())], merged(by_process).encode())


class Incoming:
    """The body of a request as it comes, until the client disconnects."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue(_PIECES_AHEAD)

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body."""
        while (piece := await self._pieces.get()) is not None:
            yield piece

    async def stays_for(self, work: Coroutine[None, None, None]) -> None:
        """Run work until the client disconnects, which cancels it."""
        await run_until(work, self._read())

    async def _read(self) -> None:
        """Read the body, then wait until the client disconnects."""
        while (message := await self._receive())["type"] != "http.disconnect":
            if message.get("body"):
                await self._pieces.put(message["body"])
            if not message.get("more_body", False):
                await self._pieces.put(None)


def _target(scope: Scope) -> str:
    path, query = scope["raw_path"].decode("ascii"), scope["query_string"].decode("ascii")
    return f"{path}?{query}" if query else path


def _credentials(request: Request) -> dict[str, str]:
    return {name: value for name, value in request.headers.items() if name in (KEY, *CREDENTIALS)}
