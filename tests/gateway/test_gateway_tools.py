"""With `gateway.tools` the model may look into what was folded; the client sees nothing but the answer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from leporello.testing.model_server import ModelServer, Step, Use

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.fixtures.gateway import Gateway

    from leporello.testing.model_server import Request

pytestmark = pytest.mark.slow

NAMED = {"x-leporello-session": "room"}
SECRET = "the code of the vault is 7319-QX"


def searches(request: Request) -> Step:
    """Look for the code when asked for it, and say what was found."""
    newest = request.messages[-1]
    if newest["role"] == "tool":
        return Step(text="found" if "7319-QX" in str(newest["content"]) else f"nothing in {newest['content']}")
    offered = {tool.get("name") or tool["function"]["name"] for tool in request.tools}
    if "what is the code" in str(newest["content"]) and "lcm_grep" in offered:
        return Step(tool_calls=[Use(name="lcm_grep", arguments={"query": "vault"})])
    return Step(text="noted")


@pytest.fixture
def library() -> Iterator[ModelServer]:
    with ModelServer(then=searches) as server:
        yield server


@pytest.fixture
def gateway(start: Callable[..., Gateway], library: ModelServer) -> Gateway:
    return start(library, {"context": {"engine": "lcm"}}, tools=True)


def test_the_engine_answers_and_the_client_does_not_notice(gateway: Gateway, library: ModelServer) -> None:
    talk: list[dict[str, Any]] = []
    gateway.say(talk, SECRET, NAMED)
    assert gateway.say(talk, "what is the code?", NAMED) == "room"
    assert talk[-1]["content"] == "found"
    assert len(library.requests) == 3
    assert gateway.say(talk, "thank you", NAMED) == "room"
    roles = [row.role for row in gateway.store.messages("room")]
    assert roles == ["user", "assistant", "user", "assistant", "tool", "assistant", "user", "assistant"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_a_streamed_answer_is_that_of_the_last_round(path: str, gateway: Gateway, library: ModelServer) -> None:
    body = {"model": "m", "max_tokens": 100, "stream": True}
    talk = [
        {"role": "user", "content": SECRET},
        {"role": "assistant", "content": "Noted."},
        {"role": "user", "content": "Now: what is the code?"},
    ]
    got = gateway.post(path, {**body, "messages": talk}, NAMED)
    assert len(library.requests) == 2
    assert "lcm_grep" not in got.text
    assert '"usage": {"prompt_tokens"' not in got.text
    events = [json.loads(line[6:]) for line in got.text.splitlines() if line.startswith("data: {")]
    text = "".join(
        event["choices"][0]["delta"].get("content", "")
        if "choices" in event
        else event.get("delta", {}).get("text", "")
        for event in events
    )
    assert text == "found"


def test_a_restart_in_between_is_not_noticed(start: Callable[..., Gateway], library: ModelServer) -> None:
    """What the client does not know is not taken for what it said."""
    config = {"context": {"engine": "lcm"}}
    gateway = start(library, config, tools=True)
    talk: list[dict[str, Any]] = []
    gateway.say(talk, SECRET, NAMED)
    gateway.say(talk, "what is the code?", NAMED)
    gateway.stop()
    again = start(library, config, tools=True)
    assert again.say(talk, "thank you", NAMED) == "room"
    assert len(again.texts("room")) == 8


def test_a_conversation_without_a_name_is_left_alone(gateway: Gateway, library: ModelServer) -> None:
    gateway.say([], "what is the code?")
    assert library.requests[0].tools == []


def test_a_model_that_only_ever_searches_is_stopped(start: Callable[..., Gateway]) -> None:
    call = Step(tool_calls=[Use(name="lcm_grep", arguments={"query": "vault"})])
    with ModelServer(then=call) as server:
        gateway = start(server, {"context": {"engine": "lcm"}}, tools=True)
        got = gateway.chat([{"role": "user", "content": "search"}], NAMED)
        assert got.status_code == 200
        assert len(server.requests) == 9
