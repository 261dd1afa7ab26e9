"""Odd but possible HTTP: what is well-formed is served, what is not is refused, and nothing ends in a 500."""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from hypothesis import HealthCheck, example, given, settings as hypothesis_settings, strategies as st

from leporello.config import Config
from leporello.errors import ConfigError
from leporello.gateway import server
from leporello.gateway.keys import hashed
from leporello.gateway.openapi import document
from leporello.store.sqlite import SQLiteStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.fixtures.gateway import Gateway, Wire

    from leporello.testing.model_server import ModelServer

SOAK = bool(os.environ.get("LEPORELLO_SOAK"))
HELLO: list[dict[str, Any]] = [{"role": "user", "content": "hello"}]
BODY = json.dumps({"model": "m", "messages": HELLO}).encode()
CHAT = "/v1/chat/completions"
ROOM = "/v1/sessions/room/messages"


def connected(gateway: Gateway) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(gateway.address.rpartition(":")[2])), timeout=20)


def head(line: str, *headers: str) -> bytes:
    return "\r\n".join([line, "host: localhost", *headers, "", ""]).encode("latin-1")


def post(body: bytes, *headers: str, path: str = CHAT, version: str = "1.1") -> bytes:
    return head(f"POST {path} HTTP/{version}", f"content-length: {len(body)}", *headers) + body


def until_closed(line: socket.socket) -> bytes:
    got = b""
    while piece := line.recv(65536):
        got += piece
    return got


def raw(gateway: Gateway, request: bytes) -> bytes:
    """Send bytes, and return everything that comes back until the other side closes."""
    with connected(gateway) as line:
        line.sendall(request)
        return until_closed(line)


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


@pytest.fixture
def agent(start: Callable[..., Gateway], upstream: ModelServer) -> Gateway:
    """A gateway with a model for its agent."""
    main = {"default": "m", "provider": "openai", "base_url": upstream.openai_url, "context_length": 16_000}
    return start(upstream, {"model": main})


class TestHeaders:
    @pytest.mark.slow
    @pytest.mark.parametrize("name", ["x-title", "anthropic-beta", "anthropic-version", "http-referer"])
    @pytest.mark.parametrize("value", ["Café", "ÿ"])
    @pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
    def test_in_any_letters_go_on_as_utf8(
        self, name: str, value: str, encoding: str, start: Callable[..., Gateway], wire: Wire
    ) -> None:
        sent = f"{name}: {value}".encode(encoding).decode("latin-1")
        answer = raw(start(wire), post(BODY, sent, "connection: close", path="/v1/messages"))
        assert status(answer) == 200
        assert wire.requests[0][name].encode("latin-1") == value.encode()

    def test_that_come_twice_go_on_as_one_list(self, start: Callable[..., Gateway], wire: Wire) -> None:
        raw(start(wire), post(BODY, "anthropic-beta: a", "anthropic-beta: b", "connection: close"))
        assert wire.requests[0]["anthropic-beta"] == "a, b"

    def test_that_give_a_body_two_ends_are_refused(self, gateway: Gateway, upstream: ModelServer) -> None:
        chunked = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
        lines = ["content-length: 4", "transfer-encoding: chunked", "connection: close"]
        assert status(raw(gateway, head(f"POST {CHAT} HTTP/1.1", *lines) + chunked)) == 400
        assert upstream.requests == []


class TestBodies:
    def test_in_chunks_need_no_length(self, gateway: Gateway) -> None:
        chunked = b"".join(b"1\r\n%c\r\n" % byte for byte in BODY) + b"0\r\n\r\n"
        lines = ["transfer-encoding: chunked", "connection: close"]
        assert status(raw(gateway, head(f"POST {CHAT} HTTP/1.1", *lines) + chunked)) == 200

    def test_that_are_announced_are_asked_for(self, gateway: Gateway) -> None:
        with connected(gateway) as line:
            lines = [f"content-length: {len(BODY)}", "expect: 100-continue", "connection: close"]
            line.sendall(head(f"POST {CHAT} HTTP/1.1", *lines))
            assert line.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
            line.sendall(BODY)
            assert status(until_closed(line)) == 200

    def test_that_are_announced_too_long_are_not_asked_for(self, gateway: Gateway) -> None:
        lines = ["content-length: 99999999999", "expect: 100-continue", "connection: close"]
        assert status(raw(gateway, head(f"POST {CHAT} HTTP/1.1", *lines))) == 413

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "body",
        [
            b'{"model":"m","messages":[{"role":"user","content":"a"}],"messages":[{"role":"user","content":"b"}]}',
            b'{"model":"m","messages":[{"role":"user","role":"system","content":"a"}]}',
            b'{"model":"m","stream":false,"messages":[{"role":"user","content":"a"}],"stream":true}',
            b'{"content":"a","content":"b"}',
        ],
    )
    def test_that_say_a_thing_twice_are_refused(self, body: bytes, agent: Gateway, upstream: ModelServer) -> None:
        """Who reads which of the two is anybody's guess: what is stored must be what the provider reads."""
        for path in (CHAT, "/v1/messages", ROOM):
            answer = agent.post(path, body)
            assert answer.status_code == 400
            assert "twice" in answer.json()["error"]["message"]
        assert upstream.requests == []

    def test_with_numbers_beyond_all_are_refused(self, gateway: Gateway, upstream: ModelServer) -> None:
        """Such a number could not be written again when the conversation is folded."""
        body = b'{"model":"m","temperature":1e999,"messages":[{"role":"user","content":"a"}]}'
        assert gateway.post(CHAT, body).status_code == 400
        assert upstream.requests == []

    @pytest.mark.slow
    @pytest.mark.parametrize("depth", [100, 200, 400, 600, 950])
    def test_of_any_depth_do_no_harm(self, depth: int, agent: Gateway) -> None:
        deep = b'{"a":' * depth + b"1" + b"}" * depth
        for path, body in [
            (CHAT, b'{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"x","more":%b}]}]}'),
            (CHAT, b'{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[%b]}'),
            ("/v1/messages", b'{"model":"m","max_tokens":5,"messages":[{"role":"user","content":[%b]}]}'),
        ]:
            assert agent.post(path, body % deep).status_code in (200, 400)
        refused = agent.post(ROOM, b'{"content":[{"type":"text","text":"x","more":%b}]}' % deep)
        assert refused.status_code == 400 or depth == 100
        assert agent.post(ROOM.replace("room", "other"), {"content": "hello"}).status_code == 200

    def test_with_a_model_that_has_no_letters_are_the_providers_business(
        self, start: Callable[..., Gateway], wire: Wire
    ) -> None:
        body = b'{"model":"\\ud800","messages":[{"role":"user","content":"a"}]}'
        assert start(wire).post(CHAT, body).status_code == 200
        assert wire.bodies == [body]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["", "text", "tool", "\ud800", "user", "\0"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "text", "id", "name", "content", "input", "function"]), inner)
    ),
    max_leaves=8,
)
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool", "system", "developer"]) | JSON, "content": JSON},
    optional={"tool_calls": JSON, "tool_call_id": JSON, "name": JSON, "reasoning": JSON},
)


@pytest.fixture
def fearless(start: Callable[..., Gateway], wire: Wire) -> Gateway:
    """A gateway whose provider takes everything."""
    main = {"default": "m", "provider": "openai", "base_url": wire.openai_url, "context_length": 16_000}
    return start(wire, {"model": main})


@pytest.mark.slow
@example(messages=[{"role": "user", "content": [{"type": []}]}], more=[None])
@example(messages=[{"role": "tool", "content": "x", "tool_call_id": {}}], more=None)
@given(messages=st.lists(MESSAGE, max_size=4), more=JSON)
@hypothesis_settings(
    max_examples=1000 if SOAK else 40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_nothing_that_is_sent_ends_in_a_500(fearless: Gateway, messages: list[Any], more: Any) -> None:
    """Also when the same is sent again, and when it is the content that an agent gets."""
    body = {"model": "m", "max_tokens": 9, "messages": messages, "tools": more, "system": more, "stream": more}
    sent = [(CHAT, body), ("/v1/messages", body), (ROOM, {"content": more, "respond": False}), (CHAT, body)]
    answers = [fearless.post(path, body) for path, body in sent]
    assert not [answer.text for answer in answers if answer.status_code == 500]


class TestMethodsAndVersions:
    @pytest.mark.slow
    @pytest.mark.parametrize("path", ["/healthz", "/v1/sessions", "/v1/models", "/metrics", "/v1/sessions/room/export"])
    def test_a_head_has_no_body(self, path: str, agent: Gateway) -> None:
        agent.post(ROOM, {"content": "hello"})
        answer = raw(agent, head(f"HEAD {path} HTTP/1.1", "connection: close"))
        assert status(answer) == 200
        assert answer.endswith(b"\r\n\r\n")

    @pytest.mark.slow
    @pytest.mark.parametrize("method", ["OPTIONS", "TRACE", "CONNECT", "PATCH", "PROPFIND"])
    @pytest.mark.parametrize(
        ("path", "allowed"),
        [(CHAT, {"POST"}), ("/v1/sessions/room", {"GET", "HEAD", "DELETE"}), (ROOM, {"GET", "HEAD", "POST"})],
    )
    def test_other_methods_are_told_which_are_served(
        self, method: str, path: str, allowed: set[str], gateway: Gateway
    ) -> None:
        answer = raw(gateway, head(f"{method} {path} HTTP/1.1", "connection: close"))
        assert status(answer) == 405
        (line,) = [line for line in answer.split(b"\r\n") if line.lower().startswith(b"allow:")]
        assert set(line[6:].decode().replace(" ", "").split(",")) == allowed

    def test_a_method_that_http_does_not_have_is_refused(self, gateway: Gateway) -> None:
        assert status(raw(gateway, head(f"BREW {CHAT} HTTP/1.1", "connection: close"))) == 400

    def test_a_browser_is_given_no_leave_to_read(self, gateway: Gateway) -> None:
        """Another origin's page asks first, and is told nothing that lets it in."""
        lines = ["origin: http://localhost:3000", "access-control-request-method: POST", "connection: close"]
        assert b"access-control" not in raw(gateway, head(f"OPTIONS {CHAT} HTTP/1.1", *lines)).lower()

    def test_http_1_0_is_served_and_its_end_is_the_connections(self, gateway: Gateway) -> None:
        body = json.dumps({"model": "m", "messages": HELLO, "stream": True}).encode()
        answer = raw(gateway, post(body, version="1.0"))
        assert status(answer) == 200
        assert b"chunked" not in answer.lower()
        assert answer.endswith(b"data: [DONE]\n\n")

    def test_requests_in_a_row_are_answered_in_a_row(self, gateway: Gateway) -> None:
        bodies = [
            json.dumps({"model": "m", "messages": [{"role": "user", "content": f"n{n}"}]}).encode() for n in "123"
        ]
        answer = raw(gateway, post(bodies[0]) + post(bodies[1]) + post(bodies[2], "connection: close"))
        assert answer.count(b"HTTP/1.1 200 OK") == 3
        assert answer.index(b'"n1"') < answer.index(b'"n2"') < answer.index(b'"n3"')

    @pytest.mark.parametrize("kind", ["websocket", "h2c"])
    def test_an_upgrade_is_not_taken_and_fills_no_log(
        self, kind: str, gateway: Gateway, caplog: pytest.LogCaptureFixture
    ) -> None:
        lines = [
            "connection: close, upgrade",
            f"upgrade: {kind}",
            "sec-websocket-key: eA==",
            "sec-websocket-version: 13",
        ]
        assert status(raw(gateway, head("GET /healthz HTTP/1.1", *lines))) == 200
        assert [record for record in caplog.records if record.name.startswith("uvicorn")] == []

    @pytest.mark.parametrize(
        ("path", "answered"),
        [("/v1/sessions/", 403), ("/healthz/", 200), ("/v1/sessions/x/y/", 404), ("//v1/sessions", 403)],
    )
    def test_a_path_that_is_written_otherwise_leads_nowhere_else(
        self, path: str, answered: int, gateway: Gateway
    ) -> None:
        """It is served or not; no answer leads to where the request says that it was sent to."""
        answer = raw(gateway, f"GET {path} HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n".encode())
        assert status(answer) == answered
        assert b"evil" not in answer
        assert b"location" not in answer.lower()

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "name", ["%2e%2e", "a%2f..%2fb", "%00", "x" * 5000, "%252e%252e", "a%0d%0ab", "..;", "%c0%ae"]
    )
    @pytest.mark.parametrize("method", ["GET", "DELETE"])
    def test_a_name_is_never_a_path(self, method: str, name: str, gateway: Gateway) -> None:
        answer = raw(gateway, head(f"{method} /v1/sessions/{name} HTTP/1.1", "connection: close"))
        assert status(answer) in (400, 404, 405)


class TestPatience:
    @pytest.fixture(autouse=True)
    def impatient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(server, "HEADER_SECONDS", 0.3)
        monkeypatch.setattr(server, "STALL_SECONDS", 0.3)

    @pytest.fixture
    def drip(self) -> Iterator[Callable[[socket.socket, bytes], threading.Thread]]:
        """Send a byte now and then until the other side has enough."""
        over = threading.Event()
        threads = []

        def start(line: socket.socket, byte: bytes) -> threading.Thread:
            def work() -> None:
                try:
                    while not over.wait(0.02):
                        line.sendall(byte)
                except OSError:
                    return

            threads.append(thread := threading.Thread(target=work))
            thread.start()
            return thread

        yield start
        over.set()
        for thread in threads:
            thread.join()

    def test_ends_with_headers_that_never_end_behind_a_good_request(self, gateway: Gateway, drip: Any) -> None:
        with connected(gateway) as line:
            line.sendall(head("GET /healthz HTTP/1.1"))
            assert status(line.recv(1000)) == 200
            line.sendall(b"GET /healthz HTTP/1.1\r\nx: ")
            drip(line, b"x").join(10)
            assert gone(line)

    def test_ends_with_a_body_that_goes_on_after_its_refusal(
        self, start: Callable[..., Gateway], upstream: ModelServer, drip: Any
    ) -> None:
        gateway = start(upstream, api_keys={"ada": hashed("key-of-ada")})
        with connected(gateway) as line:
            line.sendall(head(f"POST {CHAT} HTTP/1.1", "content-length: 1000000000"))
            assert status(line.recv(1000)) == 401
            drip(line, b"x").join(10)
            assert gone(line)

    def test_ends_with_a_client_that_reads_nothing(self, start: Callable[..., Gateway], wire: Wire) -> None:
        """It holds one of the requests that its key may run; that one is free again."""
        gateway = start(wire, limits={"concurrency": 1})
        wire.headers, wire.chunks = {"content-type": "text/event-stream"}, [b": " + b"x" * 1_000_000 + b"\n\n"] * 64
        with connected(gateway) as line:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            line.sendall(post(BODY, path="/v1/messages"))
            assert line.recv(10)
            assert wire.left.wait(10)
            wire.chunks = [b"data: {}\n\n"]
            assert _soon(lambda: gateway.post("/v1/messages", BODY).status_code == 200)

    def test_lasts_for_a_request_that_takes_long(self, start: Callable[..., Gateway], wire: Wire) -> None:
        hold = threading.Event()
        wire.chunks = [hold, b"{}"]
        with connected(start(wire)) as line:
            line.sendall(post(BODY, "connection: close"))
            line.settimeout(1)
            with pytest.raises(TimeoutError):
                line.recv(1)
            hold.set()
            line.settimeout(20)
            assert status(until_closed(line)) == 200


def gone(line: socket.socket) -> bool:
    """Tell whether the other side has closed."""
    try:
        until_closed(line)
    except TimeoutError:
        return False
    except ConnectionError:
        return True
    return True


def _soon(true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if true():
            return True
    return False


ROUTES = [
    (method.upper(), path)
    for path, operations in document()["paths"].items()
    if "{id}" in path
    for method in operations
    if method != "parameters"
]


class TestOtherPeoplesConversations:
    """A request with the name of another user's conversation is answered as if it did not exist."""

    ADA, BOB = {"x-api-key": "key-of-ada"}, {"x-api-key": "key-of-bob"}

    @pytest.fixture
    def shared(self, start: Callable[..., Gateway], upstream: ModelServer) -> Gateway:
        main = {"default": "m", "provider": "openai", "base_url": upstream.openai_url, "context_length": 16_000}
        keys = {name: hashed(f"key-of-{name}") for name in ("ada", "bob")}
        gateway = start(upstream, {"model": main}, api_keys=keys)
        gateway.post("/v1/sessions/diary/messages", {"content": "my secret"}, self.ADA)
        gateway.say([], "my other secret", {**self.ADA, "x-leporello-session": "letters"})
        return gateway

    def test_there_are_routes_to_try(self) -> None:
        assert len(ROUTES) == 7

    @pytest.mark.slow
    @pytest.mark.parametrize(("method", "path"), ROUTES)
    @pytest.mark.parametrize("name", ["diary", "letters"])
    def test_no_route_leads_to_one(self, name: str, method: str, path: str, shared: Gateway) -> None:
        before = [list(shared.store.export(one, owner="ada")) for one in ("diary", "letters")]
        speaks = (method, path) == ("POST", "/v1/sessions/{id}/messages")
        content = b'{"content": "let me in"}' if speaks else b""
        address = f"{shared.address}{path.format(id=name)}"
        answer = httpx2.request(method, address, content=content, headers=self.BOB, timeout=20)
        assert answer.status_code == (200 if speaks else 404)
        assert "secret" not in answer.text
        assert [list(shared.store.export(one, owner="ada")) for one in ("diary", "letters")] == before

    @pytest.mark.slow
    def test_the_name_in_the_header_is_ones_own(self, shared: Gateway, upstream: ModelServer) -> None:
        for name in ("diary", "letters"):
            shared.say([], "let me in", {**self.BOB, "x-leporello-session": name})
            assert "secret" not in json.dumps(upstream.requests[-1].messages)
            assert shared.texts(name, "bob") == ["let me in"] * 2

    def test_a_key_without_a_name_is_none(self) -> None:
        """Its conversations would be those of this machine's own user."""
        with pytest.raises(ConfigError, match="no name"):
            server.listening(Config.from_mapping({"gateway": {"api_keys": {"": hashed("x")}}}), "127.0.0.1", 0)


class TestErrors:
    def test_of_our_own_are_told_in_json_and_say_nothing_of_the_inside(self, gateway: Gateway) -> None:
        class Broken(SQLiteStore):
            def conversations(self, *args: Any, **options: Any) -> Any:
                raise ZeroDivisionError("a secret of the inside")

        sound = gateway.store.__class__
        gateway.store.__class__ = Broken
        try:
            answer = httpx2.get(f"{gateway.address}/v1/sessions")
        finally:
            gateway.store.__class__ = sound
        assert answer.status_code == 500
        assert answer.json()["error"]["type"] == "api_error"
        assert "secret" not in answer.text

    @pytest.mark.slow
    @pytest.mark.parametrize("streams", [True, False])
    @pytest.mark.parametrize("refusal", [401, 403, 402])
    def test_of_the_gateways_own_account_are_none_of_the_clients_business(
        self,
        refusal: int,
        streams: bool,
        start: Callable[..., Gateway],
        wire: Wire,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """The agent's client learns that the operator must do something; the operator learns what."""
        caplog.set_level(logging.WARNING)
        main = {"default": "m", "provider": "openai", "base_url": wire.openai_url}
        gateway = start(wire, {"model": main})
        wire.status, wire.chunks = refusal, [b'{"error":{"message":"no more credit for organization acme-4711"}}']
        answer = gateway.post(ROOM, {"content": "hello", "stream": streams})
        assert answer.status_code == (200 if streams else 502)
        assert "operator" in answer.text
        assert "acme" not in answer.text
        assert wire.openai_url not in answer.text
        assert "acme" in caplog.text
