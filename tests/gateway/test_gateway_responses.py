"""The Responses API through the gateway: byte for byte, folded, chained by ids, and asked about."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import httpx2
import openai
import pytest

from leporello.gateway import recognition
from leporello.gateway.dialects import Responses
from leporello.messages.responses import item_violations
from leporello.testing.model_server import Failure, ModelServer, Step, Use
from leporello.testing.response_items import response_items, turns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.fixtures.gateway import Gateway, Wire

USER = {"role": "user", "content": "hello"}
LONG = "a sentence about cranes and berths. " * 60
ANSWER = (
    b'{"id":"resp_x", "object":"response","status":"completed","model":"m","output":[ {"type":"message","id":"msg_x",'
    b'"role":"assistant","status":"completed","content":[{"type":"output_text","text":"h\\u00e9llo","annotations":[]}]}],'
    b'\n "usage":{"input_tokens":3,"output_tokens":2,"total_tokens":5},"vendor":{"a":1}}'
)
CREATED = (
    b'event: response.created\ndata: {"type":"response.created","response":{"id":"resp_x","status":"in_progress"}}\n\n'
)
EVENTS = [
    CREATED,
    b': a comment\n\nevent: response.output_item.done\ndata: {"type":"response.output_item.done",',
    b'"output_index":0,"item":{"type":"message","id":"msg_x","role":"assistant","content":[{"type":"output_text","text":"one"}]}}\r\n\r\n',
    b'event: response.completed\ndata: {"type":"response.completed","response":{"id":"resp_x","status":"completed",',
    b'"output":[],"usage":{"input_tokens":3,"output_tokens":1,"total_tokens":4}}}\n\n',
]
SHORT_TAIL = {"protect_last_n": 3}
FAILED = (
    b'event: response.failed\ndata: {"type":"response.failed","response":{"id":"resp_x","status":"failed",'
    b'"error":{"code":"%s","message":"%s"}}}\n\n'
)


def client_of(gateway: Gateway, **options: Any) -> Any:
    return openai.OpenAI(api_key="any", base_url=f"{gateway.address}/v1", max_retries=0, **options)


def conversations(gateway: Gateway, owner: str = "") -> list[str]:
    return [info.key for info in gateway.store.conversations(owner=owner)]


class TestTheWire:
    def test_every_byte_of_the_client_and_of_the_provider(self, start: Callable[..., Gateway], wire: Wire) -> None:
        wire.chunks = [ANSWER]
        body = (
            b'{ "model":"m", "input":[{"role":"user","content":"h\xc3\xa9 \\ud83d\\ude00"}], "vendor":{"x":1e3},"n":1}'
        )
        gateway = start(wire)
        answer = gateway.post("/v1/responses", body, {"x-codex-window-id": "t:1", "thread-id": "t", "cookie": "c"})
        assert wire.bodies == [body]
        assert answer.content == ANSWER
        assert wire.paths == ["/v1/responses"]
        assert wire.requests[0]["x-codex-window-id"] == "t:1"
        assert wire.requests[0]["thread-id"] == "t"
        assert "cookie" not in wire.requests[0]
        assert gateway.texts(answer.headers["x-leporello-session"])[0] == "h\u00e9 \U0001f600"

    def test_every_byte_of_a_stream(self, start: Callable[..., Gateway], wire: Wire) -> None:
        wire.chunks, wire.headers = list(EVENTS), {"content-type": "text/event-stream", "x-codex-turn-state": "s"}
        gateway = start(wire)
        body = {"model": "m", "input": [USER], "stream": True, "tools": [{"type": "custom", "name": "x"}]}
        answer = gateway.post("/v1/responses", body)
        assert answer.content == b"".join(EVENTS)
        assert json.loads(wire.bodies[0]) == body
        assert answer.headers["x-codex-turn-state"] == "s"
        (name,) = conversations(gateway)
        assert [row.role for row in gateway.store.messages(name)] == ["user", "assistant"]

    def test_an_unknown_kind_of_item_goes_through(self, start: Callable[..., Gateway], wire: Wire) -> None:
        wire.chunks = [ANSWER]
        items = [
            USER,
            {"type": "hologram", "depth": 3},
            {"type": "message", "role": "user", "content": [{"type": "smell"}]},
        ]
        gateway = start(wire)
        assert gateway.post("/v1/responses", {"model": "m", "input": items}).status_code == 200
        assert json.loads(wire.bodies[0])["input"] == items

    @pytest.mark.parametrize("body", [{"model": "m"}, {"model": "m", "input": 3}, {"model": "m", "input": [{}]}])
    def test_what_holds_no_items_is_refused(self, body: dict[str, Any], gateway: Gateway) -> None:
        answer = gateway.post("/v1/responses", body)
        assert answer.status_code == 400
        assert answer.json()["error"]["type"] == "invalid_request_error"

    def test_a_websocket_is_answered_at_once_with_426(self, gateway: Gateway) -> None:
        asked = {
            "connection": "Upgrade",
            "upgrade": "websocket",
            "sec-websocket-version": "13",
            "sec-websocket-key": "eA==",
        }
        answer = gateway.get("/v1/responses", asked)
        assert answer.status_code == 426
        assert "upgrade" in answer.headers


def busy(request: Any) -> Step:
    number = len(request.items)
    if request.messages[-1]["role"] == "user":
        return Step(thinking="Hm.", text="I look.", tool_calls=[Use(name="read", arguments={"n": number})])
    return Step(thinking="So.", text=f"It is {number}. {LONG[:300]}")


class Client:
    """A client that sends its whole history each time, in one of the ways in which clients do."""

    def __init__(self, client: Any, *, stream: bool, shape: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
        self.client = client
        self.stream = stream
        self.shape = shape
        self.items: list[dict[str, Any]] = []

    def turn(self, text: str, **options: Any) -> None:
        self.items.append({"role": "user", "content": text})
        while True:
            output = self.ask(**options)
            self.items += [shaped for item in output if (shaped := self.shape(item)) is not None]
            calls = [item["call_id"] for item in output if item["type"] == "function_call"]
            if not calls:
                return
            self.items += [{"type": "function_call_output", "call_id": id_, "output": LONG} for id_ in calls]

    def ask(self, **options: Any) -> list[dict[str, Any]]:
        if not self.stream:
            answer = self.client.responses.create(model="m", input=self.items, **options)
        else:
            events = list(self.client.responses.create(model="m", input=self.items, stream=True, **options))
            answer = events[-1].response
        return [item.to_dict() for item in answer.output]


def whole(item: dict[str, Any]) -> dict[str, Any]:
    return item


def without_ids(item: dict[str, Any]) -> dict[str, Any] | None:
    """As some agents do: no reasoning, no ids, no states."""
    if item["type"] == "reasoning":
        return None
    return {key: value for key, value in item.items() if key not in ("id", "status")}


@pytest.mark.parametrize("engine", ["compressor", "lcm"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("shape", [whole, without_ids])
def test_a_long_conversation_is_one_and_every_request_is_taken(
    engine: str, stream: bool, shape: Any, start: Callable[..., Gateway]
) -> None:
    with ModelServer(then=busy, window=16_000) as server:
        gateway = start(server, {"context": {"engine": engine}})
        with client_of(gateway) as sdk:
            client = Client(sdk, stream=stream, shape=shape)
            sent = {"instructions": "You help.", "metadata": {"k": "v"}, "tools": [{"type": "web_search"}]}
            for turn in range(14):
                client.turn(f"Question {turn}. {LONG}", **sent)
        assert len(conversations(gateway)) == 1
        (info,) = gateway.store.branches(conversations(gateway)[0])
        assert info is not None
        asked = [request for request in server.requests if request.dialect == "responses"]
        assert len(asked[-1].items) < len(client.items)
        bodies = [request.body for request in asked]
        rest = [{key: value for key, value in body.items() if key != "input"} for body in bodies]
        assert all(one == rest[0] for one in rest)
        assert all(not item_violations(request.items) for request in asked)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("inside", [False, True])
def test_an_overflow_is_folded_before_the_client_sees_it(
    stream: bool, inside: bool, start: Callable[..., Gateway]
) -> None:
    with ModelServer(then="Yes.", window=6_000, fails_inside=inside) as server:
        gateway = start(server, {"windows": {"m": 200_000}})
        with client_of(gateway) as sdk:
            client = Client(sdk, stream=stream, shape=whole)
            for turn in range(20):
                client.turn(f"{turn} {LONG}")
        asked = [request for request in server.requests if request.dialect == "responses"]
        assert len(asked) > 20
        assert len(conversations(gateway)) == 1


def test_planted_a_provider_that_is_believed_when_it_keeps_the_connection_alive(
    start: Callable[..., Gateway], monkeypatch: pytest.MonkeyPatch
) -> None:
    announced = {"response.created", "response.in_progress"}
    monkeypatch.setattr(Responses, "is_opening", lambda _, event: event["type"] in announced)
    with pytest.raises(AssertionError):
        test_an_overflow_is_folded_before_the_client_sees_it(stream=True, inside=True, start=start)


@pytest.mark.parametrize("code", [b"context_length_exceeded", b"rate_limit_exceeded"])
def test_a_failure_that_nothing_helps_against_is_passed_on_as_it_came(
    code: bytes, start: Callable[..., Gateway], wire: Wire
) -> None:
    failed = FAILED % (
        code,
        b"exceeds the context window of this model" if code.startswith(b"context") else b"slow down",
    )
    wire.chunks, wire.headers = [CREATED, failed], {"content-type": "text/event-stream"}
    answer = start(wire).post("/v1/responses", {"model": "m", "input": [USER], "stream": True})
    assert answer.content == CREATED + failed


class TestIds:
    @pytest.fixture
    def forgetful(self) -> Iterator[ModelServer]:
        """A provider that keeps nothing."""
        with ModelServer(then=busy, remembers=False) as server:
            yield server

    def test_a_chain_goes_on_over_restarts_at_a_provider_that_keeps_nothing(
        self, forgetful: ModelServer, start: Callable[..., Gateway]
    ) -> None:
        previous: dict[str, str] = {}
        for turn in range(4):
            gateway = start(forgetful)
            with client_of(gateway) as sdk:
                answer = sdk.responses.create(model="m", input=f"Question {turn}.", **previous)
                call = next(item for item in answer.output if item.type == "function_call")
                output = {"type": "function_call_output", "call_id": call.call_id, "output": "text"}
                answer = sdk.responses.create(model="m", input=[output], previous_response_id=answer.id)
                previous = {"previous_response_id": answer.id}
            gateway.stop()
        assert len(conversations(gateway)) == 1
        assert [len(request.items) for request in forgetful.requests] == [1, 5, 8, 12, 15, 19, 22, 26]
        assert all("previous_response_id" not in request.body for request in forgetful.requests)

    def test_instructions_are_not_inherited_and_items_of_the_developer_are(
        self, forgetful: ModelServer, start: Callable[..., Gateway]
    ) -> None:
        tools = {"type": "additional_tools", "role": "developer", "tools": [{"type": "custom", "name": "x"}]}
        developer = {"type": "message", "role": "developer", "content": "Be short."}
        with client_of(start(forgetful)) as sdk:
            first = sdk.responses.create(model="m", instructions="You help.", input=[tools, developer, USER])
            call = next(item for item in first.output if item.type == "function_call")
            output = {"type": "function_call_output", "call_id": call.call_id, "output": "text"}
            sdk.responses.create(model="m", input=[output], previous_response_id=first.id)
        last = forgetful.requests[-1]
        assert "instructions" not in last.body
        assert last.items[:3] == [tools, developer, USER]

    def test_a_fork_from_an_old_response_is_a_branch(self, start: Callable[..., Gateway]) -> None:
        with ModelServer(remembers=False) as server:
            gateway = start(server)
            with client_of(gateway) as sdk:
                first = sdk.responses.create(model="m", input="one")
                sdk.responses.create(model="m", input="two", previous_response_id=first.id)
                other = sdk.responses.create(model="m", input="three", previous_response_id=first.id)
                sdk.responses.create(model="m", input="four", previous_response_id=other.id)
            (name,) = conversations(gateway)
            assert len(gateway.store.branches(name)) == 2
            assert [item["content"] for item in server.requests[-1].items if item["role"] == "user"] == [
                "one",
                "three",
                "four",
            ]

    def test_a_chain_goes_on_behind_two_answers_in_a_row(self, start: Callable[..., Gateway]) -> None:
        with ModelServer(then="Yes.", remembers=False) as server:
            gateway = start(server)
            with client_of(gateway) as sdk:
                first = sdk.responses.create(model="m", input=[USER, {"type": "compaction_trigger"}])
                second = sdk.responses.create(model="m", input=[], previous_response_id=first.id)
                sdk.responses.create(model="m", input="and?", previous_response_id=second.id)
            (name,) = conversations(gateway)
            assert len(gateway.store.branches(name)) == 1
            assert server.requests[-1].items[-1] == {"role": "user", "content": "and?"}
            kinds = [item.get("type") for item in server.requests[-1].items]
            assert kinds == [None, "compaction", "message", None]

    @pytest.mark.parametrize("stream", [False, True])
    @pytest.mark.parametrize("failure", [Failure.SERVER_ERROR, Failure.CLOSED_BEFORE_ANSWER])
    def test_what_is_sent_again_is_stored_once(
        self, failure: Failure, stream: bool, start: Callable[..., Gateway]
    ) -> None:
        with ModelServer(then="Yes.", remembers=False) as server:
            gateway = start(server)
            with client_of(gateway).with_options(max_retries=3) as sdk:
                first = sdk.responses.create(model="m", input="one")
                server.fail(failure, times=2)
                asked = sdk.responses.create(model="m", input="two", previous_response_id=first.id, stream=stream)
                assert not stream or [event.type for event in asked][-1] == "response.completed"
            (name,) = conversations(gateway)
            assert len(gateway.store.branches(name)) == 1
            assert [row.role for row in gateway.store.messages(name)] == ["user", "assistant"] * 2

    def test_planted_a_chain_that_does_not_look_what_is_stored_behind(
        self, start: Callable[..., Gateway], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(recognition, "_is_behind", lambda *_: False)
        with pytest.raises(AssertionError):
            self.test_what_is_sent_again_is_stored_once(Failure.SERVER_ERROR, stream=False, start=start)

    def test_an_answer_that_is_asked_for_again_is_a_branch_behind_the_same_question(
        self, start: Callable[..., Gateway]
    ) -> None:
        with ModelServer(remembers=False, then=lambda request: f"answer {len(request.items)}") as server:
            gateway = start(server)
            with client_of(gateway) as sdk:
                first = sdk.responses.create(model="m", input="one")
                again = [sdk.responses.create(model="m", input="two", previous_response_id=first.id) for _ in range(2)]
                for one in again:
                    sdk.responses.create(model="m", input="three", previous_response_id=one.id)
            (name,) = conversations(gateway)
            assert len(gateway.store.branches(name)) == 2
            assert [len(request.items) for request in server.requests] == [1, 3, 3, 5, 5]

    def test_equal_words_behind_another_response_do_not_count(self, start: Callable[..., Gateway]) -> None:
        """Two branches with the same words are two all the same: their reasoning is not."""
        with ModelServer(remembers=False, then=lambda _: Step(thinking="Hm.", text="Yes.")) as server:
            gateway = start(server)
            with client_of(gateway) as sdk:
                first = sdk.responses.create(model="m", input="one")
                again = [sdk.responses.create(model="m", input="two", previous_response_id=first.id) for _ in range(2)]
                for one in again:
                    sdk.responses.create(model="m", input="three", previous_response_id=one.id)
            (name,) = conversations(gateway)
            assert len(gateway.store.branches(name)) == 2
            thoughts = [
                [item["id"] for item in one.items if item.get("type") == "reasoning"] for one in server.requests
            ]
            assert thoughts[-2:] == [["rs_1", "rs_2"], ["rs_1", "rs_3"]]

    def test_the_limit_of_messages_is_for_what_the_client_sends(self, start: Callable[..., Gateway]) -> None:
        with ModelServer(remembers=False) as server:
            gateway = start(server, limits={"messages": 6})
            with client_of(gateway) as sdk:
                previous: dict[str, str] = {}
                for turn in range(8):
                    answer = sdk.responses.create(model="m", input=f"Question {turn}.", **previous)
                    previous = {"previous_response_id": answer.id}
                with pytest.raises(openai.APIStatusError, match="there are 7; this gateway takes 6"):
                    sdk.responses.create(model="m", input=[USER] * 7, **previous)

    def test_of_an_id_that_was_given_twice_the_newer_one_counts(self, start: Callable[..., Gateway]) -> None:
        """Servers on one's own machine number their responses, and begin anew with every start."""
        for life in ("first", "second"):
            with ModelServer(remembers=False) as server, client_of(gateway := start(server)) as sdk:
                answer = sdk.responses.create(model="m", input=f"{life} life")
                item = {"type": "item_reference", "id": answer.output[0].id}
                sdk.responses.create(model="m", input="and?", previous_response_id=answer.id)
                sdk.responses.create(model="m", input="again", previous_response_id=answer.id)
                sdk.responses.create(model="m", input=[{"role": "user", "content": "back then"}, item, USER])
                gateway.stop()
            assert server.requests[-2].items[0]["content"] == f"{life} life"
            assert server.requests[-1].items[1]["content"][0]["text"] == f"{life} life"

    def test_two_who_say_the_same_stay_apart_by_the_ids_of_their_responses(self, start: Callable[..., Gateway]) -> None:
        with ModelServer(then="Hello!", remembers=False) as server:
            gateway = start(server)
            with client_of(gateway) as sdk:
                one, other = (sdk.responses.create(model="m", input="hi") for _ in range(2))
                sdk.responses.create(model="m", input="I am one", previous_response_id=one.id)
                sdk.responses.create(model="m", input="I am the other", previous_response_id=other.id)
            assert sorted(gateway.texts(name)[2] for name in conversations(gateway)) == ["I am one", "I am the other"]

    def test_references_are_replaced_by_what_they_stand_for(
        self, forgetful: ModelServer, start: Callable[..., Gateway]
    ) -> None:
        gateway = start(forgetful)
        with client_of(gateway) as sdk:
            answer = sdk.responses.create(model="m", input=[USER])
            references = [{"type": "item_reference", "id": item.id} for item in answer.output]
            call = next(item for item in answer.output if item.type == "function_call")
            output = {"type": "function_call_output", "call_id": call.call_id, "output": "text"}
            sdk.responses.create(model="m", input=[USER, *references, output])
        assert forgetful.requests[-1].items == [USER, *(item.to_dict() for item in answer.output), output]
        assert len(conversations(gateway)) == 1

    def test_what_is_not_known_here_is_the_providers_affair(self, start: Callable[..., Gateway], wire: Wire) -> None:
        wire.chunks = [ANSWER]
        gateway = start(wire)
        bodies = [
            b'{"model":"m",  "input":"x","previous_response_id":"resp_other"}',
            b'{"model":"m",  "input":"x","conversation":"conv_1"}',
            b'{"model":"m",  "input":"x","background":true}',
            b'{"model":"m",  "prompt":{"id":"pmpt_1"}}',
            b'{"model":"m",  "conversation":{"id":"conv_1"}}',
            b'{"model":"m",  "previous_response_id":"resp_other"}',
            b'{"model":"m",  "input":[{"role":"user","content":"x"},{"type":"item_reference","id":"msg_other"}]}',
        ]
        for body in bodies:
            assert gateway.post("/v1/responses", body).status_code == 200
        assert wire.bodies == bodies
        assert len(conversations(gateway)) == 1

    def test_what_was_not_to_be_stored_has_no_id(self, start: Callable[..., Gateway]) -> None:
        with ModelServer(then="Yes.") as server:
            gateway = start(server)
            with client_of(gateway) as sdk:
                answer = sdk.responses.create(model="m", input="x", store=False)
                with pytest.raises(openai.NotFoundError):
                    sdk.responses.retrieve(answer.id)
                with pytest.raises(openai.BadRequestError, match="not found"):
                    sdk.responses.create(model="m", input="y", previous_response_id=answer.id)
            assert gateway.texts(conversations(gateway)[0])[0] == "x"

    def test_a_response_can_be_read_listed_and_deleted(
        self, forgetful: ModelServer, start: Callable[..., Gateway]
    ) -> None:
        gateway = start(forgetful)
        with client_of(gateway) as sdk:
            answer = sdk.responses.create(model="m", input=[USER], metadata={"k": "v"})
            call = next(item for item in answer.output if item.type == "function_call")
            output = {"type": "function_call_output", "call_id": call.call_id, "output": "text"}
            second = sdk.responses.create(model="m", input=[output], previous_response_id=answer.id)
            read = sdk.responses.retrieve(answer.id)
            assert (read.output, read.usage, read.metadata, read.model) == (
                answer.output,
                answer.usage,
                {"k": "v"},
                "m",
            )
            listed = sdk.responses.input_items.list(second.id, order="asc", limit=2)
            assert [item.type for item in listed] == [
                "message",
                "reasoning",
                "message",
                "function_call",
                "function_call_output",
            ]
            with pytest.raises(openai.BadRequestError, match="synchronous"):
                sdk.responses.cancel(answer.id)
            with pytest.raises(openai.BadRequestError, match="cannot be streamed"):
                sdk.responses.retrieve(answer.id, stream=True)
            with pytest.raises(openai.BadRequestError):
                list(sdk.responses.input_items.list(second.id, limit=0))
            sdk.responses.delete(answer.id)
            for gone in (sdk.responses.retrieve, sdk.responses.delete, sdk.responses.input_items.list):
                with pytest.raises(openai.NotFoundError):
                    gone(answer.id)
            with pytest.raises(openai.BadRequestError, match="not found"):
                sdk.responses.create(model="m", input="y", previous_response_id=answer.id)
            reference = {"type": "item_reference", "id": answer.output[0].id}
            with pytest.raises(openai.NotFoundError):
                sdk.responses.create(model="m", input=[USER, reference])
            sdk.responses.create(model="m", input="and then?", previous_response_id=second.id)
        assert forgetful.requests[-1].items[0] == USER

    def test_the_responses_of_one_key_are_not_there_for_another(self, start: Callable[..., Gateway]) -> None:
        from leporello.gateway.keys import hashed

        with ModelServer(then="Yes.") as server:
            keys = {name: hashed(f"key-of-{name}-0123456789") for name in ("ann", "bob")}
            gateway = start(server, api_keys=keys)
            ann, bob = (
                openai.OpenAI(api_key=f"key-of-{n}-0123456789", base_url=f"{gateway.address}/v1", max_retries=0)
                for n in keys
            )
            answer = ann.responses.create(model="m", input="my secret")
            assert ann.responses.retrieve(answer.id).id == answer.id
            for asked in (bob.responses.retrieve, bob.responses.delete, bob.responses.input_items.list):
                with pytest.raises(openai.NotFoundError):
                    asked(answer.id)
            reference = {"type": "item_reference", "id": answer.output[0].id}
            before = len(server.requests)
            for body in (
                {"input": "x", "previous_response_id": answer.id},
                {"input": [USER, reference]},
                {"input": "x", "conversation": "conv_1"},
                {"input": "x", "background": True},
            ):
                with pytest.raises((openai.BadRequestError, openai.NotFoundError)):
                    bob.responses.create(model="m", **body)
            assert len(server.requests) == before


class TestTheFoldedView:
    def test_tokens_are_counted_and_compactions_made_of_what_the_model_sees(
        self, start: Callable[..., Gateway]
    ) -> None:
        with ModelServer(then=busy, window=16_000) as server:
            gateway = start(server)
            with client_of(gateway) as sdk:
                client = Client(sdk, stream=False, shape=whole)
                client.turn(f"first {LONG}")
                asked = [*client.items, USER]
                counted = sdk.responses.input_tokens.count(model="m", input=asked).input_tokens
                assert counted == _count(server, asked)
                for turn in range(20):
                    client.turn(f"Question {turn}. {LONG}")
                asked = [*client.items, USER]
                folded = sdk.responses.input_tokens.count(model="m", input=asked).input_tokens
                assert folded < 16_000 < _count(server, asked)
                compacted = sdk.responses.compact(model="m", input=asked)
                assert compacted.output[-1].type == "compaction"
                assert len(server.requests[-1].items) < len(asked)
                branches = gateway.store.branches(conversations(gateway)[0])
                assert len(branches) == 1  # asking about a conversation changes nothing

    def test_a_trigger_is_answered_and_the_conversation_goes_on_behind_the_compaction(
        self, start: Callable[..., Gateway]
    ) -> None:
        with ModelServer(then=busy, window=16_000) as server:
            gateway = start(server)
            with client_of(gateway) as sdk:
                client = Client(sdk, stream=True, shape=whole)
                for turn in range(12):
                    client.turn(f"Question {turn}. {LONG}")
                client.items.append({"type": "compaction_trigger"})
                (compaction,) = client.ask()
                assert compaction["type"] == "compaction"
                assert server.requests[-1].items[-1] == {"type": "compaction_trigger"}
                users = [item for item in client.items if item.get("role") == "user"][-3:]
                client.items = [*users, compaction]
                server.script(*[Step(text="On.", tool_calls=[Use(name="read")])] * 2)
                for _ in range(2):  # the next answers follow the compaction, and nobody spoke in between
                    client.items += client.ask()
                    call = client.items[-1]["call_id"]
                    client.items.append({"type": "function_call_output", "call_id": call, "output": "text"})
                assert compaction in server.requests[-1].items
            assert len(conversations(gateway)) == 1


def _count(server: ModelServer, items: list[dict[str, Any]]) -> int:
    answer = httpx2.post(
        f"{server.openai_url}/responses/input_tokens",
        json={"model": "m", "input": items},
        headers={"authorization": "Bearer k"},
        timeout=30,
    )
    return int(answer.json()["input_tokens"])


def searches(request: Any) -> Step:
    """Look for the code when asked for it, and say what was found."""
    newest = request.messages[-1]
    if newest["role"] == "tool":
        return Step(thinking="So.", text="found" if "7319-QX" in str(newest["content"]) else str(newest["content"]))
    if "what is the code" in str(newest["content"]) and "lcm_grep" in [tool["name"] for tool in request.tools]:
        return Step(thinking="Where?", tool_calls=[Use(name="lcm_grep", arguments={"query": "vault"})])
    return Step(text="noted")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("headers", [{}, {"x-leporello-session": "room"}], ids=["unnamed", "named"])
def test_the_engines_tools_are_used_and_the_client_does_not_notice(
    headers: dict[str, str], stream: bool, start: Callable[..., Gateway]
) -> None:
    with ModelServer(then=searches) as server:
        gateway = start(server, {"context": {"engine": "lcm"}}, tools=True)
        with client_of(gateway, default_headers=headers) as sdk:
            client = Client(sdk, stream=stream, shape=whole)
            own = [{"type": "function", "name": "read", "parameters": {"type": "object"}, "strict": False}]
            client.turn("the code of the vault is 7319-QX", tools=own)
            client.turn("what is the code?", tools=own)
            assert client.items[-1]["content"][0]["text"] == "found"
            assert "lcm_grep" not in json.dumps(client.items)
            client.turn("thank you", tools=own)
        (name,) = conversations(gateway)
        assert len(gateway.store.branches(name)) == 1
        assert len(server.requests) == 4


SEEDS = range(40) if os.environ.get("LEPORELLO_SOAK") else range(4)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("engine", ["compressor", "lcm"])
def test_every_kind_of_item_goes_through_and_is_folded(seed: int, engine: str, start: Callable[..., Gateway]) -> None:
    told = list(turns(response_items(seed, turns=14, payload=120).items))
    answers = iter([Step(items=items) for of_model, items in told if of_model])

    def say(request: Any) -> Step:
        return next(answers, Step(text="Done.")) if request.dialect == "responses" else Step(text="They work on it.")

    with ModelServer(then=say, remembers=False) as server:
        gateway = start(server, {"context": {"engine": engine}, "windows": {"m": 6_000}, "compression": SHORT_TAIL})
        sent: list[dict[str, Any]] = []
        for of_model, items in told:
            sent += items
            if not of_model:
                answer = gateway.post("/v1/responses", {"model": "m", "input": sent})
                assert answer.status_code == 200, answer.text
        asked = [request.items for request in server.requests if request.dialect == "responses"]
        assert asked[0] == told[0][1]
        assert len(asked[-1]) != len(sent)  # it was folded
        assert len(conversations(gateway)) == 1
