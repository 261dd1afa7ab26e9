"""What clients ask besides answers, how they write paths, how they pack bodies, and pages in a browser."""

from __future__ import annotations

import gzip
import http.client
import json
import re
import tracemalloc
import zlib
from contextlib import closing
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from backports import zstd
from tests.fixtures.gateway import UPSTREAM_KEY

from leporello.config import Config
from leporello.errors import ConfigError
from leporello.gateway import decompression, paths
from leporello.gateway.app import ROUTES
from leporello.gateway.decompression import decompressed
from leporello.gateway.errors import Refused
from leporello.gateway.keys import hashed
from leporello.gateway.paths import CanonicalPaths

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.gateway import Gateway, Wire

    from leporello.testing.model_server import ModelServer

HELLO = [{"role": "user", "content": "hello"}]
BODY = json.dumps({"model": "m", "messages": HELLO}).encode()
ANTHROPIC = {"anthropic-version": "2023-06-01"}
KEY = "lpr-key-of-ada"
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstd.compress,
}


def ask(gateway: Gateway, method: str, path: str, headers: dict[str, str] | None = None) -> httpx2.Response:
    content = b'{"input":"x"}' if method == "POST" else None
    return httpx2.request(method, f"{gateway.address}{path}", content=content, headers=headers, timeout=30)


class TestPassThrough:
    @pytest.mark.parametrize(
        ("method", "path", "headers"),
        [
            ("POST", "/v1/embeddings", {}),
            ("POST", "/v1/completions", {}),
            ("POST", "/v1/moderations", {}),
            ("GET", "/v1/models/meta-llama/Llama-3.1-8B", {}),
            ("GET", "/v1/models/claude-sonnet-5", ANTHROPIC),
            ("GET", "/v1/models/vendor%2Fmodel:free", {}),
            ("GET", "/v1/files?limit=3", {}),
            ("POST", "/v1/files", ANTHROPIC),
            ("GET", "/v1/files/file-1/content", {}),
            ("POST", "/v1/batches", {}),
            ("POST", "/v1/batches/batch_1/cancel", {}),
            ("POST", "/v1/conversations", {}),
            ("GET", "/v1/conversations/conv_1", {}),
            ("GET", "/v1/conversations/conv_1/items?limit=2", {}),
            ("POST", "/v1/conversations/conv_1/items", {}),
            ("GET", "/v1/conversations/conv_1/items/msg_1", {}),
            ("GET", "/v1/messages/batches", ANTHROPIC),
            ("GET", "/v1/messages/batches/msgbatch_1/results", {}),
        ],
    )
    def test_it_goes_to_the_provider_as_it_is_and_so_does_the_answer(
        self, method: str, path: str, headers: dict[str, str], start: Callable[..., Gateway], wire: Wire
    ) -> None:
        wire.chunks = [b'{"data": [1,', b"2]}"]
        got = ask(start(wire), method, path, headers)
        assert (got.status_code, got.content) == (200, b'{"data": [1,2]}')
        assert wire.paths == [path]
        assert wire.bodies == [b'{"input":"x"}' if method == "POST" else b""]
        assert UPSTREAM_KEY in json.dumps(wire.requests[0])

    @pytest.mark.parametrize(
        "path",
        [
            "/v1/models/../organization/users",
            "/v1/models/x/../../organization/users",
            "/v1/models/%2e%2e/organization/users",
            "/v1/models/..%2forganization%2fusers",
            "/v1/models/x%2f..%2f..%2forganization%2fusers",
            "/v1/models/x%252f..",
            "/v1/files/..%2f..%2fadmin",
            "/v1/files/a%00b",
        ],
    )
    def test_an_id_does_not_lead_elsewhere(self, path: str, start: Callable[..., Gateway], wire: Wire) -> None:
        address = start(wire).address.removeprefix("http://")
        with closing(http.client.HTTPConnection(address, timeout=30)) as line:
            line.request("GET", path)  # as it is: other clients would make it another path first
            with line.getresponse() as answer:
                assert answer.status in (400, 404)
        assert wire.paths == []

    def test_planted_ids_that_are_not_looked_at(
        self, start: Callable[..., Gateway], wire: Wire, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(paths, "_SAFE", re.compile(".*"))
        with pytest.raises(AssertionError):
            self.test_an_id_does_not_lead_elsewhere("/v1/models/../organization/users", start, wire)

    @pytest.mark.parametrize("path", ["/v1/files", "/v1/batches/b", "/v1/messages/batches", "/v1/conversations/c"])
    def test_what_an_account_holds_is_not_for_those_who_share_it(
        self, path: str, start: Callable[..., Gateway], wire: Wire
    ) -> None:
        keyed = {"api_keys": {"ada": hashed(KEY)}}
        got = ask(start(wire, **keyed), "GET", path, {"x-leporello-key": KEY})
        assert got.status_code == 403
        assert "pass_client_key: always" in got.json()["error"]["message"]
        assert wire.paths == []
        own = {"api_key_env": None, "pass_client_key": "always"}
        upstreams = {
            "openai": {"base_url": wire.openai_url, **own},
            "anthropic": {"base_url": wire.anthropic_url, **own},
        }
        settings = {"gateway": {"upstreams": upstreams, **keyed}}
        assert ask(start(wire, settings), "GET", path, {"x-leporello-key": KEY}).status_code == 200

    def test_claude_code_is_greeted(self, start: Callable[..., Gateway], wire: Wire) -> None:
        gateway = start(wire, api_keys={"ada": hashed(KEY)})
        assert httpx2.head(f"{gateway.address}/api/hello").status_code == 200
        assert wire.paths == []


class TestPaths:
    @pytest.mark.parametrize(
        "path",
        [
            "/v1/chat/completions",
            "/v1/chat/completions/",
            "/chat/completions",
            "/chat/completions/",
            "/v1/v1/chat/completions",
            "/v1/v1/v1/chat/completions//",
            "//v1/chat/completions",
            "/v1//chat/completions",
        ],
    )
    def test_a_base_url_that_is_a_little_wrong_is_understood(
        self, path: str, gateway: Gateway, upstream: ModelServer
    ) -> None:
        assert gateway.post(path, BODY).status_code == 200
        assert [request.path for request in upstream.requests] == ["/v1/chat/completions"]

    def test_so_are_those_of_anthropic_and_of_our_own(self, gateway: Gateway) -> None:
        body = {"model": "m", "max_tokens": 9, "messages": HELLO}
        assert gateway.post("/messages?beta=true", body).status_code == 200
        assert gateway.post("/v1/v1/messages?beta=true", body).status_code == 200
        assert gateway.get("/sessions/").status_code == 200
        assert gateway.get("/healthz/").status_code == 200

    @pytest.mark.parametrize("path", ["/", "/v1", "/v1/", "/v2/chat/completions", "/v1x/models", "//"])
    def test_others_are_not(self, path: str, gateway: Gateway) -> None:
        assert gateway.get(path).status_code == 404

    def test_every_route_is_canonical(self) -> None:
        canonical = CanonicalPaths(lambda *_: None, ROUTES).canonical  # type: ignore[arg-type]
        assert [path for path in ROUTES if canonical(path) != path] == []

    def test_an_unknown_path_is_answered_in_the_clients_words_with_a_hint(self, gateway: Gateway) -> None:
        openai = gateway.post("/v1/chat/completion", BODY)
        assert (openai.status_code, openai.json()["error"]["type"]) == (404, "not_found_error")
        assert "Did you mean /v1/chat/completions?" in openai.json()["error"]["message"]
        anthropic = gateway.post("/anthropic/v1/messages", BODY, ANTHROPIC)
        assert (anthropic.status_code, anthropic.json()["type"]) == (404, "error")
        assert "For /v1/messages the base_url" in anthropic.json()["error"]["message"]
        lost = gateway.get("/index.html").json()["error"]["message"]
        assert "/v1/chat/completions, /v1/messages" in lost

    @pytest.mark.parametrize("path", ["audio/speech", "images/generations", "threads", "uploads", "vector_stores"])
    def test_a_path_that_only_looks_a_little_like_another_is_not_taken_for_it(
        self, path: str, gateway: Gateway
    ) -> None:
        assert "Did you mean" not in gateway.post(f"/v1/{path}", BODY).json()["error"]["message"]

    def test_planted_a_hint_for_whatever_is_nearest(self, gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(paths, "_ALIKE", 0.6)
        with pytest.raises(AssertionError):
            self.test_a_path_that_only_looks_a_little_like_another_is_not_taken_for_it("uploads", gateway)

    def test_a_wrong_method_is_told_the_right_one(self, gateway: Gateway) -> None:
        got = gateway.get("/v1/chat/completions")
        assert (got.status_code, got.headers["allow"]) == (405, "POST")
        assert "GET is not served on this path; use POST" in got.json()["error"]["message"]


class TestPackedBodies:
    @pytest.mark.parametrize("encoding", PACKERS)
    def test_are_unpacked_for_the_provider(self, encoding: str, gateway: Gateway, upstream: ModelServer) -> None:
        got = gateway.post("/v1/chat/completions", PACKERS[encoding](BODY), {"content-encoding": encoding})
        assert got.status_code == 200
        assert upstream.requests[0].body == json.loads(BODY)
        assert "content-encoding" not in upstream.requests[0].headers

    @pytest.mark.parametrize("encoding", PACKERS)
    def test_a_bomb_is_refused(self, encoding: str, start: Callable[..., Gateway], upstream: ModelServer) -> None:
        bomb = PACKERS[encoding](b" " * 30_000_000)
        gateway = start(upstream, limits={"body_bytes": 100_000})
        got = gateway.post("/v1/chat/completions", bomb, {"content-encoding": encoding})
        assert (got.status_code, upstream.requests) == (413, [])
        assert "once it is unpacked" in got.json()["error"]["message"]

    @pytest.mark.parametrize("encoding", PACKERS)
    def test_a_bomb_takes_no_memory(self, encoding: str) -> None:
        bomb = PACKERS[encoding](b" " * 60_000_000)
        tracemalloc.start()
        try:
            with pytest.raises(Refused):
                decompressed(bomb, encoding, most=1_000_000)
            assert tracemalloc.get_traced_memory()[1] < 6_000_000
        finally:
            tracemalloc.stop()

    def test_planted_a_bomb_that_is_unpacked_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(decompression, "_PIECE", 1 << 30)
        with pytest.raises(AssertionError):
            self.test_a_bomb_takes_no_memory("gzip")

    def test_a_window_that_would_take_memory_in_advance_is_refused(self) -> None:
        options: dict[int, int] = {
            zstd.CompressionParameter.window_log: 27,
            zstd.CompressionParameter.content_size_flag: 0,
        }
        packer = zstd.ZstdCompressor(options=options)
        content = packer.compress(b"x" * 100) + packer.flush()
        with pytest.raises(Refused, match="cannot be unpacked"):
            decompressed(content, "zstd", most=1_000_000)

    @pytest.mark.parametrize("encoding", PACKERS)
    def test_broken_ones_are_refused(self, encoding: str, gateway: Gateway, upstream: ModelServer) -> None:
        packed = PACKERS[encoding](BODY)
        for content in (packed[:-6], packed[: len(packed) // 2], b"", b"nonsense", packed + b"x"):
            got = gateway.post("/v1/chat/completions", content, {"content-encoding": encoding})
            assert (got.status_code, upstream.requests) == (400, [])

    @pytest.mark.parametrize("encoding", ["br", "gzip, gzip", "nonsense"])
    def test_other_encodings_are_named(self, encoding: str, gateway: Gateway) -> None:
        got = gateway.post("/v1/chat/completions", BODY, {"content-encoding": encoding})
        assert (got.status_code, "gzip" in got.json()["error"]["message"]) == (415, True)

    def test_identity_is_none(self, gateway: Gateway) -> None:
        assert gateway.post("/v1/chat/completions", BODY, {"content-encoding": "identity"}).status_code == 200


class TestWebPages:
    PAGE = {"origin": "https://app.example.com"}  # noqa: RUF012 - a constant
    ASKS = {**PAGE, "access-control-request-method": "POST", "access-control-request-headers": "authorization"}  # noqa: RUF012

    def test_are_not_let_in_by_themselves(self, gateway: Gateway) -> None:
        assert ask(gateway, "OPTIONS", "/v1/chat/completions", self.ASKS).status_code == 405
        got = gateway.chat(HELLO, self.PAGE)
        assert got.status_code == 403
        assert "access-control-allow-origin" not in got.headers

    def test_are_let_in_by_name(self, start: Callable[..., Gateway], upstream: ModelServer) -> None:
        gateway = start(upstream, cors_origins=["https://app.example.com"])
        asked = ask(gateway, "OPTIONS", "/v1/chat/completions", self.ASKS)
        assert (asked.status_code, asked.headers["access-control-allow-origin"]) == (200, self.PAGE["origin"])
        got = gateway.chat(HELLO, self.PAGE)
        assert (got.status_code, got.headers["access-control-allow-origin"]) == (200, self.PAGE["origin"])
        assert "x-leporello-session" in got.headers["access-control-expose-headers"]
        other = gateway.chat(HELLO, {"origin": "https://evil.example.com"})
        assert (other.status_code, "access-control-allow-origin" in other.headers) == (403, False)

    def test_any_needs_keys(self) -> None:
        with pytest.raises(ConfigError, match=r"gateway\.cors_origins.*--new-key"):
            Config.from_mapping({"gateway": {"cors_origins": ["*"]}})
        keyed: dict[str, Any] = {"cors_origins": ["*"], "api_keys": {"ada": hashed(KEY)}}
        assert Config.from_mapping({"gateway": keyed}).gateway.cors_origins == ["*"]

    @pytest.mark.parametrize("origin", ["app.example.com", "https://app.example.com/", "https://*.example.com", ""])
    def test_must_be_written_as_origins(self, origin: str) -> None:
        with pytest.raises(ConfigError, match=r"gateway\.cors_origins\[0\]"):
            Config.from_mapping({"gateway": {"cors_origins": [origin]}})
