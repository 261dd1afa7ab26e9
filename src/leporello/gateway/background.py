"""A gateway in a thread of another program, which ends with that program's process.

It has no keys, and other users of the machine can reach its port: so its address has a secret in it, and it serves the
drop-in endpoints only, not the agent API; pages that check by themselves who asks stand beside it.
"""

from __future__ import annotations

import secrets
import threading
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from starlette.responses import JSONResponse

from leporello.errors import LeporelloError
from leporello.gateway.app import create_app
from leporello.gateway.errors import Refused
from leporello.gateway.identity import SESSION
from leporello.gateway.server import Server, listening

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from starlette.routing import Route
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from leporello.config import Config
    from leporello.store import Store

_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 45.0  # running turns are finished first
_SESSION: Final = SESSION.encode()
_AGENT_API: Final = "sessions"
_PAGES: Final = "/view"
_SECRET_BYTES: Final = 16


class BackgroundGateway:
    """A running gateway: its address, and the statuses and conversations of its answers."""

    def __init__(self, port: int) -> None:
        self.place: str = f"http://127.0.0.1:{port}"
        """Where it listens."""
        self.prefix: str = f"/{secrets.token_urlsafe(_SECRET_BYTES)}"
        self.address: str = self.place + self.prefix
        """The address for its clients."""
        self.statuses: Counter[int] = Counter()
        """How many requests were answered with each status."""
        self.conversations: list[str] = []
        """The names of the conversations of its requests, in the order of their first answers."""

    def record(self, message: Message) -> None:
        """Record the status and the conversation of an answer."""
        if message["type"] != "http.response.start":
            return
        self.statuses[message["status"]] += 1
        name = dict(message["headers"]).get(_SESSION, b"").decode("latin-1")
        if name and name not in self.conversations:
            self.conversations.append(name)


class _SecretPath:
    """Middleware that checks the secret in the path, and records the answers."""

    def __init__(self, app: ASGIApp, gateway: BackgroundGateway) -> None:
        self._app = app
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def seen(message: Message) -> None:
            self._gateway.record(message)
            await send(message)

        if scope["path"] == _PAGES or scope["path"].startswith(f"{_PAGES}/"):
            await self._app(scope, receive, send)
            return
        prefix = f"{self._gateway.prefix}/"
        path, raw = scope["path"], (scope.get("raw_path") or scope["path"].encode())
        if not path.startswith(prefix) or _AGENT_API in path.split("/"):
            told = Refused(404, "this is not served here.").body("openai")
            await JSONResponse(told, status_code=404)(scope, receive, send)
            return
        rest = {"path": path[len(prefix) - 1 :], "raw_path": raw[len(prefix) - 1 :]}
        await self._app({**scope, **rest}, receive, seen)


@contextmanager
def in_background(config: Config, store: Store, pages: Sequence[Route] = ()) -> Iterator[BackgroundGateway]:
    """Serve this machine on a free port until the block ends; then running turns are finished.

    `pages` are routes under /view that check by themselves who asks.
    """
    with listening(config, "127.0.0.1", 0) as listener:
        gateway = BackgroundGateway(listener.getsockname()[1])
        app = create_app(config, store, pages=pages)
        app.add_middleware(_SecretPath, gateway=gateway)
        ready = threading.Event()
        server = Server(app, on_ready=lambda _: ready.set())
        thread = threading.Thread(target=server.run, args=[listener], name="leporello-gateway", daemon=True)
        thread.start()
        if not ready.wait(_START_SECONDS):
            raise LeporelloError(f"the gateway did not start within {_START_SECONDS:g} s.")
        try:
            yield gateway
        finally:
            server.stop()
            thread.join(_STOP_SECONDS)
