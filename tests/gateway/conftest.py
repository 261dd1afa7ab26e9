"""A gateway on a free port, and providers behind it: the model server, and one that sends exactly what a test says."""

from __future__ import annotations

import http.client
import json
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

import httpx2
import pytest

from leporello.config import Config
from leporello.gateway.app import create_app
from leporello.gateway.server import Server, listening
from leporello.store import open_store
from leporello.testing.model_server import ModelServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from leporello.store import Store

UPSTREAM_KEY = "sk-upstream-key-that-no-client-knows"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep every file of a test in its own folder, and no key of the machine in it."""
    monkeypatch.setenv("LEPORELLO_HOME", str(tmp_path / "home"))
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENROUTER_API_KEY", "AUXILIARY_COMPRESSION_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("UPSTREAM_KEY", UPSTREAM_KEY)
    return tmp_path / "home"


@dataclass
class Gateway:
    """A running gateway: its address, its store, and plain requests to it."""

    address: str
    store: Store
    server: Server
    thread: threading.Thread
    headers: dict[str, str] = field(default_factory=dict)

    def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> httpx2.Response:
        """Send a body as JSON, or bytes as they are."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"content-type": "application/json", **self.headers, **(headers or {})}
        return httpx2.post(f"{self.address}{path}", content=content, headers=sent, timeout=30)

    def get(self, path: str, headers: dict[str, str] | None = None) -> httpx2.Response:
        """Ask for something."""
        return httpx2.get(f"{self.address}{path}", headers={**self.headers, **(headers or {})}, timeout=30)

    def chat(self, messages: list[dict[str, Any]], headers: dict[str, str] | None = None, **body: Any) -> Any:
        """Ask for a chat completion."""
        return self.post("/v1/chat/completions", {"model": "m", "messages": messages, **body}, headers)

    def say(self, messages: list[dict[str, Any]], text: str, headers: dict[str, str] | None = None) -> str:
        """Add what the user says and the answer to a history, as clients do; returns the conversation's name."""
        messages.append({"role": "user", "content": text})
        answer = self.chat(messages, headers)
        assert answer.status_code == 200, answer.text
        messages.append({"role": "assistant", "content": answer.json()["choices"][0]["message"]["content"]})
        return str(answer.headers["x-leporello-session"])

    def texts(self, conversation: str, owner: str = "") -> list[str]:
        """Return what is stored of a conversation."""
        return [str(row.message["content"]) for row in self.store.messages(conversation, owner=owner)]

    def stop(self) -> None:
        """Stop as a signal does."""
        self.server.stop()
        self.thread.join(20)
        assert not self.thread.is_alive()


@contextmanager
def running(config: dict[str, Any], store: Store) -> Iterator[Gateway]:
    """Run a gateway in a thread."""
    settings = Config.from_mapping(config)
    ready = threading.Event()
    addresses: list[str] = []

    def announce(address: str) -> None:
        addresses.append(address)
        ready.set()

    server = Server(create_app(settings, store), on_ready=announce)
    with listening(settings, "127.0.0.1", 0) as listener:
        thread = threading.Thread(target=server.run, args=(listener,), daemon=True)
        thread.start()
        assert ready.wait(20)
        gateway = Gateway(addresses[0], store, server, thread)
        try:
            yield gateway
        finally:
            gateway.stop()


def settings(openai: str, anthropic: str = "http://127.0.0.1:9", **gateway: Any) -> dict[str, Any]:
    """Return a configuration with these providers."""
    upstreams = {
        "openai": {"base_url": openai, "api_key_env": "UPSTREAM_KEY"},
        "anthropic": {"base_url": anthropic, "api_key_env": "UPSTREAM_KEY"},
    }
    return {"windows": {"m": 16_000}, "gateway": {"upstreams": upstreams, **gateway}}


@pytest.fixture
def upstream() -> Iterator[ModelServer]:
    """The model server."""
    with ModelServer() as server:
        yield server


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Gateway]]:
    """Start gateways on one store; each is stopped at the end."""
    with ExitStack() as stack:
        store = open_store(tmp_path / "store.db")
        stack.callback(store.close)

        def make(upstream: Any, config: dict[str, Any] | None = None, **gateway: Any) -> Gateway:
            given = settings(upstream.openai_url, upstream.anthropic_url, **gateway)
            return stack.enter_context(running({**given, **(config or {})}, store))

        yield make


@pytest.fixture
def gateway(start: Callable[..., Gateway], upstream: ModelServer) -> Gateway:
    """A gateway to the model server."""
    return start(upstream)


class Loopback:
    """A server on loopback, as long as it is entered."""

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.anthropic_url = f"http://127.0.0.1:{self._server.server_port}"
        self.openai_url = f"{self.anthropic_url}/v1"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *args: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Wire(Loopback):
    """A provider that sends the chunks of a script, and remembers the bytes it got.

    A chunk may be a threading.Event: it is waited for, so that a test decides when the next one goes out.
    """

    def __init__(self) -> None:
        self.status = 200
        self.headers = {"content-type": "application/json"}
        self.chunks: list[bytes | threading.Event] = [b"{}"]
        self.bodies: list[bytes] = []
        self.requests: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.left = threading.Event()
        """Set when a client went away before the answer was complete."""
        super().__init__(self._handler())

    def _handler(self) -> type[BaseHTTPRequestHandler]:  # noqa: C901 - a class in a function
        wire = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                wire.bodies.append(self.rfile.read(int(self.headers.get("content-length", 0))))
                wire.requests.append({name.lower(): value for name, value in self.headers.items()})
                wire.paths.append(self.path)
                self.send_response(wire.status)
                for name, value in {**wire.headers, "transfer-encoding": "chunked"}.items():
                    self.send_header(name, value)
                self.end_headers()
                try:
                    self._send(wire.chunks)
                except OSError:
                    wire.left.set()
                    self.close_connection = True

            do_GET = do_POST  # noqa: N815 - the name that is called

            def _send(self, chunks: list[bytes | threading.Event]) -> None:
                for chunk in chunks:
                    if isinstance(chunk, threading.Event):
                        self._wait(chunk)
                    else:
                        self.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
                self.wfile.write(b"0\r\n\r\n")

            def _wait(self, event: threading.Event) -> None:
                """Wait for the test, or for the other side to go away."""
                self.connection.settimeout(0.05)
                while not event.is_set():
                    try:
                        if not self.connection.recv(1):
                            raise ConnectionResetError
                    except TimeoutError:
                        continue
                self.connection.settimeout(None)

            def log_message(self, *args: object) -> None:
                """Say nothing."""

        return Handler


@pytest.fixture
def wire() -> Iterator[Wire]:
    """A provider that sends what a test says."""
    with Wire() as server:
        yield server


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """A request and its answer, as bytes."""

    request: bytes
    status: int
    answer: bytes


class Tap(Loopback):
    """Passes requests and answers on, and keeps their bytes."""

    exchange = Exchange

    def __init__(self, target: str) -> None:
        self.exchanges: list[Exchange] = []
        self._target = target.removeprefix("http://")
        super().__init__(self._handler())

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        tap = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                line = http.client.HTTPConnection(tap._target, timeout=60)
                line.request("POST", self.path, body, dict(self.headers.items()))
                got = line.getresponse()
                self.send_response(got.status)
                for name, value in got.getheaders():
                    if name.lower() not in ("content-length", "transfer-encoding", "connection", "date", "server"):
                        self.send_header(name, value)
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()
                answer = b""
                while piece := got.read1():
                    answer += piece
                    self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                line.close()
                tap.exchanges.append(Exchange(request=body, status=got.status, answer=answer))
                self.wfile.write(b"0\r\n\r\n")

            def log_message(self, *args: object) -> None:
                """Say nothing."""

        return Handler


@pytest.fixture
def tap() -> type[Tap]:
    """What stands between two others and keeps their bytes."""
    return Tap
