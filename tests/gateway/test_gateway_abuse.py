"""What nobody should send: refused with the right status, and everybody else is served as before."""

from __future__ import annotations

import json
import logging
import re
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from leporello.config import Config
from leporello.errors import ConfigError
from leporello.gateway import server
from leporello.gateway.keys import Keys, from_this_machine, hashed, is_loopback, new_key
from leporello.gateway.server import listening

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.gateway import Gateway, Wire

    from leporello.testing.model_server import ModelServer

HELLO = [{"role": "user", "content": "hello"}]
PATHS = ["/v1/chat/completions", "/v1/messages", "/v1/sessions/room/messages"]
KEYS = {"ada": hashed("key-of-ada")}


def raw(gateway: Gateway, request: bytes) -> bytes:
    """Send bytes, and return what comes back until the other side closes."""
    with socket.create_connection(("127.0.0.1", int(gateway.address.rpartition(":")[2])), timeout=20) as line:
        line.sendall(request)
        got = b""
        while piece := line.recv(65536):
            got += piece
            if b"\r\n\r\n" in got and b"content-length" in got.lower():
                break
        return got


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


class TestBodies:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"{",
            b"[]",
            b"null",
            b'"text"',
            b"\xff\xfe",
            b'{"messages": NaN}',
            '{"model":"m"}'.encode("utf-16"),
            b"[" * 100_000,
            b'{"a":' * 100_000,
            b'{"messages": "hello", "content": 5}',
            b'{"messages": [1], "content": null}',
            b'{"content": ""}',
            b'{"content": "x", "unknown": 1}',
        ],
        ids=repr,
    )
    def test_that_make_no_sense_are_wrong(self, body: bytes, gateway: Gateway, upstream: ModelServer) -> None:
        for path in PATHS:
            got = gateway.post(path, body)
            assert got.status_code == 400, got.text
            assert got.json()["error"]["message"]
        assert upstream.requests == []

    @pytest.mark.slow
    def test_that_are_nested_deeply_do_no_harm(self, gateway: Gateway) -> None:
        part: Any = {}
        for _ in range(300):
            part = {"a": part}
        got = gateway.chat([{"role": "user", "content": [{"type": "text", "text": "x", "more": part}]}])
        assert got.status_code in (200, 400)
        assert gateway.chat(HELLO).status_code == 200

    @pytest.mark.parametrize("path", PATHS)
    def test_that_are_too_long_are_refused(
        self, path: str, start: Callable[..., Gateway], upstream: ModelServer
    ) -> None:
        gateway = start(upstream, limits={"body_bytes": 2000})
        assert gateway.post(path, b'{"a":"' + b"x" * 3000 + b'"}').status_code == 413
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n".encode()
        chunk = b"800\r\n" + b"x" * 2048 + b"\r\n"
        assert status(raw(gateway, head + chunk * 4)) == 413

    def test_that_never_end_are_given_up(self, start: Callable[..., Gateway], upstream: ModelServer) -> None:
        gateway = start(upstream, limits={"seconds": 0.3})
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n{"
        assert status(raw(gateway, head)) == 408

    def test_errors_are_told_in_the_words_of_the_dialect(self, gateway: Gateway) -> None:
        assert gateway.post("/v1/messages", b"{").json()["type"] == "error"
        assert set(gateway.post("/v1/chat/completions", b"{").json()["error"]) == {"message", "type", "param", "code"}


class TestPaths:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        "path",
        [
            "/",
            "/v1",
            "/admin",
            "/v1/chat/completions/x/",
            "/v1/../healthz/x",
            "/v1/sessions/../../etc/passwd",
            "/v1/sessions/..%2f..%2fetc%2fpasswd",
            "/v1/sessions/a%00b",
            "/v1/sessions/%ff",
            "/v1/sessions/a%0d%0aset-cookie:%20x",
            "//evil.example/v1/models/x",
        ],
    )
    def test_that_lead_nowhere_are_not_found(self, path: str, gateway: Gateway) -> None:
        head = f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode()
        answer = raw(gateway, head)
        assert status(answer) in (404, 400, 307)
        assert b"set-cookie" not in answer.lower().partition(b"\r\n\r\n")[0]
        assert status(answer) != 307 or b"evil" not in answer

    @pytest.mark.slow
    @pytest.mark.parametrize("name", ["..", "a b", "é", "x" * 200, "a%2Fb", "a\\b", "$(id)"])
    def test_names_of_conversations_are_names(self, name: str, gateway: Gateway) -> None:
        assert gateway.post(f"/v1/sessions/{name}/messages", {"content": "x"}).status_code in (400, 404)

    @pytest.mark.parametrize(("method", "path"), [("GET", PATHS[0]), ("PUT", "/v1/sessions"), ("DELETE", "/healthz")])
    def test_other_methods_are_not_allowed(self, method: str, path: str, gateway: Gateway) -> None:
        got = httpx2.request(method, f"{gateway.address}{path}")
        assert got.status_code == 405
        assert "allow" in got.headers

    @pytest.mark.slow
    @pytest.mark.parametrize("query", ["limit=0", "limit=-1", "limit=x", "limit=1e3", "offset=²", "limit=" + "9" * 400])
    def test_numbers_are_numbers(self, query: str, gateway: Gateway) -> None:
        assert httpx2.get(f"{gateway.address}/v1/sessions?{query}").status_code == 400


class TestHeaders:
    def test_that_break_lines_are_refused(self, gateway: Gateway, upstream: ModelServer) -> None:
        body = json.dumps({"model": "m", "messages": HELLO}).encode()
        head = (
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
            b"x-leporello-session: a\x0bb\r\nanthropic-beta: x\x00y\r\n"
            b"content-length: %d\r\n\r\n" % len(body)
        )
        assert status(raw(gateway, head + body)) == 400
        assert upstream.requests == []

    def test_that_are_endless_are_refused(self, gateway: Gateway) -> None:
        head = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-a: " + b"a" * 200_000 + b"\r\n\r\n"
        with suppress(ConnectionError, IndexError):  # closed without an answer, which is one
            assert status(raw(gateway, head)) in (400, 431)
        assert httpx2.get(f"{gateway.address}/healthz").status_code == 200

    def test_that_follow_a_body_without_end_are_refused(self, gateway: Gateway) -> None:
        head = b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
        with suppress(ConnectionError):
            assert status(raw(gateway, head + b"1\r\n{\r\n0\r\nx-a: " + b"a" * 200_000)) == 400

    def test_that_never_end_are_given_up(self, gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
        """A connection on which no request comes together is closed; others go on, however long they last."""
        monkeypatch.setattr(server, "HEADER_SECONDS", 0.3)
        with httpx2.Client() as patient:
            assert patient.get(f"{gateway.address}/healthz").status_code == 200
            assert raw(gateway, b"GET /healthz HTTP/1.1\r\nhost: local") == b""
            assert patient.get(f"{gateway.address}/healthz").status_code == 200

    def test_with_two_lengths_are_refused(self, gateway: Gateway) -> None:
        head = b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3\r\ncontent-length: 5\r\n\r\nabcde"
        assert status(raw(gateway, head)) == 400

    @pytest.mark.parametrize(
        "headers",
        [
            {"host": "evil.example"},
            {"origin": "https://evil.example"},
            {"host": "127.0.0.1.evil.example"},
            {"host": ""},
        ],
    )
    def test_of_a_web_page_are_refused_without_keys(self, headers: dict[str, str], gateway: Gateway) -> None:
        assert gateway.chat(HELLO, headers).status_code == 403


class TestKeys:
    @pytest.mark.slow
    @pytest.mark.parametrize("key", ["key", "key-of-adb", "KEY-OF-ADA", "key-of-ada x", "*", "' or 1=1 --"])
    def test_guesses_open_nothing(self, key: str, start: Callable[..., Gateway], upstream: ModelServer) -> None:
        gateway = start(upstream, api_keys=KEYS)
        for path in [*PATHS, "/v1/models", "/v1/sessions", "/metrics", "/v1/sessions/a/export"]:
            method = "POST" if path in PATHS else "GET"
            for headers in ({}, {"x-api-key": key}, {"authorization": f"Bearer {key}"}, {"authorization": key}):
                got = httpx2.request(method, f"{gateway.address}{path}", headers=headers)
                assert got.status_code == 401
        assert upstream.requests == []

    def test_a_body_is_not_even_read_without_one(self, start: Callable[..., Gateway], upstream: ModelServer) -> None:
        gateway = start(upstream, api_keys=KEYS)
        head = b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: 30000000\r\n\r\n"
        assert status(raw(gateway, head)) == 401

    def test_new_ones_are_long_and_kept_as_hashes(self) -> None:
        key = new_key()
        assert len(key) > 40
        assert new_key() != key
        assert Keys({"ada": hashed(key)}).owner({"x-api-key": key}) == "ada"
        assert key not in hashed(key)

    def test_without_any_only_this_machine_is_served(self) -> None:
        for host in ("0.0.0.0", "192.0.2.1", "example.org", "::"):  # noqa: S104 - refused
            with pytest.raises(ConfigError, match="this machine only"):
                listening(Config.from_mapping({}), host, 0)
        for host in ("127.0.0.1", "localhost", "127.1.2.3"):
            listening(Config.from_mapping({}), host, 0).close()

    def test_loopback_is_what_it_says(self) -> None:
        assert all(map(is_loopback, ["127.0.0.1", "::1", "[::1]", "localhost", "LOCALHOST"]))
        others = ["", "0.0.0.0", "127.0.0.1.example", "localhost.example", "10.0.0.1"]  # noqa: S104 - not bound
        assert not any(map(is_loopback, others))
        assert from_this_machine({"host": "localhost:80", "origin": "http://127.0.0.1:3000"})
        assert not from_this_machine({"host": "localhost", "origin": "null"})


class TestLimits:
    def test_one_more_than_may_run_is_told_to_come_back(self, start: Callable[..., Gateway], wire: Wire) -> None:
        gateway = start(wire, api_keys={**KEYS, "bob": hashed("key-of-bob")}, limits={"concurrency": 1})
        hold = threading.Event()
        wire.headers, wire.chunks = {"content-type": "text/event-stream"}, [b": wait\n\n", hold]
        ada, bob = {"x-api-key": "key-of-ada"}, {"x-api-key": "key-of-bob"}
        body = {"model": "m", "messages": HELLO, "stream": True}
        with httpx2.stream("POST", f"{gateway.address}/v1/messages", json=body, headers=ada, timeout=20) as running:
            pieces = running.iter_raw()
            assert next(pieces) == b": wait\n\n"
            refused = gateway.post("/v1/messages", body, ada)
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
            refused = gateway.post("/v1/responses", {"model": "m", "input": "hello"}, ada)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")  # Codex gives up on the other
            hold.set()
            assert list(pieces) == []
            assert gateway.post("/v1/messages", body, bob).status_code == 200
        assert gateway.post("/v1/messages", body, ada).status_code == 200

    @pytest.mark.slow
    def test_a_slow_client_does_not_hold_up_others(self, start: Callable[..., Gateway], wire: Wire) -> None:
        """One client asks for far more than it reads; another is served meanwhile."""
        gateway = start(wire)
        wire.headers, wire.chunks = {"content-type": "text/event-stream"}, [b": " + b"x" * 1_000_000 + b"\n\n"] * 64
        body = json.dumps({"model": "m", "messages": HELLO, "stream": True}).encode()
        with socket.create_connection(("127.0.0.1", int(gateway.address.rpartition(":")[2]))) as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            head = f"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
            slow.sendall(head.encode() + body)
            assert slow.recv(10)
            assert httpx2.get(f"{gateway.address}/healthz").status_code == 200
            wire.chunks = [b"data: {}\n\n"]
            assert gateway.post("/v1/messages", body).status_code == 200


@pytest.mark.slow
def test_no_key_and_no_path_reaches_a_log(
    start: Callable[..., Gateway], upstream: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    gateway = start(upstream, api_keys=KEYS)
    secret = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"
    gateway.chat(HELLO, {"x-api-key": secret})
    gateway.chat(HELLO, {"x-api-key": "key-of-ada", "x-other": secret})
    httpx2.get(f"{gateway.address}/v1/{secret}")
    ours = "\n".join(
        record.getMessage() for record in caplog.records if not re.match(r"httpx|httpcore|openai|asyncio", record.name)
    )
    for one in (secret, "key-of-ada", "sk-upstream-key-that-no-client-knows"):
        assert one not in ours
