"""The routes of the gateway."""

from __future__ import annotations

from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.routing import Route

from leporello.gateway import agent_api
from leporello.gateway.dialects import ANTHROPIC, OPENAI
from leporello.gateway.door import Door
from leporello.gateway.drop_in import DropIn, PassThrough
from leporello.gateway.errors import Refused
from leporello.gateway.house import House
from leporello.gateway.metrics import CONTENT_TYPE
from leporello.gateway.openapi import document

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from leporello.config import Config
    from leporello.gateway.relay import Client
    from leporello.store import Store


def create_app(config: Config, store: Store, *, engine_options: Mapping[str, Any] | None = None) -> Starlette:
    """Return the gateway as an ASGI application; the store stays open when it ends.

    `engine_options` go to every conversation's engine (`llm`, for one).
    """
    house = House(config, store, engine_options=engine_options)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with house.open():
            yield

    count = PassThrough(house, ANTHROPIC, "/v1/messages/count_tokens")
    session = "/v1/sessions/{id}"
    app = Starlette(
        routes=[
            Route("/healthz", _healthz),
            Route("/openapi.json", _openapi),
            Route("/metrics", _Metrics(house), methods=["GET"]),
            Route("/v1/chat/completions", DropIn(house, OPENAI), methods=["POST"]),
            Route("/v1/messages", DropIn(house, ANTHROPIC), methods=["POST"]),
            Route("/v1/messages/count_tokens", count, methods=["POST"]),
            Route("/v1/models", _Models(house), methods=["GET"]),
            Route("/v1/sessions", agent_api.Listing(house), methods=["GET"]),
            Route(
                session, _ByMethod(GET=agent_api.Show(house), DELETE=agent_api.Delete(house)), methods=["GET", "DELETE"]
            ),
            Route(
                f"{session}/messages",
                _ByMethod(GET=agent_api.History(house), POST=agent_api.Speak(house)),
                methods=["GET", "POST"],
            ),
            Route(f"{session}/compress", agent_api.Compress(house), methods=["POST"]),
            Route(f"{session}/reset", agent_api.Reset(house), methods=["POST"]),
            Route(f"{session}/export", agent_api.Export(house), methods=["GET"]),
        ],
        lifespan=lifespan,
        exception_handlers={HTTPException: _not_served, Exception: _broken},
    )
    app.router.redirect_slashes = False  # it would lead to wherever the request says that it was sent to
    return app


class _ByMethod:
    """A path that means something else with each method."""

    def __init__(self, **doors: Door) -> None:
        self._doors = doors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        await self._doors[method](scope, receive, send)


class _Models:
    """The models of the provider whose client asks."""

    def __init__(self, house: House) -> None:
        self._openai = PassThrough(house, OPENAI, "/models")
        self._anthropic = PassThrough(house, ANTHROPIC, "/v1/models")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_anthropic = any(name == b"anthropic-version" for name, _ in scope["headers"])
        await (self._anthropic if is_anthropic else self._openai)(scope, receive, send)


class _Metrics(Door):
    """Figures for Prometheus."""

    async def serve(self, request: Request, client: Client, owner: str, content: bytes) -> None:
        """Write them."""
        house = self.house
        gauges = {
            "requests_running": house.concurrency.running,
            "conversations_open": house.shelf.open + house.rooms.open,
            "event_loop_gap_seconds": round(house.lag.longest, 4),
        }
        await client.answer(200, [(b"content-type", CONTENT_TYPE.encode())], house.metrics.text(gauges).encode())


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
