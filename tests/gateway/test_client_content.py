"""What clients send and get beside words: it is stored as they have it, goes on as they sent it, and splits nothing.

A client's package puts a streamed answer together in its own way, and sends it back.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import anthropic
import httpx2
import pytest
from tests.gateway.harbour import APIS, assistant, made, user

from leporello.gateway import headers
from leporello.gateway.history import History
from leporello.gateway.recognition import Recognised
from leporello.messages import text_of, to_anthropic
from leporello.session import streams
from leporello.testing.model_server import Failure, ModelServer, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.fixtures.gateway import Gateway, Wire

pytestmark = pytest.mark.slow

Blocks = list[tuple[dict[str, Any], list[dict[str, Any]]]]
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
WORDS = " ".join(f"word{number}" for number in range(300))
LONG = [one for number in range(20) for one in (user(f"question {number} {WORDS}"), assistant(f"{number} {WORDS}"))]


def text(said: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    return {"type": "text", "text": ""}, [{"type": "text_delta", "text": said}]


def asked(*pieces: str) -> list[dict[str, Any]]:
    return [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]


FOUND = {"type": "web_search_result", "url": "u", "title": "t", "encrypted_content": "E", "page_age": None}
CITED = {"type": "web_search_result_location", "url": "u", "title": "t", "encrypted_index": "I", "cited_text": "c"}
STREAMED: dict[str, Blocks] = {
    "a search of the provider": [
        (
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
            asked('{"query": "cr', 'anes"}'),
        ),
        ({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [FOUND]}, []),
        (
            {"type": "text", "text": "", "citations": []},
            [{"type": "citations_delta", "citation": CITED}, *text("Six.")[1]],
        ),
    ],
    "a tool of an MCP server": [
        (
            {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "berths", "server_name": "port", "input": {}},
            asked('{"at": 1}'),
        ),
        ({"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "is_error": False, "content": []}, []),
        text("One is free."),
    ],
    "a compaction of the provider": [
        ({"type": "compaction", "content": None}, [{"type": "compaction_delta", "content": "Cranes were counted."}]),
        text("Six."),
    ],
    "thinking": [
        (
            {"type": "thinking", "thinking": "", "signature": ""},
            [
                {"type": "thinking_delta", "thinking": "Hm."},
                {"type": "signature_delta", "signature": "S"},
            ],
        ),
        ({"type": "redacted_thinking", "data": "xyz"}, []),
        text("Six."),
    ],
    "thinking that is not shown": [
        ({"type": "thinking", "thinking": "", "signature": ""}, [{"type": "signature_delta", "signature": "S"}]),
        text("Six."),
    ],
    "two calls": [
        text("I look."),
        ({"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}, asked('{"at": [1, ', "2.50]}")),
        ({"type": "tool_use", "id": "toolu_2", "name": "look", "input": {}}, []),
    ],
}


def events(blocks: Blocks) -> Iterator[dict[str, Any]]:
    """Yield the events of Anthropic's API for an answer."""
    told: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
    }
    yield {"type": "message_start", "message": {**told, "usage": {"input_tokens": 9, "output_tokens": 1}}}
    for index, (block, deltas) in enumerate(blocks):
        yield {"type": "content_block_start", "index": index, "content_block": block}
        yield from ({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas)
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}}
    yield {"type": "message_stop"}


def sent_by(blocks: Blocks) -> list[bytes | Any]:
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events(blocks)]


def talk_about(blocks: Blocks, gateway: Gateway, wire: Wire) -> list[dict[str, Any]]:
    """Say three things through Anthropic's package; returns the first answer, these blocks, as the package has it."""
    wire.headers = {"content-type": "text/event-stream"}
    talk: list[Any] = [user("one")]
    first: list[dict[str, Any]] = []
    with anthropic.Anthropic(base_url=gateway.address, api_key="any", max_retries=0) as client:
        for number, answer in enumerate([blocks, [text("Fine.")], [text("Good.")]]):
            wire.chunks = sent_by(answer)
            with client.beta.messages.stream(model="m", max_tokens=99, messages=talk) as stream:
                content: list[Any] = [block.to_dict(mode="json") for block in stream.get_final_message().content]
            first = first or content
            results = [
                {"type": "tool_result", "tool_use_id": one["id"], "content": "no crane"}
                for one in content
                if one["type"] == "tool_use"
            ]
            talk += [{"role": "assistant", "content": content}, {"role": "user", "content": results or f"and {number}"}]
    return first


def without_nulls(value: Any) -> Any:
    """Leave out what is null or an empty list of citations: the package adds them."""
    if isinstance(value, dict):
        kept = {key: without_nulls(one) for key, one in value.items() if one is not None}
        return {key: one for key, one in kept.items() if key != "citations" or one}
    return [without_nulls(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("kind", STREAMED)
def test_a_streamed_answer_is_stored_as_the_client_has_it(kind: str, start: Callable[..., Gateway], wire: Wire) -> None:
    gateway = start(wire)
    given = talk_about(STREAMED[kind], gateway, wire)
    assert made(gateway) == (1, 1)
    (info,) = gateway.store.conversations()
    answer = list(gateway.store.messages(info.key))[1].message
    stored = to_anthropic([{"role": "user", "content": "one"}, answer])[0]["messages"][1]["content"]
    assert without_nulls(stored) == without_nulls(given)


def test_planted_a_search_without_what_it_asked(
    start: Callable[..., Gateway], wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams._AnthropicStream, "_block", lambda self, index: self._blocks[index])
    gateway = start(wire)
    talk_about(STREAMED["a search of the provider"], gateway, wire)
    assert made(gateway) != (1, 1)


def begin_answers(gateway: Gateway, *, named: bool) -> list[dict[str, Any]]:
    """Let the client begin each answer itself, until the history is folded; returns the history."""
    name = {"x-claude-code-session-id": "s"} if named else {}
    talk: list[dict[str, Any]] = []
    for number in range(12):
        talk += [user(f"As JSON: {number} {WORDS}"), assistant("{")]
        answer = gateway.post("/v1/messages", {"model": "m", "max_tokens": 99, "messages": talk}, name)
        assert answer.status_code == 200, answer.text
        talk[-1] = assistant("{" + text_of(answer.json()))
    return talk


@pytest.mark.parametrize("named", [False, True])
def test_an_answer_that_the_client_began_is_one_with_its_beginning(named: bool, start: Callable[..., Gateway]) -> None:
    with ModelServer(then=lambda request: Step(text=f'"crane": {len(request.messages)}}}')) as server:
        gateway = start(server)
        talk = begin_answers(gateway, named=named)
        assert made(gateway) == (1, 1)
        assert len(json.dumps(server.requests[-1].body["messages"])) < len(json.dumps(talk))


def test_planted_an_answer_that_is_only_known_by_itself(
    start: Callable[..., Gateway], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = History.answered
    monkeypatch.setattr(History, "answered", lambda self, answer: whole(self, answer)[:2])
    with ModelServer(then=lambda request: Step(text=f'"crane": {len(request.messages)}}}')) as server:
        gateway = start(server)
        begin_answers(gateway, named=True)
        assert made(gateway)[1] > 1


def image(kind: str) -> dict[str, Any]:
    address = f"data:image/png;base64,{PNG}"
    if kind == "openai":
        return {"type": "image_url", "image_url": {"url": address, "detail": "low"}}
    if kind == "responses":
        return {"type": "input_image", "image_url": address}
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}


def called(*calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    named = [{"type": "function", "function": {"name": "look", "arguments": '{ "at":1}'}, **call} for call in calls]
    return {"role": "assistant", "content": None, **more, "tool_calls": named}


def result(id_: str, content: Any = "no crane") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id_, "content": content}


def looked(*results: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a turn of Anthropic's with calls of these results, and thinking before them."""
    thinking = [{"type": "thinking", "thinking": "", "signature": "S"}, {"type": "redacted_thinking", "data": "xyz"}]
    calls = [{"type": "tool_use", "id": one["tool_use_id"], "name": "look", "input": {}} for one in results]
    told = [{"type": "tool_result", **one} for one in results]
    return [user("Look."), {"role": "assistant", "content": [*thinking, *calls]}, {"role": "user", "content": told}]


def items(*said: dict[str, Any]) -> list[dict[str, Any]]:
    return [user("Look."), *said]


CALL = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
SEARCH = {"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "cranes"}}
NEWEST: dict[str, dict[str, list[dict[str, Any]]]] = {
    "anthropic": {
        "an image": [{"role": "user", "content": [image("anthropic"), {"type": "text", "text": "What is it?"}]}],
        "an image as a result": looked({"tool_use_id": "toolu_1", "content": [image("anthropic")]}),
        "results of several calls, one that failed": looked(
            {"tool_use_id": "toolu_1", "content": "no", "is_error": True},
            {"tool_use_id": "toolu_2", "content": [{"type": "text", "text": "yes"}]},
        ),
        "a tool that is found": looked(
            {"tool_use_id": "toolu_1", "content": [{"type": "tool_reference", "tool_name": "crane"}]}
        ),
        "a document": [
            {
                "role": "user",
                "content": [
                    {
                        "type": "document",
                        "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
                        "title": "t",
                        "citations": {"enabled": True},
                    },
                    {"type": "text", "text": "What is it?"},
                ],
            }
        ],
        "a search that goes on": [
            user("Look."),
            {
                "role": "assistant",
                "content": [
                    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
                    {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [FOUND]},
                ],
            },
        ],
        "the beginning of the answer": [user("As JSON."), assistant("{")],
        "a note of the system": [
            user("Look."),
            assistant("Six."),
            user("And now?"),
            {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
        ],
    },
    "openai": {
        "an image": [{"role": "user", "content": [image("openai"), {"type": "text", "text": "What is it?"}]}],
        "a sound": [
            {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}]}
        ],
        "a file": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}],
        "a call with a signature": [
            user("Look."),
            called({"id": "c1", "extra_content": {"google": {"thought_signature": "S"}}}),
            result("c1"),
        ],
        "reasoning with a signature": [
            user("Look."),
            called({"id": "c1"}, reasoning="Hm.", reasoning_details=[{"type": "reasoning.encrypted", "data": "E"}]),
            result("c1"),
        ],
        "reasoning in a field": [
            user("Look."),
            called({"id": "c1"}, {"id": "c2"}, reasoning_content="Hm."),
            result("c1"),
            result("c2", [{"type": "text", "text": "yes"}]),
        ],
        "the beginning of the answer": [user("As JSON."), {**assistant("{"), "prefix": True}],
        "a name": [{**user("Look."), "name": "anna"}],
        "a note of the developer": [
            user("Look."),
            assistant("Six."),
            {"role": "developer", "content": "Be brief."},
            user("Go on."),
        ],
    },
    "responses": {
        "an image": [{"role": "user", "content": [image("responses"), {"type": "input_text", "text": "What is it?"}]}],
        "an image as a result": items(
            CALL, {"type": "function_call_output", "call_id": "c1", "output": [image("responses")]}
        ),
        "reasoning that is encrypted, and several calls": items(
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": None, "encrypted_content": "E"},
            CALL,
            {**CALL, "call_id": "c2"},
            {"type": "function_call_output", "call_id": "c1", "output": "no"},
            {"type": "function_call_output", "call_id": "c2", "output": "yes"},
        ),
        "a custom call": items(
            {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": "*** Begin"},
            {"type": "custom_tool_call_output", "call_id": "c1", "output": "done"},
        ),
        "a search of the provider": items(
            SEARCH,
            {
                "type": "message",
                "role": "assistant",
                "content": [
                    {"type": "output_text", "text": "Six.", "annotations": [{"type": "url_citation", "url": "u"}]}
                ],
            },
            user("?"),
        ),
        "words on the way": items(
            {
                "type": "message",
                "role": "assistant",
                "phase": "commentary",
                "content": [{"type": "output_text", "text": "I look."}],
            },
            {**CALL, "namespace": "port"},
            {"type": "function_call_output", "call_id": "c1", "output": "no"},
        ),
    },
}


def ask(api: str, talk: list[dict[str, Any]], gateway: Gateway, **more: Any) -> Any:
    body = {"model": "m", "input" if api == "responses" else "messages": talk, **more}
    needed: dict[str, dict[str, Any]] = {"anthropic": {"max_tokens": 99}, "responses": {"store": False}}
    return gateway.post(APIS[api][0], {**body, **needed.get(api, {})})


def check_newest(api: str, newest: list[dict[str, Any]], received: Any) -> None:
    """The provider got a folded history, and behind it the newest turn as the client sent it."""
    got = received["input" if api == "responses" else "messages"]
    assert len(got) < len(LONG)
    assert got[-len(newest) :] == newest


@pytest.mark.parametrize("api", APIS)
def test_the_newest_turn_goes_on_as_it_is_behind_a_folded_history(api: str, start: Callable[..., Gateway]) -> None:
    with ModelServer() as server:
        gateway = start(server)
        for kind, newest in NEWEST[api].items():
            answer = ask(api, [*LONG, *newest], gateway)
            assert answer.status_code == 200, (kind, answer.text)
            check_newest(api, newest, server.requests[-1].body)


def test_planted_a_field_that_does_not_go_on() -> None:
    newest = NEWEST["openai"]["a call with a signature"]
    bare = [newest[0], called({"id": "c1"}), newest[2]]
    check_newest("openai", newest, {"messages": newest})
    with pytest.raises(AssertionError):
        check_newest("openai", newest, {"messages": bare})


OF_BOTH = (Failure.RATE_LIMITED, Failure.OVERLOADED, Failure.CLOSED_IN_ANSWER)


def answered(api: str, body: Any) -> list[dict[str, Any]]:
    """Return an answer as its client sends it back."""
    if api == "openai":
        return [body["choices"][0]["message"]]
    return list(body["output"]) if api == "responses" else [{"role": "assistant", "content": body["content"]}]


FAILURES = [(failure, stream) for failure in OF_BOTH for stream in (False, True)] + [(Failure.ERROR_IN_STREAM, True)]


def ask_after_failures(api: str, start: Callable[..., Gateway]) -> None:
    talk: list[dict[str, Any]] = []
    with ModelServer() as server:
        gateway = start(server)
        for number, (failure, stream) in enumerate(FAILURES):
            talk.append(user(f"question {number}"))
            server.fail(failure, retry_after=7)
            failed = refused(api, talk, gateway, stream=stream)
            if failure is Failure.RATE_LIMITED:
                assert failed == (429, "7")
            if failure is Failure.OVERLOADED:
                assert failed == (529, None)
            server.heal()
            talk += answered(api, ask(api, talk, gateway).json())
        (info,) = gateway.store.conversations()
        said = [text_of(row.message) for row in gateway.store.messages(info.key) if row.role == "user"]
        assert said == [f"question {number}" for number in range(len(FAILURES))]


@pytest.mark.parametrize("api", APIS)
def test_what_failed_is_asked_again_and_stored_once(api: str, start: Callable[..., Gateway]) -> None:
    """Whatever the provider does, a client of any API is told so and asks again, in one conversation."""
    ask_after_failures(api, start)


def test_planted_a_client_that_is_not_told_when_to_ask_again(
    start: Callable[..., Gateway], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(headers, "_TO_CLIENT", re.compile("content-type"))
    with pytest.raises(AssertionError, match="429"):
        ask_after_failures("openai", start)


def refused(api: str, talk: list[dict[str, Any]], gateway: Gateway, *, stream: bool) -> tuple[int, str | None]:
    """Ask, and return the status and when to ask again; 0 for a connection that broke off."""
    try:
        answer = ask(api, talk, gateway, stream=stream)
    except httpx2.HTTPError:
        return 0, None
    return answer.status_code, answer.headers.get("retry-after")


def is_overflow(api: str, refusal: Any) -> bool:
    """Tell whether a refusal has the words by which agents know that they must shorten their history themselves."""
    message, code = str(refusal["error"]["message"]), str(refusal["error"].get("code"))
    return message.startswith("prompt is too long") if api == "anthropic" else code == "context_length_exceeded"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", APIS)
def test_what_no_fold_can_make_fit_is_refused_in_the_providers_words(
    api: str, stream: bool, start: Callable[..., Gateway]
) -> None:
    with ModelServer(window=6_000) as server:
        gateway = start(server)
        for before in ([], LONG):
            answer = ask(api, [*before, user(WORDS * 20)], gateway, stream=stream)
            assert answer.status_code == 400, answer.text
            assert is_overflow(api, answer.json())
        assert not is_overflow(api, {"error": {"message": "the input is too long", "code": "too_long"}})


def leave(api: str, talk: list[dict[str, Any]], gateway: Gateway) -> None:
    """Ask for a stream, and go away when something of it has come."""
    body = {"model": "m", "max_tokens": 99, "stream": True, "input" if api == "responses" else "messages": talk}
    with httpx2.stream("POST", f"{gateway.address}{APIS[api][0]}", json=body, timeout=20) as answer:
        next(answer.iter_raw())


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("api", APIS)
def test_an_answer_that_was_stopped_and_the_next_turn(api: str, kept: bool, start: Callable[..., Gateway]) -> None:
    """An agent keeps what it had of the answer, or adds what the user says now to what had no answer."""
    talk: list[dict[str, Any]] = []
    with ModelServer(gap=0.2) as server:
        gateway = start(server)
        for question in ("one", "two"):
            talk.append(user(question))
            talk += answered(api, ask(api, talk, gateway).json())
        leave(api, [*talk, user("three " * 50)], gateway)
        words = {"type": "input_text" if api == "responses" else "text"}
        now = {"role": "user", "content": [{**words, "text": "three " * 50}, {**words, "text": "stop; four"}]}
        talk += [user("three " * 50), assistant("thr"), user("stop; four")] if kept else [now]
        for question in ("five", "six"):
            talk += [*answered(api, ask(api, talk, gateway).json()), user(question)]
        (info,) = gateway.store.conversations()
        told = [text_of(row.message) for row in gateway.store.messages(info.key) if row.role == "user"]
        assert told[:2] == ["one", "two"]
        assert told[-2:] == ["three " * 50 + "\nstop; four" if not kept else "stop; four", "five"]


def continue_after_a_restart(api: str, start: Callable[..., Gateway], restarted: Callable[[], None]) -> None:
    """Talk until the history is folded, and go on behind a new gateway: the provider's cached prefix still holds."""
    talk: list[dict[str, Any]] = []
    key = "input" if api == "responses" else "messages"
    with ModelServer(then=lambda request: Step(text=f"{len(request.messages)} {WORDS}", thinking="Hm.")) as server:
        gateway = start(server)
        sent: list[int] = []
        while len(sent) < 2 or sent[-1] > sent[-2]:  # until a request is the first behind a fold
            talk.append(user(f"question {len(sent)} {WORDS}"))
            talk += answered(api, ask(api, talk, gateway).json())
            sent.append(len(json.dumps(server.requests[-1].body)))
        before = server.requests[-1].body[key]
        gateway.stop()
        restarted()
        assert ask(api, [*talk, user("go on")], start(server)).status_code == 200
        assert server.requests[-1].body[key][: len(before)] == before
        assert made(gateway) == (1, 1)


@pytest.mark.parametrize("api", APIS)
def test_a_folded_history_goes_on_behind_the_same_window_after_a_restart(
    api: str, start: Callable[..., Gateway]
) -> None:
    """As with `--continue` of an agent: nothing is folded again."""
    continue_after_a_restart(api, start, restarted=lambda: None)


def test_planted_a_gateway_that_knows_nothing_after_a_restart(
    start: Callable[..., Gateway], monkeypatch: pytest.MonkeyPatch
) -> None:
    def forget() -> None:
        monkeypatch.setattr("leporello.gateway.client_sessions.recognise", lambda *_, **__: Recognised())

    with pytest.raises(AssertionError):
        continue_after_a_restart("anthropic", start, restarted=forget)


def chunks(*deltas: dict[str, Any], finish: str = "stop") -> list[bytes | Any]:
    """Return a streamed chat completion."""
    choices = [*({"index": 0, "delta": delta} for delta in deltas), {"index": 0, "delta": {}, "finish_reason": finish}]
    told = [{"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [choice]} for choice in choices]
    return [*(f"data: {json.dumps(one)}\n\n".encode() for one in told), b"data: [DONE]\n\n"]


def talk_with_a_custom_tool(gateway: Gateway, wire: Wire) -> None:
    """Let the model call a tool that takes a text, and talk on until the history is folded."""
    wire.headers = {"content-type": "text/event-stream"}
    begun = {"index": 0, "id": "call_1", "type": "custom", "custom": {"name": "patch", "input": "*** Be"}}
    call = {"id": "call_1", "type": "custom", "custom": {"name": "patch", "input": "*** Begin: {"}}
    said = {"role": "assistant", "content": None, "tool_calls": [call]}
    talk = [*LONG, user("Patch it.")]
    for answer in (
        [{"role": "assistant", "tool_calls": [begun]}, {"tool_calls": [{"index": 0, "custom": {"input": "gin: {"}}]}],
        [{"role": "assistant", "content": "Done."}],
    ):
        wire.chunks = chunks(*answer)
        assert gateway.chat(talk, stream=True).status_code == 200
        talk += [said, result("call_1")]
    (info,) = gateway.store.conversations()
    assert [row.message for row in gateway.store.messages(info.key)][-3:-1] == [said, result("call_1")]
    assert json.loads(wire.bodies[-1])["messages"][-2:] == [said, result("call_1")]
    assert made(gateway) == (1, 1)


def test_a_call_of_a_custom_tool_is_stored_and_goes_on_as_it_is(start: Callable[..., Gateway], wire: Wire) -> None:
    talk_with_a_custom_tool(start(wire), wire)


def test_planted_a_custom_tool_that_becomes_a_function(
    start: Callable[..., Gateway], wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leporello.session.window.with_custom_calls", lambda message: message)
    with pytest.raises(AssertionError):
        talk_with_a_custom_tool(start(wire), wire)
