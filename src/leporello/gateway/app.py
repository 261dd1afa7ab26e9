"""The routes of the gateway."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse
from starlette.routing import Route

from leporello.gateway import agent_api, responses
from leporello.gateway.dialects import ANTHROPIC, OPENAI
from leporello.gateway.drop_in import DropIn, OfAccount, PassThrough
from leporello.gateway.endpoint import Endpoint
from leporello.gateway.errors import Refused
from leporello.gateway.folded_view import FoldedView
from leporello.gateway.identity import SESSION
from leporello.gateway.metrics import CONTENT_TYPE
from leporello.gateway.openapi import document
from leporello.gateway.paths import CanonicalPaths, dialect_of, not_served
from leporello.gateway.state import State

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from leporello.config import Config
    from leporello.gateway.client_connection import ClientConnection
    from leporello.gateway.dialects import WireFormat
    from leporello.store import Store


def create_app(
    config: Config,
    store: Store,
    *,
    engine_options: Mapping[str, Any] | None = None,
    purges: bool = True,
    pages: Sequence[Route] = (),
) -> Starlette:
    """Return the gateway as an ASGI application; the store stays open when it ends.

    `engine_options` go to every conversation's engine (`llm`, for one). Of several processes on one store, one purges.
    `pages` are routes that check by themselves who asks.
    """
    state = State(config, store, engine_options=engine_options, purges=purges)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with state.open():
            yield

    keyed = [
        Route(
            path,
            _ByMethod({method: endpoint(state) for method, endpoint in endpoints.items()}),
            methods=list(endpoints),
        )
        for path, endpoints in ROUTES.items()
    ]
    app = Starlette(routes=[*OPEN_ROUTES, *keyed, *pages], lifespan=lifespan, exception_handlers=HANDLERS)
    app.state.forget = state.forget
    return prepared(app, config)


def prepared(app: Starlette, config: Config) -> Starlette:
    """Add the middleware for other spellings of paths, and for the web pages that the configuration allows."""
    app.router.redirect_slashes = False  # it would lead to wherever the request says that it was sent to
    app.add_middleware(CanonicalPaths, known=ROUTES)
    if config.gateway.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=config.gateway.cors_origins,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=[SESSION, "retry-after", "x-request-id", "request-id"],
        )
    return app


class _ByMethod:
    """The endpoints of one path, by method."""

    def __init__(self, endpoints: Mapping[str, ASGIApp]) -> None:
        self._endpoints = endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        await self._endpoints[method](scope, receive, send)


class _ByProvider:
    """The endpoints of a path that two providers have, by the dialect of the request."""

    def __init__(self, state: State, endpoint: Callable[[State, WireFormat], ASGIApp]) -> None:
        self._of = {dialect.name: endpoint(state, dialect) for dialect in (OPENAI, ANTHROPIC)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._of[dialect_of(scope)](scope, receive, send)


class _Metrics(Endpoint):
    """Figures for Prometheus."""

    async def serve(self, request: Request, client: ClientConnection, owner: str, content: bytes) -> None:
        """Write them."""
        state = self.state
        gauges = {
            "requests_running": state.concurrency.running,
            "conversations_open": len(state.clients.pool) + len(state.agents.pool),
            "event_loop_gap_seconds": round(state.lag.longest, 4),
        }
        await client.answer(200, [(b"content-type", CONTENT_TYPE.encode())], state.metrics.text(gauges).encode())


async def _healthz(request: Request) -> JSONResponse:
    return JSONResponse({"status": "ok"})


async def _openapi(request: Request) -> JSONResponse:
    return JSONResponse(document())


async def _broken(request: Request, error: Exception) -> JSONResponse:
    """Answer an unexpected exception; the server logs it."""
    refused = Refused(500, "something went wrong in the gateway; its log says what.")
    return JSONResponse(refused.body("openai"), status_code=refused.status)


async def _not_served(request: Request, error: Exception) -> JSONResponse:
    """Answer what no route serves."""
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for these alone
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        told = f"{request.method} is not served on this path; use {(error.headers or {}).get('Allow', 'another')}."
    else:
        told = not_served(request.scope, [*ROUTES, *(route.path for route in OPEN_ROUTES)])
    refused = Refused(error.status_code, told)
    body = refused.body(dialect_of(request.scope))
    return JSONResponse(body, status_code=error.status_code, headers=error.headers)


async def _hello(request: Request) -> JSONResponse:
    """Answer the check of Claude Code whether the server is up."""
    return JSONResponse({"message": "hello"})


OPEN_ROUTES: Final = (Route("/healthz", _healthz), Route("/openapi.json", _openapi), Route("/api/hello", _hello))
"""The routes without a key."""

HANDLERS: Final[dict[Any, Any]] = {HTTPException: _not_served, Exception: _broken}
"""The handlers of unknown routes and unexpected exceptions."""

_SESSION: Final = "/v1/sessions/{id}"
_MESSAGE_BATCHES: Final = "/v1/messages/batches"
_CONVERSATION: Final = "/v1/conversations/{id}"
_messages = partial(DropIn, dialect=ANTHROPIC)
_responses = responses.CreateResponse
_to_openai = partial(PassThrough, dialect=OPENAI)
_to_either = partial(_ByProvider, endpoint=PassThrough)
_account_openai = partial(OfAccount, dialect=OPENAI)
_account_anthropic = partial(OfAccount, dialect=ANTHROPIC)
_account_either = partial(_ByProvider, endpoint=OfAccount)
ROUTES: Final[dict[str, dict[str, Callable[[State], ASGIApp]]]] = {
    "/metrics": {"GET": _Metrics},
    "/v1/chat/completions": {"POST": partial(DropIn, dialect=OPENAI)},
    "/v1/messages": {"POST": _messages},
    "/v1/messages/count_tokens": {"POST": partial(FoldedView, of=_messages, path="/v1/messages/count_tokens")},
    "/v1/responses": {"POST": _responses, "GET": responses.Upgrade},
    "/v1/responses/input_tokens": {"POST": partial(FoldedView, of=_responses, path="/responses/input_tokens")},
    "/v1/responses/compact": {"POST": partial(FoldedView, of=_responses, path="/responses/compact")},
    "/v1/responses/{id}": {"GET": responses.ShowResponse, "DELETE": responses.DeleteResponse},
    "/v1/responses/{id}/input_items": {"GET": responses.ListInputItems},
    "/v1/responses/{id}/cancel": {"POST": responses.CancelResponse},
    "/v1/models": {"GET": _to_either},
    "/v1/models/{id:path}": {"GET": _to_either},
    "/v1/completions": {"POST": _to_openai},
    "/v1/embeddings": {"POST": _to_openai},
    "/v1/moderations": {"POST": _to_openai},
    "/v1/files": {"GET": _account_either, "POST": _account_either},
    "/v1/files/{id}": {"GET": _account_either, "DELETE": _account_either},
    "/v1/files/{id}/content": {"GET": _account_either},
    "/v1/conversations": {"POST": _account_openai},
    _CONVERSATION: {"GET": _account_openai, "POST": _account_openai, "DELETE": _account_openai},
    f"{_CONVERSATION}/items": {"GET": _account_openai, "POST": _account_openai},
    f"{_CONVERSATION}/items/{{item}}": {"GET": _account_openai, "DELETE": _account_openai},
    "/v1/batches": {"GET": _account_openai, "POST": _account_openai},
    "/v1/batches/{id}": {"GET": _account_openai},
    "/v1/batches/{id}/cancel": {"POST": _account_openai},
    _MESSAGE_BATCHES: {"GET": _account_anthropic, "POST": _account_anthropic},
    f"{_MESSAGE_BATCHES}/{{id}}": {"GET": _account_anthropic, "DELETE": _account_anthropic},
    f"{_MESSAGE_BATCHES}/{{id}}/cancel": {"POST": _account_anthropic},
    f"{_MESSAGE_BATCHES}/{{id}}/results": {"GET": _account_anthropic},
    "/v1/sessions": {"GET": agent_api.Listing},
    _SESSION: {"GET": agent_api.Show, "DELETE": agent_api.Delete},
    f"{_SESSION}/messages": {"GET": agent_api.ShowMessages, "POST": agent_api.Speak},
    f"{_SESSION}/compress": {"POST": agent_api.Compress},
    f"{_SESSION}/reset": {"POST": agent_api.Reset},
    f"{_SESSION}/export": {"GET": agent_api.Export},
}
"""The endpoints by path and method, for clients with a key."""
