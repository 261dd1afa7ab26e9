"""A provider that is hostile, or only careless: what goes to clients and logs, and how much of it is taken."""

from __future__ import annotations

import gzip
import json
import logging
import zlib
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from tests.fixtures.gateway import UPSTREAM_KEY

from leporello.errors import ConfigError, ModelError, StoreError
from leporello.gateway.errors import public_message
from leporello.gateway.reply import decompressing
from leporello.gateway.scrub import Scrubber
from leporello.gateway.sse import LONGEST_EVENT, Events
from leporello.llm.errors import classify

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.gateway import Gateway, Wire

pytestmark = pytest.mark.slow

HELLO = [{"role": "user", "content": "hello"}]
ROUTES: dict[str, Callable[[Gateway], Any]] = {
    "chat": lambda gateway: gateway.chat(HELLO),
    "unknown role": lambda gateway: gateway.chat([{"role": "critic", "content": "x"}]),
    "messages": lambda gateway: gateway.post("/v1/messages", {"model": "m", "max_tokens": 9, "messages": HELLO}),
    "count_tokens": lambda gateway: gateway.post("/v1/messages/count_tokens", {"model": "m", "messages": HELLO}),
    "models": lambda gateway: gateway.get("/v1/models"),
    "models of anthropic": lambda gateway: gateway.get("/v1/models", {"anthropic-version": "2023-06-01"}),
}
STATUSES = (400, 401, 402, 403, 404, 409, 413, 422, 429, 500, 502, 503, 529)
SECRETS = {
    "the key": UPSTREAM_KEY,
    "the beginning of the key": UPSTREAM_KEY[:14],
    "the end of the key": UPSTREAM_KEY[-10:],
    "another key": "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789",
    "an organisation": "org-Ab12Cd34Ef56",
    "a project": "proj_Ab12Cd34Ef56",
    "an address": "http://10.1.2.3:8000/v1/chat",
    "a name inside": "vllm-7.models.svc.cluster.local:9000",
    "a machine": "gpu-4.internal",
    "an IPv6 address": "[fd00:12::7]:8000",
}
BOMB = gzip.compress(b"\n" * 30_000_000, 9)
ANSWER = {"choices": [{"message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}]}


@pytest.mark.parametrize("route", ROUTES)
def test_a_refusal_keeps_its_status_and_loses_what_is_secret(
    route: str, start: Callable[..., Gateway], wire: Wire
) -> None:
    gateway = start(wire)
    secrets = " and ".join(SECRETS.values())
    wire.chunks = [json.dumps({"error": {"message": f"no: {secrets}", "code": "c"}}).encode()]
    for status in STATUSES:
        wire.status = status
        got = ROUTES[route](gateway)
        assert got.status_code == status
        assert [name for name, secret in SECRETS.items() if secret in got.text] == []
        assert got.json()["error"]["message"]


@pytest.mark.parametrize("name", SECRETS)
@pytest.mark.parametrize("shape", ["text", "json", "nested", "name of a field", "cut off"])
def test_a_text_of_the_provider_is_scrubbed_whatever_its_shape(name: str, shape: str) -> None:
    secret = SECRETS[name]
    bodies: dict[str, bytes] = {
        "text": f"<html>denied: {secret} </html>".encode(),
        "json": json.dumps({"error": f"denied: {secret}"}).encode(),
        "nested": json.dumps([{"a": [{"b": f"{secret}"}]}]).encode(),
        "name of a field": json.dumps({secret: 1}).encode(),
        "cut off": json.dumps({"error": f"denied: {secret} x"}).encode()[:-2],
    }
    assert secret.encode() in bodies[shape]
    assert secret.encode() not in Scrubber(UPSTREAM_KEY, "http://gpu-4.internal:80/v1").content(bodies[shape])


def test_what_holds_no_secret_stays_byte_for_byte() -> None:
    for content in (b'{ "error":{"message":"too long: 5 > 4"}}', b"plain", b"\xff\xfe", b"", b"[1,2.50]"):
        assert Scrubber(UPSTREAM_KEY, "http://10.0.0.1/v1").content(content) == content


ACCOUNT = [
    *("anthropic-organization-id", "anthropic-workspace-id", "openai-organization", "openai-project", "x-account-id"),
    *("location", "set-cookie", "server", "via", "x-forwarded-server", "x-envoy-upstream-service-time", "cf-ray"),
    *("x-api-key", "www-authenticate", "x-anything-new"),
]


@pytest.mark.parametrize("route", ROUTES)
def test_headers_about_the_account_and_the_machines_stay_here(
    route: str, start: Callable[..., Gateway], wire: Wire
) -> None:
    useful = {"request-id": "req_1", "x-ratelimit-remaining-tokens": "7", "anthropic-ratelimit-tokens-limit": "8"}
    wire.headers = {"content-type": "application/json", **dict.fromkeys(ACCOUNT, "acme"), **useful}
    wire.chunks = [json.dumps(ANSWER).encode()]
    got = ROUTES[route](start(wire))
    assert got.status_code == 200
    assert [name for name in ACCOUNT if got.headers.get(name) == "acme"] == []
    assert useful.items() <= dict(got.headers).items()


class TestPackedAnswers:
    @pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
    def test_are_unpacked(self, pack: Any, start: Callable[..., Gateway], wire: Wire) -> None:
        encoding = "gzip" if pack is gzip.compress else "deflate"
        wire.headers = {"content-type": "application/json", "content-encoding": encoding}
        wire.chunks = [pack(json.dumps(ANSWER).encode())]
        got = start(wire).chat(HELLO)
        assert (got.status_code, got.json(), got.headers.get("content-encoding")) == (200, ANSWER, None)

    @pytest.mark.parametrize("route", ["chat", "unknown role", "models"])
    @pytest.mark.parametrize("status", [200, 500])
    @pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
    def test_are_unpacked_up_to_a_limit(
        self, route: str, status: int, kind: str, start: Callable[..., Gateway], wire: Wire
    ) -> None:
        wire.status, wire.headers = status, {"content-type": kind, "content-encoding": "gzip"}
        wire.chunks = [BOMB]
        gateway = start(wire, limits={"answer_bytes": 1_000_000})
        try:
            got = ROUTES[route](gateway)
        except httpx2.RemoteProtocolError:  # it had begun, and broke off
            assert status == 200
        else:
            assert got.status_code == 502
            assert "1,000,000" in got.text
        wire.status, wire.headers = 200, {"content-type": "application/json"}
        wire.chunks = [json.dumps(ANSWER).encode()]
        assert gateway.chat([{"role": "user", "content": "on"}]).status_code == 200

    def test_are_unpacked_piece_by_piece(self) -> None:
        """A bomb is never in memory as a whole: who takes the pieces can stop at any of them."""
        pieces = iter(decompressing("gzip")(BOMB))
        assert len(next(pieces)) <= 64 * 1024
        assert max(map(len, pieces)) <= 64 * 1024

    @pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "nonsense"])
    def test_in_other_ways_are_refused(self, encoding: str, start: Callable[..., Gateway], wire: Wire) -> None:
        wire.headers = {"content-type": "application/json", "content-encoding": encoding}
        assert start(wire).chat(HELLO).status_code == 502

    def test_that_are_broken_are_refused(self, start: Callable[..., Gateway], wire: Wire) -> None:
        wire.headers = {"content-type": "application/json", "content-encoding": "gzip"}
        wire.chunks = [b"\x1f\x8b\x08nonsense"]
        assert start(wire).chat(HELLO).status_code == 502


@pytest.mark.parametrize("status", [300, 301, 302, 304, 600, 777, 999])
@pytest.mark.parametrize("route", ["chat", "models", "unknown role"])
def test_a_status_that_no_answer_has_is_a_failure_of_the_provider(
    route: str, status: int, start: Callable[..., Gateway], wire: Wire
) -> None:
    wire.status, wire.headers = status, {"content-type": "text/plain", "location": "http://10.0.0.1/"}
    wire.chunks = []
    got = ROUTES[route](start(wire))
    assert got.status_code == 502
    assert "10.0.0.1" not in got.text


@pytest.mark.parametrize("count", [10**399, -(10**399), 1e300, 10**18, -5, "9" * 400, None, [], True])
@pytest.mark.parametrize("streams", [False, True])
def test_a_count_that_is_none_does_not_stop_an_answer(
    count: Any, streams: bool, start: Callable[..., Gateway], wire: Wire
) -> None:
    usage = {"prompt_tokens": count, "completion_tokens": count, "total_tokens": count}
    if streams:
        delta = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}]}
        wire.headers = {"content-type": "text/event-stream"}
        events = [delta, {"choices": [], "usage": usage}]
        wire.chunks = [*(f"data: {json.dumps(event)}\n\n".encode() for event in events), b"data: [DONE]\n\n"]
    else:
        wire.chunks = [json.dumps({**ANSWER, "usage": usage}).encode()]
    gateway = start(wire)
    got = gateway.chat(HELLO, stream=streams)
    assert got.status_code == 200
    assert gateway.texts(got.headers["x-leporello-session"]) == ["hello", "yes"]


FORGED = "no\r\nWARNING leporello: all is well\x1b[2J\x1b]0;owned\x07\u2028\x85\x9b31m"


@pytest.mark.parametrize("route", ROUTES)
def test_a_provider_cannot_forge_lines_of_the_log(
    route: str, start: Callable[..., Gateway], wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "leporello")
    wire.status, wire.chunks = 500, [json.dumps({"error": {"message": FORGED, "type": FORGED}}).encode()]
    ROUTES[route](start(wire))
    for record in caplog.records:
        if record.name.startswith("leporello"):
            assert record.getMessage().isprintable(), record.getMessage()


def test_the_name_of_a_model_cannot_forge_them_either(
    start: Callable[..., Gateway], wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "leporello")
    answer = {**ANSWER, "model": FORGED, "id": FORGED}
    answer["choices"] = [{"message": {"role": "assistant", "content": "yes"}, "finish_reason": FORGED}]
    wire.chunks = [json.dumps(answer).encode()]
    assert start(wire).chat(HELLO).status_code == 200
    assert all(record.getMessage().isprintable() for record in caplog.records if record.name.startswith("leporello"))


def test_what_an_error_quotes_is_one_line() -> None:
    assert str(classify(status=500, body=json.dumps({"error": {"message": FORGED}}))).isprintable()


def test_a_client_learns_nothing_of_files_and_machines() -> None:
    store = StoreError("the disk is full.", place="/srv/secret/store.db", hint="Look at /srv.")
    config = ConfigError("no model is set.", file="/etc/secret.yaml", key="model.default", hint="Edit /etc.")
    model = ModelError("no connection to http://10.0.0.7:8000/v1 (gpu.internal)")
    for error, kept in ((store, "the disk is full"), (config, "model.default"), (model, "no connection")):
        assert kept in public_message(error)
        assert not any(secret in public_message(error) for secret in ("/srv", "/etc", "10.0.0.7", "gpu.internal"))
    assert "secret" not in public_message(ValueError("secret"))


class TestEvents:
    def test_one_without_an_end_costs_what_it_is_long(self) -> None:
        """However long what is kept grows, the next piece is only looked at itself."""
        events = Events()
        pieces = [b"data: " + b"x" * 60_000] * 500
        assert [found for piece in pieces for found in events.feed(piece)] == []
        assert events.rest == b"".join(pieces)

    def test_a_very_long_one_is_passed_on_but_not_read(self) -> None:
        raw = b'data: "' + b"x" * LONGEST_EVENT + b'"\n\n'
        (event,) = Events().feed(raw)
        assert (event.raw, event.data) == (raw, None)
        assert Events().feed(b'data: "x"\n\n')[0].data == "x"
