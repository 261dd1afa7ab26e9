"""Runs the gateway until it is told to stop."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import socket
import sys
import threading
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from leporello.errors import ConfigError
from leporello.gateway.app import create_app
from leporello.gateway.keys import is_loopback
from leporello.gateway.proxy import create_proxy
from leporello.gateway.workers import Workers

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence

    from starlette.applications import Starlette
    from starlette.routing import Route

    from leporello.config import Config
    from leporello.store import Store

GRACE_SECONDS: Final = 30
"""How long running turns may go on after the gateway was told to stop; then they are stored as they are."""

KEEP_ALIVE_SECONDS: Final = 75
"""How long an idle connection stays open: longer than clients keep theirs, so that none is closed under a request."""

HEADER_SECONDS: Final = 30.0
"""How long a request may take until its headers are there, and one that was refused to end."""

STALL_SECONDS: Final = 120.0
"""How long a client may take nothing of what is sent to it."""

_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8  # as in malloc.h
_LONG_TEXT, _ARENAS = 512 * 1024, 4
_LONGEST_HEADERS: Final = 64 * 1024
_SWITCH_SECONDS: Final = 0.0005  # a thread that computes must not keep the event loop from its turn
_YOUNG_OBJECTS: Final = 10_000  # a request makes some thousands, in few cycles: it is not looked through several times


def serve(
    config: Config,
    store: Store,
    *,
    host: str = "127.0.0.1",
    port: int = 8765,
    on_ready: Callable[[str], None],
    engine_options: Mapping[str, Any] | None = None,
    pages: Sequence[Route] = (),
) -> None:
    """Serve until a signal comes; `on_ready` is told the address when requests are answered."""
    _prepare()
    with listening(config, host, port) as listener:
        app = create_app(config, store, engine_options=engine_options, pages=pages)
        Server(app, on_ready=on_ready).run(listener)


def serve_in_processes(
    config: Config,
    command: Sequence[str],
    *,
    host: str,
    port: int,
    on_ready: Callable[[str], None],
    pages: Sequence[Route] = (),
) -> None:
    """Serve until a signal comes, each key in a process of its own; `command` starts one."""
    _prepare()
    with listening(config, host, port) as listener:
        proxy = create_proxy(config, Workers(config.gateway.processes, command), pages)
        Server(proxy, on_ready=on_ready).run(listener)


def serve_behind(config: Config, store: Store, *, purges: bool, on_ready: Callable[[str], None]) -> None:
    """Serve some keys, on any port of this machine, until the process that started this one ends or says so."""
    _prepare()
    with listening(config, "127.0.0.1", 0) as listener:
        server = Server(create_app(config, store, purges=purges), on_ready=on_ready)
        threading.Thread(target=_stop_with_parent, args=[server], name="leporello-parent", daemon=True).start()
        server.run(listener)


def _stop_with_parent(server: Server) -> None:
    """Stop when the other end of the standard input is closed: the parent process has ended."""
    while os.read(0, 1024):
        pass
    server.stop()


def _prepare() -> None:
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.set_threshold(_YOUNG_OBJECTS, *gc.get_threshold()[1:])
    _give_memory_back()


def _give_memory_back() -> None:
    """Let the C library return the memory of long texts at once; by itself it keeps more and more of it, per thread."""
    with suppress(OSError, AttributeError):  # another C library than glibc
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _LONG_TEXT)
        mallopt(_M_ARENA_MAX, _ARENAS)


def listening(config: Config, host: str, port: int) -> socket.socket:
    """Return the socket to serve on; without keys only this machine is served."""
    if not config.gateway.api_keys and not is_loopback(host):
        raise ConfigError(
            f"without keys the gateway serves this machine only, not {host}.",
            file=config.path,
            key="gateway.api_keys",
            hint="Make a key with `leporello serve --new-key NAME`, or leave --host out.",
        )
    if "" in config.gateway.api_keys:  # it would own the conversations of this machine's own user
        raise ConfigError("a key has no name.", file=config.path, key="gateway.api_keys", hint="Give it one.")
    return bound(host, port)


def bound(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host.strip("[]"), port), family=family, backlog=1024)
    except OSError as error:
        why = str(error.strerror).partition(" (while ")[0]  # the standard library adds the address
        raise ConfigError(f"{why}.", file=f"{host}:{port}", hint="--port 0 takes any free port.") from error
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # connections inherit it: a piece waits for no other
    return listener


class Server:
    """The gateway on a socket."""

    def __init__(self, app: Starlette, *, on_ready: Callable[[str], None]) -> None:
        self._app = app
        self._on_ready = on_ready
        self._inner = self._app.router.lifespan_context
        self._address = ""
        self._app.router.lifespan_context = self._announcing
        self.server: _Server = _Server(
            uvicorn.Config(
                self._app,
                ws="none",
                proxy_headers=False,
                http=_Protocol,
                loop="auto",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=GRACE_SECONDS,
            )
        )

    def run(self, listener: socket.socket) -> None:
        """Serve on a socket until told to stop."""
        host, port, *_ = listener.getsockname()
        self._address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        self.server.run(sockets=[listener])

    def stop(self) -> None:
        """Stop, from any thread: running turns are finished first."""
        self.server.should_exit = True

    @asynccontextmanager
    async def _announcing(self, app: Any) -> AsyncIterator[Any]:
        async with self._inner(app) as state:
            gc.collect()
            gc.freeze()  # what lives as long as the process is not looked at again and again
            self._on_ready(self._address)
            yield state


class _Server(uvicorn.Server):
    """Stops when it is signalled; what the program does then is up to the caller."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals while serving, in the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        usual = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in usual.items():
                signal.signal(number, handler)


class _Protocol(HttpToolsProtocol):
    """A connection with limits: on the length and the time of headers, and on how long a client reads nothing."""

    def connection_made(self, transport: Any) -> None:
        """Give the other side some time to say what it wants."""
        super().connection_made(transport)
        self._beside = 0
        """How many bytes have come since the last ones of a body: headers, which the parser keeps however long."""
        self._stalled: asyncio.TimerHandle | None = None
        self._dawdling: asyncio.TimerHandle | None = None
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Read on; once a request is there, its own limits hold."""
        self._beside += len(data)
        super().data_received(data)
        if self._beside > _LONGEST_HEADERS:
            self.send_400_response("The headers are too long.")
        self._watch()

    def on_headers_complete(self) -> None:
        """Take the headers of a request."""
        super().on_headers_complete()
        if self.scope["http_version"] == "1.0" and self.cycle is not None:
            _answer_without_chunks(self.cycle)

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body."""
        self._beside = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Take the end of a request."""
        self._beside = 0
        super().on_message_complete()

    def pause_writing(self) -> None:
        """Wait for a slow client, but not for one that takes nothing at all."""
        super().pause_writing()
        self._stalled = self.loop.call_later(STALL_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Write on."""
        super().resume_writing()
        _stop(self._stalled)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        _stop(self._stalled)
        _stop(self._dawdling)
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Close the connection after a while, unless a request is being answered on it."""
        cycle: Any = self.cycle  # None before the first request
        if cycle is not None and not cycle.response_complete:
            _stop(self._dawdling)
            self._dawdling = None
        elif self._dawdling is None:
            self._dawdling = self.loop.call_later(HEADER_SECONDS, self.transport.close)

    def _unsupported_upgrade_warning(self) -> None:
        """Log nothing: a request for another protocol is answered in this one."""


def _answer_without_chunks(cycle: RequestResponseCycle) -> None:
    """Let the end of the connection be the end of the answer: HTTP/1.0 has no chunks, but uvicorn sends them."""
    send = cycle.send
    cycle.chunked_encoding = False

    async def send_as_it_is(message: Any) -> None:
        cycle.expected_content_length = len(message.get("body", b""))
        await send(message)

    cycle.send = send_as_it_is  # type: ignore[method-assign]


def _stop(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
