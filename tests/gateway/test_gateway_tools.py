"""With `gateway.tools` the model may look into what was folded; the client sees nothing but the answer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import openai
import pytest
from tests.gateway.harbour import APIS

from leporello.gateway.history import History, parse
from leporello.messages import text_of
from leporello.session.answers import read_answer
from leporello.testing.model_server import ModelServer, Step, Use

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.fixtures.gateway import Gateway

    from leporello.messages import Message
    from leporello.testing.model_server import ReceivedRequest

pytestmark = pytest.mark.slow

NAMED = {"x-leporello-session": "room"}
SECRET = "the code of the vault is 7319-QX"


def searches(request: ReceivedRequest) -> Step:
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


def say(gateway: Gateway, api: str, talk: list[dict[str, Any]], text: str) -> str:
    """Add what the user says and the answer to a history that has no name; returns the conversation's name."""
    path, body = APIS[api]
    talk.append({"role": "user", "content": text})
    got = gateway.post(path, {"model": "m", **body(talk)})
    assert got.status_code == 200, got.text
    talk.append({"role": "assistant", "content": text_of(read_answer(got.json()).message)})
    return str(got.headers["x-leporello-session"])


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("restarted", [False, True], ids=["one process", "restarted"])
def test_a_conversation_without_a_name_has_them_from_the_first_request_on(
    restarted: bool, api: str, start: Callable[..., Gateway], library: ModelServer
) -> None:
    """The hidden round is no part of what the client is recognised by."""
    config = {"context": {"engine": "lcm"}}
    gateway = start(library, config, tools=True)
    talk: list[dict[str, Any]] = []
    name = say(gateway, api, talk, SECRET)
    assert say(gateway, api, talk, "what is the code?") == name
    assert talk[-1]["content"] == "found"
    if restarted:
        gateway.stop()
        gateway = start(library, config, tools=True)
    assert say(gateway, api, talk, "thank you") == name
    assert len(gateway.texts(name)) == 8
    assert len(gateway.store.branches(name)) == 1
    tools = [request.tools for request in library.requests]
    assert tools[0]
    assert all(offered == tools[0] for offered in tools)


def test_a_hidden_round_that_is_part_of_the_history_is_caught(
    start: Callable[..., Gateway], library: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: messages that the client does not see are hashed too."""
    answered = History.answered
    hidden: Message = {"role": "tool", "content": "a result"}
    monkeypatch.setattr(
        History, "answered", lambda self, answer: answered(parse([*self.messages, hidden], dialect="openai"), answer)
    )
    with pytest.raises(AssertionError):
        test_a_conversation_without_a_name_has_them_from_the_first_request_on(
            restarted=False, api="openai", start=start, library=library
        )


def test_without_the_setting_nothing_is_offered(start: Callable[..., Gateway], library: ModelServer) -> None:
    gateway = start(library, {"context": {"engine": "lcm"}})
    gateway.say([], "what is the code?", NAMED)
    assert library.requests[0].tools == []


def test_a_model_that_only_ever_searches_is_stopped(start: Callable[..., Gateway]) -> None:
    call = Step(tool_calls=[Use(name="lcm_grep", arguments={"query": "vault"})])
    with ModelServer(then=call) as server:
        gateway = start(server, {"context": {"engine": "lcm"}}, tools=True)
        got = gateway.chat([{"role": "user", "content": "search"}], NAMED)
        assert got.status_code == 200
        assert len(server.requests) == 9


def test_an_answer_with_calls_for_both_stays_on_its_branch(start: Callable[..., Gateway]) -> None:
    """The client answers its own call, and the other one too, which it does not know: the engine's answer counts."""

    def both(request: ReceivedRequest) -> Step:
        newest = request.messages[-1]
        if newest["role"] == "user" and "both" in str(newest["content"]):
            calls = [Use(name="lcm_grep", arguments={"query": "vault"}), Use(name="look", arguments={})]
            return Step(tool_calls=calls)
        return Step(text=f"noted {len(request.messages)}")

    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
    with ModelServer(then=both) as upstream:
        gateway = start(upstream, {"context": {"engine": "lcm"}}, tools=True)
        talk: list[dict[str, Any]] = []
        gateway.say(talk, "the vault is 73", NAMED)
        talk.append({"role": "user", "content": "both please"})
        message = gateway.chat(talk, NAMED, tools=tools).json()["choices"][0]["message"]
        talk.append(message)
        for call in message["tool_calls"]:
            text = "a cat" if call["function"]["name"] == "look" else "Error: no such tool"
            talk.append({"role": "tool", "tool_call_id": call["id"], "content": text})
        answer = gateway.chat(talk, NAMED, tools=tools).json()["choices"][0]["message"]
        talk.append({"role": "assistant", "content": answer["content"]})
        name = gateway.say(talk, "thanks", NAMED)
        (info,) = gateway.store.conversations()
        assert (info.key, info.branches) == (name, 1)
        results = [row.message["content"] for row in gateway.store.messages(name) if row.role == "tool"]
        assert len(results) == 2
        assert "a cat" in results
        assert "Error: no such tool" not in results


def sdk_of(gateway: Gateway) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{gateway.address}/v1", api_key="any", max_retries=0)


def kinds(sdk: openai.OpenAI, id_: str) -> list[str]:
    """Return the kinds of the input items of a response, with the speaker of each message."""
    listed = sdk.responses.input_items.list(id_, order="asc")
    return [str(getattr(item, "role", None) or item.type) for item in listed]


def check_what_a_chain_lists(gateway: Gateway, library: ModelServer) -> None:
    """Go on by the ids of responses; between them the engine is asked, which nobody sees."""
    with sdk_of(gateway) as sdk:
        first = sdk.responses.create(model="m", input=SECRET)
        second = sdk.responses.create(model="m", input="what is the code?", previous_response_id=first.id)
        assert len(library.requests) == 3
        third = sdk.responses.create(model="m", input="thank you", previous_response_id=second.id)
        assert (second.output_text, third.output_text) == ("found", "noted")
        assert kinds(sdk, second.id) == ["user", "assistant", "user"]
        assert kinds(sdk, third.id) == ["user", "assistant"] * 2 + ["user"]
        assert sdk.responses.retrieve(second.id).output == second.output
    (info,) = gateway.store.conversations()
    assert (info.messages, info.branches) == (8, 1)


def test_a_round_of_the_engine_is_no_input_of_a_response(gateway: Gateway, library: ModelServer) -> None:
    check_what_a_chain_lists(gateway, library)


def test_a_round_that_is_listed_is_caught(
    gateway: Gateway, library: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: answers that the client did not get are stored like any other."""
    monkeypatch.setattr("leporello.gateway.client_session.hidden", lambda message: message)
    with pytest.raises(AssertionError, match="function_call"):
        check_what_a_chain_lists(gateway, library)


def test_a_response_that_calls_both_is_what_the_client_got(start: Callable[..., Gateway]) -> None:
    """What the engine answered stands behind it, and is no part of it."""
    both = Step(tool_calls=[Use(name="lcm_grep", arguments={"query": "vault"}), Use(name="look", arguments={})])
    tools: Any = [{"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}]
    with ModelServer(then=lambda request: both if len(request.messages) == 1 else Step(text="a cat")) as upstream:
        gateway = start(upstream, {"context": {"engine": "lcm"}}, tools=True)
        with sdk_of(gateway) as sdk:
            first = sdk.responses.create(model="m", input="both please", tools=tools)
            assert sdk.responses.retrieve(first.id).output == first.output
            calls = {item.name: item.call_id for item in first.output if item.type == "function_call"}
            assert set(calls) == {"lcm_grep", "look"}
            output: Any = [{"type": "function_call_output", "call_id": calls["look"], "output": "a cat"}]
            sdk.responses.create(model="m", input=output, tools=tools, previous_response_id=first.id)
        (info,) = gateway.store.conversations()
        roles = [row.role for row in gateway.store.messages(info.key)]
        assert roles == ["user", "assistant", "tool", "tool", "assistant"]


AGENT = {"x-claude-code-session-id": "s-1"}
TOOL = {"type": "function", "function": {"name": "shell", "parameters": {"type": "object", "properties": {}}}}


def offered(library: ModelServer) -> list[bool]:
    """Return which of the requests so far offered the tools of the engine."""
    return ["lcm_grep" in json.dumps(request.tools) for request in library.requests]


def test_what_an_agent_asks_aside_gets_no_tools(gateway: Gateway, library: ModelServer) -> None:
    """A request for a title, which has none of its own, could be answered with a call instead."""
    assert gateway.chat([{"role": "user", "content": SECRET}], AGENT, tools=[TOOL]).status_code == 200
    assert gateway.chat([{"role": "user", "content": "a title for what is the code"}], AGENT).status_code == 200
    assert gateway.chat([{"role": "user", "content": "I bring no tools, and am no agent"}], NAMED).status_code == 200
    assert offered(library) == [True, False, True]


def test_an_agent_may_bring_its_tools_among_the_items(gateway: Gateway, library: ModelServer) -> None:
    """As Codex does: that is its work, not something aside, unless it says so."""
    tools = {"type": "additional_tools", "role": "developer", "tools": [{"type": "custom", "name": "exec"}]}
    items = [tools, {"type": "message", "role": "user", "content": SECRET}]
    assert gateway.post("/v1/responses", {"model": "m", "input": items}, {"thread-id": "t-1"}).status_code == 200
    title = {"thread-id": "t-2", "x-codex-turn-metadata": '{"thread_source":"thread_title"}'}
    assert gateway.post("/v1/responses", {"model": "m", "input": items}, title).status_code == 200
    assert offered(library) == [True, False]
    assert {info.key for info in gateway.store.conversations()} == {"codex:t-1", "codex:titles"}
