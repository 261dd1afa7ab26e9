"""What the provider receives, for whatever a client sends: its own bytes, or its own fields around a folded history.

The bodies are generated: fields that nobody knows, any values, written in any way that JSON allows. Only what the
reference says is added: `stream_options` where a streamed chat completion asks for no count.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from tests.gateway.harbour import assistant, user

from leporello.gateway import dialects
from leporello.testing.model_server import ModelServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.gateway import Gateway, Wire

pytestmark = pytest.mark.slow

EXAMPLES = 1_000 if os.environ.get("LEPORELLO_SOAK") else 20
PATHS = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages", "responses": "/v1/responses"}
HISTORY = {"openai": {"messages"}, "anthropic": {"messages", "system"}, "responses": {"input"}}
ADDED = b'"stream_options":{"include_usage":true},'

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.floats(-1e6, 1e6) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
fields = st.dictionaries(st.text("abcdefghij_", min_size=1, max_size=9).map("x_".__add__), values, max_size=4)
manners: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {},
        {"indent": 2},
        {"separators": (",", ":")},
        {"ensure_ascii": False},
        {"separators": (" , ", "\t:\r\n"), "ensure_ascii": False},
        {"sort_keys": True},
    ]
)
texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12)


def body_of(dialect: str, talk: list[dict[str, Any]], more: dict[str, Any], *, stream: bool) -> dict[str, Any]:
    """Return a request with further fields before and behind the history."""
    history = {"input" if dialect == "responses" else "messages": talk}
    needed: dict[str, Any] = {"max_tokens": 500} if dialect == "anthropic" else {}
    first = dict(list(more.items())[::2])
    return {**first, "model": "m", **history, **needed, **({"stream": True} if stream else {}), **more}


def check_bytes(sent: bytes, received: bytes, *, counted: bool) -> None:
    """The provider got the client's bytes, and one option more where an answer is counted."""
    start = sent.index(b"{") + 1
    assert received == (sent[:start] + ADDED + sent[start:] if counted else sent)


@pytest.mark.parametrize("dialect", PATHS)
def test_every_byte_of_whatever_a_client_sends(dialect: str, start: Callable[..., Gateway], wire: Wire) -> None:
    gateway = start(wire)

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(fields, st.lists(texts, min_size=1, max_size=3), manners, st.booleans())
    def check(more: dict[str, Any], said: list[str], manner: dict[str, Any], stream: bool) -> None:
        talk = [one for text in said[:-1] for one in (user(text), assistant(text))]
        body = body_of(dialect, [*talk, user(said[-1])], more, stream=stream)
        sent = json.dumps(body, **manner).encode()
        gateway.post(PATHS[dialect], sent)
        check_bytes(sent, wire.bodies[-1], counted=stream and dialect == "openai")

    check()


def check_fields(dialect: str, sent: dict[str, Any], received: dict[str, Any]) -> None:
    """Every field but the history is as the client sent it, and the history is shorter."""
    own = HISTORY[dialect]
    expected = {key: value for key, value in sent.items() if key not in own}
    if dialect == "openai" and sent.get("stream"):
        expected["stream_options"] = {"include_usage": True}
    assert {key: value for key, value in received.items() if key not in own} == expected
    (history,) = own - {"system"}
    assert len(received[history]) < len(sent[history])
    assert received[history][-1] == sent[history][-1]


def long_talk() -> list[dict[str, Any]]:
    words = " ".join(f"word{number}" for number in range(300))
    return [one for number in range(20) for one in (user(f"question {number} {words}"), assistant(f"{number} {words}"))]


TALK = long_talk()


def ask_folded(
    dialect: str, gateway: Gateway, server: ModelServer, more: dict[str, Any], text: str, stream: bool
) -> None:
    """Ask behind a history that does not fit, and look at what the provider got."""
    body = body_of(dialect, [*TALK, user(text)], more, stream=stream)
    got = gateway.post(PATHS[dialect], body, {"x-leporello-session": "long"})
    assert got.status_code == 200, got.text
    check_fields(dialect, body, dict(server.requests[-1].body))


@pytest.mark.parametrize("dialect", PATHS)
def test_every_field_around_a_folded_history(dialect: str, start: Callable[..., Gateway]) -> None:
    with ModelServer() as server:
        gateway = start(server)

        @settings(max_examples=EXAMPLES // 2, deadline=None, suppress_health_check=list(HealthCheck))
        @given(fields, texts.map("newest ".__add__), st.booleans())
        def check(more: dict[str, Any], text: str, stream: bool) -> None:
            ask_folded(dialect, gateway, server, more, text, stream)

        check()


def test_planted_a_field_that_is_lost(start: Callable[..., Gateway], monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"model", "messages", "stream", "max_tokens"}
    monkeypatch.setattr(
        dialects.OpenAI, "folded", lambda _, body, request: {k: body[k] for k in body if k in known} | request
    )
    with ModelServer() as server:
        gateway = start(server)
        ask_folded("openai", gateway, server, {}, "nothing to lose", stream=False)
        with pytest.raises(AssertionError):
            ask_folded("openai", gateway, server, {"x_new": 1}, "one to lose", stream=False)


def test_planted_bytes_that_are_written_anew() -> None:
    sent = b'{ "model": "m", "x": 1.0 }'
    with pytest.raises(AssertionError):
        check_bytes(sent, json.dumps(json.loads(sent)).encode(), counted=False)
