"""The drop-in endpoints on the wire: what the provider gets, what the client gets, and who learns of which key."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from tests.fixtures.gateway import Loopback

from leporello.errors import StoreError
from leporello.gateway import exchange
from leporello.gateway.errors import KEY_REFUSED
from leporello.store.sqlite import SQLiteStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.gateway import Gateway, Wire

    from leporello.testing.model_server import ModelServer

UPSTREAM_KEY = "sk-upstream-key-that-no-client-knows"
HELLO: list[dict[str, Any]] = [{"role": "user", "content": "hello"}]
ANSWER = (
    b'{"id":"x", "choices":[ {"index":0,"message":{"role":"assistant","content":"h\\u00e9llo","extra":[1]},'
    b'"finish_reason":"stop"}],\n "usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5},"vendor":{"a":1}}'
)
CHUNKS = [
    b'data: {"id":"x","choices":[{"index":0,"delta":{"role":"assistant","content":""}}],"usage":null}\n\n',
    b': a comment\n\ndata: {"id":"x","choices":[{"index":0,"delta":{"content":"on',
    b'e"}}],"vendor":1}\r\n\r\n',
    b'data: {"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n',
]
COUNT = b'data: {"id":"x","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}\n\n'
DONE = b"data: [DONE]\n\n"
EVENTS = [
    b'event: message_start\ndata: {"type":"message_start","message":{"id":"a","usage":{"input_tokens":3}}}\n\n',
    b'event: content_block_start\ndata: {"type":"content_block_start","index":0,"content_block":{"type":"text",',
    b'"text":""}}\n\nevent: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":',
    b'{"type":"text_delta","text":"one"}}\n\n',
    b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"},',
    b'"usage":{"output_tokens":1}}\n\nevent: message_stop\ndata: {"type":"message_stop"}\n\n',
]


class Full(SQLiteStore):
    """A store on a full disk."""

    def append(self, *args: Any, **options: Any) -> Any:
        raise StoreError("the disk is full.")

    def ensure(self, *args: Any, **options: Any) -> Any:
        raise StoreError("the disk is full.")


class Strict(Loopback):
    """A provider of chat completions that refuses a field which it does not know, or a word; it quotes the request."""

    def __init__(self, word: bytes = b"stream_options") -> None:
        bodies: list[bytes] = []
        self.bodies = bodies

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                bodies.append(self.rfile.read(int(self.headers["content-length"])))
                refused = word in bodies[-1]
                self.send_response(400 if refused else 200)
                self.send_header("content-type", "application/json" if refused else "text/event-stream")
                self.end_headers()
                error = b'{"error": {"message": "Unrecognized request argument supplied", "input": %s}}' % bodies[-1]
                self.wfile.write(error if refused else b"".join([*CHUNKS, DONE]))

            def log_message(self, *args: object) -> None:
                """Say nothing."""

        super().__init__(Handler)


def streamed(gateway: Gateway, path: str, body: dict[str, Any], headers: dict[str, str] | None = None) -> bytes:
    return gateway.post(path, {**body, "stream": True}, headers).content


class TestTheProviderGets:
    def test_every_byte_of_the_client(self, start: Callable[..., Gateway], wire: Wire) -> None:
        wire.chunks = [ANSWER]
        message = b'{"role":"user","content":"h\xc3\xa9 \\ud83d\\ude00"}'
        body = b'{ "model":"m", "messages":[' + message + b'], "vendor":{"x":1e3},"n":1}'
        start(wire).post("/v1/chat/completions", body)
        assert wire.bodies == [body]

    def test_every_byte_of_an_anthropic_client(self, start: Callable[..., Gateway], wire: Wire) -> None:
        body = json.dumps(
            {
                "model": "m",
                "max_tokens": 5,
                "system": [{"type": "text", "text": "be kind", "cache_control": {"type": "ephemeral"}}],
                "messages": [{"role": "user", "content": [{"type": "text", "text": "hi", "citations": None}]}],
                "thinking": {"type": "enabled", "budget_tokens": 1024},
                "stream": True,
            },
            indent=1,
        ).encode()
        start(wire).post("/v1/messages?beta=true", body, {"anthropic-beta": "files-1"})
        assert wire.bodies == [body]
        assert wire.paths == ["/v1/messages?beta=true"]
        assert wire.requests[0]["anthropic-beta"] == "files-1"

    def test_one_option_more_when_an_answer_is_streamed(self, start: Callable[..., Gateway], wire: Wire) -> None:
        sent = {"model": "m", "messages": HELLO, "stream": True}
        start(wire).post("/v1/chat/completions", sent)
        got = json.loads(wire.bodies[0])
        assert got.pop("stream_options") == {"include_usage": True}
        assert got == sent

    def test_a_provider_that_refuses_to_be_asked_for_its_count_gets_the_clients_own_bytes(
        self, start: Callable[..., Gateway]
    ) -> None:
        with Strict() as provider:
            gateway = start(provider)
            talk: list[dict[str, Any]] = []
            for text in ("one", "two"):
                talk.append({"role": "user", "content": text})
                answer = gateway.chat(talk, stream=True)
                assert (answer.status_code, answer.content) == (200, b"".join([*CHUNKS, DONE]))
                talk.append({"role": "assistant", "content": "one"})
            assert [b"stream_options" in body for body in provider.bodies] == [True, False, False]
            (info,) = gateway.store.conversations()
            assert gateway.texts(info.key) == ["one", "one", "two", "one"]

    def test_a_refusal_that_only_quotes_the_field_changes_nothing_for_others(
        self, start: Callable[..., Gateway]
    ) -> None:
        with Strict(b"forbidden") as provider:
            gateway = start(provider)
            assert gateway.chat([{"role": "user", "content": "forbidden"}], stream=True).status_code == 400
            assert gateway.chat(HELLO, stream=True).status_code == 200
            assert [b"stream_options" in body for body in provider.bodies] == [True, False, True]

    def test_planted_a_refusal_of_our_own_field_that_reaches_the_client(
        self, start: Callable[..., Gateway], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(exchange, "_UNKNOWN_FIELD", frozenset())
        with pytest.raises(AssertionError):
            self.test_a_provider_that_refuses_to_be_asked_for_its_count_gets_the_clients_own_bytes(start)

    @pytest.mark.slow
    @pytest.mark.parametrize("given", [None, {"include_usage": False}, {"include_obfuscation": False}])
    def test_the_clients_own_options_beside_it(self, given: Any, start: Callable[..., Gateway], wire: Wire) -> None:
        start(wire).chat(HELLO, stream=True, stream_options=given)
        assert json.loads(wire.bodies[0])["stream_options"] == {**(given or {}), "include_usage": True}

    @pytest.mark.slow
    @pytest.mark.parametrize("manner", ["authorization", "x-api-key"])
    @pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
    def test_its_own_key_and_never_the_clients(
        self, manner: str, path: str, start: Callable[..., Gateway], wire: Wire
    ) -> None:
        secret = "client-secret"
        headers = {manner: f"Bearer {secret}" if manner == "authorization" else secret, "cookie": f"a={secret}"}
        start(wire).post(path, {"model": "m", "messages": HELLO}, headers)
        assert secret not in str(wire.requests)
        own = wire.requests[0]["x-api-key" if "messages" in path else "authorization"]
        assert own.removeprefix("Bearer ") == UPSTREAM_KEY

    def test_no_address_from_a_request(self, start: Callable[..., Gateway], wire: Wire) -> None:
        headers = {"x-forwarded-host": "evil.example", "x-base-url": "http://evil.example", "forwarded": "host=evil"}
        start(wire).chat(HELLO, headers, base_url="http://evil.example")
        assert wire.paths == ["/v1/chat/completions"]
        assert not set(headers) & set(wire.requests[0])


class TestTheClientGets:
    def test_every_byte_of_an_answer(self, start: Callable[..., Gateway], wire: Wire) -> None:
        wire.chunks, wire.headers = [ANSWER], {"content-type": "application/json", "x-request-id": "r1"}
        got = start(wire).chat(HELLO)
        assert got.content == ANSWER
        assert got.headers["x-request-id"] == "r1"

    def test_every_byte_of_a_stream_but_the_count_it_did_not_ask_for(
        self, start: Callable[..., Gateway], wire: Wire
    ) -> None:
        wire.headers = {"content-type": "text/event-stream; charset=utf-8"}
        wire.chunks = [*CHUNKS, COUNT, DONE]
        got = streamed(start(wire), "/v1/chat/completions", {"model": "m", "messages": HELLO})
        assert got == b"".join([*CHUNKS, DONE])

    def test_the_count_it_did_ask_for(self, start: Callable[..., Gateway], wire: Wire) -> None:
        wire.headers = {"content-type": "text/event-stream"}
        wire.chunks = [*CHUNKS, COUNT, DONE]
        body = {"model": "m", "messages": HELLO, "stream_options": {"include_usage": True}}
        assert streamed(start(wire), "/v1/chat/completions", body) == b"".join([*CHUNKS, COUNT, DONE])

    def test_every_byte_of_an_anthropic_stream(self, start: Callable[..., Gateway], wire: Wire) -> None:
        wire.headers, wire.chunks = {"content-type": "text/event-stream"}, list(EVENTS)
        gateway = start(wire)
        body = {"model": "m", "max_tokens": 5, "messages": HELLO}
        assert streamed(gateway, "/v1/messages", body) == b"".join(EVENTS)
        (info,) = gateway.store.conversations()
        assert [row.role for row in gateway.store.messages(info.key)] == ["user", "assistant"]

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "strange",
        [
            b"data: {}\n\n",
            b'data: {"choices": 5}\n\ndata: [DONE]\n\n',
            b'data: {"choices": [{"delta": {"tool_calls": [{"function": 7}]}}]}\n\ndata: [DONE]\n\n',
            b'data: {"type": "content_block_delta"}\n\ndata: {"type": "message_stop"}\n\n',
            b'data: {"type": "message_start", "message": []}\n\ndata: {"type": "message_stop"}\n\n',
            b"<html>not events at all</html>",
            b"\xff\xfe\n\n",
        ],
    )
    @pytest.mark.parametrize("kind", ["text/event-stream", "application/json"])
    def test_an_answer_that_nobody_can_read_as_it_is(
        self, strange: bytes, kind: str, start: Callable[..., Gateway], wire: Wire
    ) -> None:
        wire.headers, wire.chunks = {"content-type": kind}, [strange]
        gateway = start(wire)
        for path in ("/v1/chat/completions", "/v1/messages"):
            assert streamed(gateway, path, {"model": "m", "messages": HELLO}) == strange

    @pytest.mark.slow
    @pytest.mark.parametrize("asks_for_count", [True, False])
    def test_each_event_when_it_comes(self, asks_for_count: bool, start: Callable[..., Gateway], wire: Wire) -> None:
        """The provider sends the next event only when the client has the one before."""
        waits = [threading.Event() for _ in CHUNKS]
        events = [CHUNKS[0], b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n', CHUNKS[3], DONE]
        wire.headers = {"content-type": "text/event-stream"}
        wire.chunks = [item for event, wait in zip(events, waits, strict=True) for item in (event, wait)]
        options = {"stream_options": {"include_usage": True}} if asks_for_count else {}
        body = {"model": "m", "messages": HELLO, "stream": True, **options}
        with httpx2.stream("POST", f"{start(wire).address}/v1/chat/completions", json=body, timeout=20) as answer:
            pieces = answer.iter_raw()
            for event, wait in zip(events, waits, strict=True):
                assert next(pieces) == event
                wait.set()

    @pytest.mark.slow
    def test_the_providers_refusal(self, start: Callable[..., Gateway], wire: Wire) -> None:
        wire.status, wire.chunks = 429, [b'{"error": {"message":"slow down"}}']
        wire.headers = {"content-type": "application/json", "retry-after": "7"}
        got = start(wire).chat(HELLO)
        assert (got.status_code, got.content, got.headers["retry-after"]) == (429, wire.chunks[0], "7")

    def test_that_it_was_the_gateways_own_key(self, start: Callable[..., Gateway], wire: Wire) -> None:
        wire.status, wire.chunks = 401, [f'{{"error":"{UPSTREAM_KEY}"}}'.encode()]
        got = start(wire).chat(HELLO)
        assert (got.status_code, got.json()["error"]["message"]) == (401, KEY_REFUSED)
        assert UPSTREAM_KEY not in got.text

    def test_nothing_about_the_account_behind(self, start: Callable[..., Gateway], wire: Wire) -> None:
        wire.headers = {"content-type": "application/json", "set-cookie": "a=b", "openai-organization": "acme"}
        got = start(wire).chat(HELLO)
        assert not {"set-cookie", "openai-organization"} & set(got.headers)

    def test_a_clear_answer_when_the_provider_is_down(self, start: Callable[..., Gateway], wire: Wire) -> None:
        gateway = start(wire)
        wire.__exit__()
        try:
            got = gateway.chat(HELLO)
        finally:
            wire.__init__()  # type: ignore[misc]
            wire.__enter__()
        assert got.status_code == 502
        assert got.json()["error"]["type"] == "upstream_error"

    def test_a_broken_stream_as_a_broken_stream(self, gateway: Gateway, upstream: ModelServer) -> None:
        from leporello.testing.model_server import Failure

        upstream.fail(Failure.CLOSED_IN_ANSWER)
        with pytest.raises(httpx2.RemoteProtocolError):
            gateway.chat(HELLO, stream=True)


class TestTheProviderIsLeftAlone:
    @pytest.mark.slow
    @pytest.mark.parametrize("begun", [True, False])
    def test_when_the_client_leaves(self, begun: bool, start: Callable[..., Gateway], wire: Wire) -> None:
        wire.headers = {"content-type": "text/event-stream"}
        wire.chunks = [CHUNKS[0], threading.Event()] if begun else [threading.Event()]
        gateway = start(wire)
        body = {"model": "m", "messages": HELLO, "stream": True}
        with httpx2.stream("POST", f"{gateway.address}/v1/chat/completions", json=body, timeout=20) as answer:
            if begun:
                assert next(answer.iter_raw()) == CHUNKS[0]
        assert wire.left.wait(10)

    @pytest.mark.slow
    def test_when_nothing_can_be_stored(self, gateway: Gateway, upstream: ModelServer) -> None:
        """Nothing is sent; when the store has recovered, the same request is stored once."""
        talk: list[dict[str, Any]] = []
        name = gateway.say(talk, "hi")
        sound = gateway.store.__class__
        gateway.store.__class__ = Full
        for _ in range(3):
            got = gateway.chat([*talk, {"role": "user", "content": "once"}])
            assert (got.status_code, got.headers["retry-after"]) == (503, "5")
        assert len(upstream.requests) == 1
        gateway.store.__class__ = sound
        assert gateway.say(talk, "once") == name
        assert gateway.texts(name) == ["hi", "hi", "once", "once"]


def test_an_answer_that_could_not_be_stored_is_not_passed_on(
    start: Callable[..., Gateway], upstream: ModelServer
) -> None:
    """An answer that a client got is stored; a client that got none asks again, even after a restart."""
    gateway = start(upstream)
    talk: list[dict[str, Any]] = []
    sound = gateway.store.__class__

    def fill_up(request: Any) -> str:
        gateway.store.__class__ = Full
        return "not kept"

    upstream.script("hello", fill_up)
    name = gateway.say(talk, "hi")
    got = gateway.chat([*talk, {"role": "user", "content": "how are you?"}])
    assert (got.status_code, got.headers["retry-after"]) == (503, "5")
    assert "the answer cannot be stored at the moment" in got.json()["error"]["message"]
    gateway.stop()
    gateway.store.__class__ = sound
    assert gateway.texts(name) == ["hi", "hello", "how are you?"]
    again = start(upstream)
    assert again.say(talk, "how are you?") == name
    assert again.texts(name) == ["hi", "hello", "how are you?", "how are you?"]


def test_models_are_those_of_the_clients_provider(gateway: Gateway) -> None:
    assert httpx2.get(f"{gateway.address}/v1/models").json()["object"] == "list"
    anthropic = httpx2.get(f"{gateway.address}/v1/models", headers={"anthropic-version": "2023-06-01"}).json()
    assert "has_more" in anthropic


def test_tokens_are_counted_by_the_provider(gateway: Gateway) -> None:
    got = gateway.post("/v1/messages/count_tokens", {"model": "m", "messages": HELLO})
    assert got.json()["input_tokens"] > 0


def test_it_says_that_it_is_well(gateway: Gateway) -> None:
    assert httpx2.get(f"{gateway.address}/healthz").json() == {"status": "ok"}
