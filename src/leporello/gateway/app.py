"""The routes of the gateway."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.routing import Route

from leporello.gateway import agent_api
from leporello.gateway.dialects import ANTHROPIC, OPENAI
from leporello.gateway.drop_in import DropIn, PassThrough
from leporello.gateway.endpoint import Endpoint
from leporello.gateway.errors import Refused
from leporello.gateway.metrics import CONTENT_TYPE
from leporello.gateway.openapi import document
from leporello.gateway.state import State

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from leporello.config import Config
    from leporello.gateway.relay import Client
    from leporello.store import Store


def create_app(
    config: Config, store: Store, *, engine_options: Mapping[str, Any] | None = None, purges: bool = True
) -> Starlette:
    """Return the gateway as an ASGI application; the store stays open when it ends.

    `engine_options` go to every conversation's engine (`llm`, for one). Of several processes on one store, one purges.
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
    app = Starlette(routes=[*OPEN_ROUTES, *keyed], lifespan=lifespan, exception_handlers=HANDLERS)
    app.router.redirect_slashes = False  # it would lead to wherever the request says that it was sent to
    return app


class _ByMethod:
    """A path that means something else with each method."""

    def __init__(self, endpoints: Mapping[str, ASGIApp]) -> None:
        self._endpoints = endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        await self._endpoints[method](scope, receive, send)


class _Models:
    """The models of the provider whose client asks."""

    def __init__(self, state: State) -> None:
        self._openai = PassThrough(state, OPENAI, "/models")
        self._anthropic = PassThrough(state, ANTHROPIC, "/v1/models")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_anthropic = any(name == b"anthropic-version" for name, _ in scope["headers"])
        await (self._anthropic if is_anthropic else self._openai)(scope, receive, send)


class _Metrics(Endpoint):
    """Figures for Prometheus."""

    async def serve(self, request: Request, client: Client, owner: str, content: bytes) -> None:
        """Write them."""
        state = self.state
        gauges = {
            "requests_running": state.concurrency.running,
            "conversations_open": state.clients.open + state.agents.open,
            "event_loop_gap_seconds": round(state.lag.longest, 4),
        }
        await client.answer(200, [(b"content-type", CONTENT_TYPE.encode())], state.metrics.text(gauges).encode())


async def _healthz(request: Request) -> JSONResponse:
    return JSONResponse({"status": "ok"})


async def _openapi(request: Request) -> JSONResponse:
    return JSONResponse(document())


async def _broken(request: Request, error: Exception) -> JSONResponse:
    """Answer what went wrong in here; the server logs it."""
    refused = Refused(500, "something went wrong in the gateway; its log says what.")
    return JSONResponse(refused.body("openai"), status_code=refused.status)


async def _not_served(request: Request, error: Exception) -> JSONResponse:
    """Answer what no route serves."""
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for these alone
    known = error.status_code != HTTPStatus.NOT_FOUND
    refused = Refused(error.status_code, f"this {'method' if known else 'path'} is not served here.")
    return JSONResponse(refused.body("openai"), status_code=error.status_code, headers=error.headers)


OPEN_ROUTES: Final = (Route("/healthz", _healthz), Route("/openapi.json", _openapi))
"""What is served without a key."""

HANDLERS: Final[dict[Any, Any]] = {HTTPException: _not_served, Exception: _broken}
"""What is answered when no route serves a request, or one breaks."""

_SESSION: Final = "/v1/sessions/{id}"
ROUTES: Final[dict[str, dict[str, Callable[[State], ASGIApp]]]] = {
    "/metrics": {"GET": _Metrics},
    "/v1/chat/completions": {"POST": partial(DropIn, dialect=OPENAI)},
    "/v1/messages": {"POST": partial(DropIn, dialect=ANTHROPIC)},
    "/v1/messages/count_tokens": {"POST": partial(PassThrough, dialect=ANTHROPIC, path="/v1/messages/count_tokens")},
    "/v1/models": {"GET": _Models},
    "/v1/sessions": {"GET": agent_api.Listing},
    _SESSION: {"GET": agent_api.Show, "DELETE": agent_api.Delete},
    f"{_SESSION}/messages": {"GET": agent_api.History, "POST": agent_api.Speak},
    f"{_SESSION}/compress": {"POST": agent_api.Compress},
    f"{_SESSION}/reset": {"POST": agent_api.Reset},
    f"{_SESSION}/export": {"GET": agent_api.Export},
}
"""What stands behind each path and method, for whoever has a key."""
