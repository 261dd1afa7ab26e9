"""A gateway that passes the client's own key on: whose key goes where, and whose was refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.fixtures.gateway import UPSTREAM_KEY

from leporello.config import Config
from leporello.errors import ConfigError
from leporello.gateway import headers as header_rules
from leporello.gateway.errors import CLIENT_KEY_REFUSED, KEY_REFUSED
from leporello.gateway.keys import hashed
from leporello.gateway.upstream import Upstream
from leporello.testing.model_server import ModelServer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.fixtures.gateway import Gateway, Wire

HELLO = [{"role": "user", "content": "hello"}]
ANSWER = {"choices": [{"message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}]}
GATEWAY_KEY = "lpr-key-of-the-gateway"
OPENAI_REFUSAL = {"error": {"message": "Incorrect API key provided.", "type": "x", "param": None, "code": "c"}}
ANTHROPIC_REFUSAL = {"type": "error", "error": {"type": "authentication_error", "message": "invalid x-api-key"}}


def passing(wire: Wire, how: bool | str = True, **gateway: Any) -> dict[str, Any]:
    """Return a configuration whose providers get the keys of clients."""
    own = {"api_key_env": "UPSTREAM_KEY", "pass_client_key": how}
    upstreams = {
        "openai": {"base_url": wire.openai_url, **own},
        "anthropic": {"base_url": wire.anthropic_url, **own},
    }
    return {"windows": {"m": 16_000}, "gateway": {"upstreams": upstreams, **gateway}}


@pytest.fixture
def answering(wire: Wire) -> Wire:
    wire.chunks = [json.dumps(ANSWER).encode()]
    return wire


@pytest.mark.parametrize(
    "sent",
    [
        {"authorization": "Bearer sk-client"},
        {"x-api-key": "sk-ant-client"},
        {"authorization": "Bearer sk-ant-oat01-client", "anthropic-beta": "oauth-2025-04-20"},
        {"authorization": "Bearer eyJ.client", "chatgpt-account-id": "acct-1"},
        {"authorization": "Bearer sk-client", "openai-organization": "org-1", "openai-project": "proj-1"},
        {},
    ],
)
def test_the_clients_own_credential_goes_to_the_provider_and_the_gateways_does_not(
    sent: dict[str, str], start: Callable[..., Gateway], answering: Wire
) -> None:
    gateway = start(answering, passing(answering))
    assert gateway.chat(HELLO, sent).status_code == 200
    got = answering.requests[0]
    assert {name: got[name] for name in sent} == sent
    assert UPSTREAM_KEY not in json.dumps(got)
    assert ("authorization" in got) == ("authorization" in sent)


@pytest.mark.parametrize("has_key", [True, False])
def test_without_a_key_of_the_gateway_summaries_ask_nobody(
    has_key: bool, start: Callable[..., Gateway], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole conversation would go out, to be refused; the gateway's own key, where there is one, is used."""
    if not has_key:
        monkeypatch.delenv("UPSTREAM_KEY")
    with ModelServer(accepts_key=lambda key: key in {"sk-client", UPSTREAM_KEY}, then="a short answer") as upstream:
        own = {"base_url": upstream.openai_url, "api_key_env": "UPSTREAM_KEY", "pass_client_key": True}
        gateway = start(upstream, {"windows": {"m": 16_000}, "gateway": {"upstreams": {"openai": own}}})
        gateway.headers["authorization"] = "Bearer sk-client"
        talk: list[dict[str, Any]] = []
        for number in range(20):
            name = gateway.say(talk, f"question {number}: " + f"the crane of berth {number} waits " * 130)
        summaries = [request for request in upstream.requests if request.messages[0]["role"] == "system"]
    assert gateway.store.window(name).version > 0
    assert bool(summaries) == has_key


def test_without_it_no_credential_of_a_client_goes_on(start: Callable[..., Gateway], answering: Wire) -> None:
    sent = {
        "authorization": "Bearer sk-client",
        "x-api-key": "sk-client",
        "chatgpt-account-id": "acct-1",
        "openai-organization": "org-1",
        "cookie": "a=sk-client",
    }
    start(answering).chat(HELLO, sent)
    got = answering.requests[0]
    assert got["authorization"] == f"Bearer {UPSTREAM_KEY}"
    assert "sk-client" not in json.dumps(got)
    assert not {"chatgpt-account-id", "openai-organization", "x-api-key", "cookie"} & set(got)


class TestTogetherWithKeysOfTheGateway:
    KEYS = {"ada": hashed(GATEWAY_KEY)}  # noqa: RUF012 - a constant

    def test_it_is_refused_with_file_key_and_what_to_do(self, tmp_path: Path, wire: Wire) -> None:
        file = tmp_path / "config.yaml"
        file.write_text(json.dumps(passing(wire, api_keys=self.KEYS), indent=1), encoding="utf-8")
        with pytest.raises(ConfigError) as caught:
            Config.load(file)
        told = str(caught.value)
        for part in (str(file), "gateway.upstreams.openai.pass_client_key", "gateway.upstreams.anthropic", "`always`"):
            assert part in told

    def test_always_says_so(self, start: Callable[..., Gateway], answering: Wire) -> None:
        gateway = start(answering, passing(answering, "always", api_keys=self.KEYS))
        sent = {"x-leporello-key": GATEWAY_KEY, "authorization": "Bearer sk-client"}
        assert gateway.chat(HELLO, sent).status_code == 200
        assert answering.requests[0]["authorization"] == "Bearer sk-client"
        assert gateway.chat(HELLO, {"authorization": "Bearer sk-client"}).status_code == 401

    @pytest.mark.parametrize(
        "sent",
        [
            {"x-leporello-key": GATEWAY_KEY},
            {"authorization": f"Bearer {GATEWAY_KEY}"},
            {"x-api-key": GATEWAY_KEY},
            {"x-api-key": GATEWAY_KEY, "authorization": f"Bearer {GATEWAY_KEY}"},
        ],
    )
    def test_the_gateways_key_goes_no_further(
        self, sent: dict[str, str], start: Callable[..., Gateway], answering: Wire
    ) -> None:
        gateway = start(answering, passing(answering, "always", api_keys=self.KEYS))
        assert gateway.chat(HELLO, sent).status_code == 200
        assert GATEWAY_KEY not in json.dumps(answering.requests[0])

    def test_planted_a_gateway_that_takes_every_key_for_the_providers(
        self, start: Callable[..., Gateway], answering: Wire, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(header_rules, "presented", lambda _: "")
        with pytest.raises(AssertionError):
            self.test_the_gateways_key_goes_no_further({"x-api-key": GATEWAY_KEY}, start, answering)


class TestRefusals:
    @pytest.mark.parametrize(
        ("path", "refusal"), [("/v1/chat/completions", OPENAI_REFUSAL), ("/v1/messages", ANTHROPIC_REFUSAL)]
    )
    def test_of_the_clients_key_keep_status_and_shape_and_name_it(
        self, path: str, refusal: dict[str, Any], start: Callable[..., Gateway], wire: Wire
    ) -> None:
        wire.status, wire.chunks = 401, [json.dumps(refusal).encode()]
        wire.headers = {**wire.headers, "x-request-id": "req-1", "anthropic-organization-id": "org-2"}
        gateway = start(wire, passing(wire))
        got = gateway.post(path, {"model": "m", "max_tokens": 9, "messages": HELLO}, {"x-api-key": "sk-client"})
        assert got.status_code == 401
        whole = got.json()
        assert whole["error"].pop("message") == f"{refusal['error']['message']} {CLIENT_KEY_REFUSED}"
        rest = json.loads(json.dumps(refusal))
        del rest["error"]["message"]
        assert whole == rest
        assert (got.headers["x-request-id"], got.headers["anthropic-organization-id"]) == ("req-1", "org-2")

    @pytest.mark.parametrize("status", [402, 403])
    def test_about_the_clients_account_are_the_clients(
        self, status: int, start: Callable[..., Gateway], wire: Wire
    ) -> None:
        refusal = {"error": {"message": "Your plan has no such model.", "type": "permission_error"}}
        wire.status, wire.chunks = status, [json.dumps(refusal).encode()]
        got = start(wire, passing(wire)).chat(HELLO, {"authorization": "Bearer sk-client"})
        assert (got.status_code, got.json()) == (status, refusal)

    def test_hold_nothing_of_the_gateways_own_key(self, start: Callable[..., Gateway], wire: Wire) -> None:
        wire.status, wire.chunks = 401, [json.dumps({"error": {"message": f"not {UPSTREAM_KEY}"}}).encode()]
        got = start(wire, passing(wire)).chat(HELLO, {"authorization": "Bearer sk-client"})
        assert UPSTREAM_KEY not in got.text

    @pytest.mark.parametrize("body", [b"", b"no", b"[]", b'{"error": "no"}', b'{"detail": "no"}', b'{"error": []}'])
    def test_of_any_shape_come_as_they_are(self, body: bytes, start: Callable[..., Gateway], wire: Wire) -> None:
        wire.status, wire.chunks = 401, [body] if body else []
        got = start(wire, passing(wire)).chat(HELLO, {"authorization": "Bearer sk-client"})
        assert (got.status_code, got.content) == (401, body)

    def test_of_the_gateways_key_name_the_gateways(self, start: Callable[..., Gateway], wire: Wire) -> None:
        wire.status, wire.chunks = 401, [json.dumps(OPENAI_REFUSAL).encode()]
        wire.headers = {**wire.headers, "anthropic-organization-id": "org-2"}
        got = start(wire).chat(HELLO)
        assert (got.status_code, got.json()["error"]["message"]) == (401, KEY_REFUSED)
        assert "anthropic-organization-id" not in got.headers


AGENT_HEADERS = {
    "anthropic-beta": "a,b",
    "openai-beta": "c",
    "x-codex-turn-state": "t",
    "x-codex-window-id": "w:1",
    "session-id": "s",
    "thread-id": "th",
    "originator": "codex_cli_rs",
    "version": "0.166.0",
    "user-agent": "codex/0.166.0",
    "x-claude-code-session-id": "cc",
    "x-session-id": "oc",
}


@pytest.mark.parametrize("with_client_key", [True, False])
def test_the_headers_of_agents_go_on_and_those_of_the_provider_come_back(
    with_client_key: bool, start: Callable[..., Gateway], answering: Wire
) -> None:
    answering.headers = {**answering.headers, "x-codex-turn-state": "t2", "x-request-id": "r", "set-cookie": "c=1"}
    gateway = start(answering, passing(answering, with_client_key))
    got = gateway.chat(HELLO, {**AGENT_HEADERS, "x-forwarded-for": "10.0.0.1"})
    sent = answering.requests[0]
    assert {name: sent[name] for name in AGENT_HEADERS} == AGENT_HEADERS
    assert "x-forwarded-for" not in sent
    assert (got.headers["x-codex-turn-state"], got.headers["x-request-id"]) == ("t2", "r")
    assert "set-cookie" not in got.headers


@pytest.mark.parametrize(
    ("base_url", "how", "headers", "address"),
    [
        (None, True, {"chatgpt-account-id": "a"}, "https://chatgpt.com/backend-api/codex"),
        (None, True, {}, "https://api.openai.com/v1"),
        (None, False, {"chatgpt-account-id": "a"}, "https://api.openai.com/v1"),
        ("http://corp:1/v1", True, {"chatgpt-account-id": "a"}, "http://corp:1/v1"),
    ],
)
def test_a_login_of_chatgpt_goes_where_openai_serves_it(
    base_url: str | None, how: bool, headers: dict[str, str], address: str
) -> None:
    given = {"pass_client_key": how, **({"base_url": base_url} if base_url else {})}
    settings = Config.from_mapping({"gateway": {"upstreams": {"openai": given}}}).gateway
    client: Any = None
    assert Upstream("openai", settings.upstreams.openai, settings, client).address_for(headers) == address
