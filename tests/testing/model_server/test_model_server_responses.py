"""The model server speaks the Responses API: the official package reads it, and it refuses what providers refuse."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx2
import openai
import pytest

from leporello.errors import ContextTooLongError
from leporello.llm.errors import classify
from leporello.testing.model_server import Failure, ModelServer, Step, Use

if TYPE_CHECKING:
    from collections.abc import Iterator

CALL = {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "text"}


def client_of(server: ModelServer) -> Any:
    return openai.OpenAI(api_key="any", base_url=server.openai_url, max_retries=0)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


def test_an_answer_is_what_the_script_says(server: ModelServer) -> None:
    search = {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "q"},
    }
    server.script(
        Step(thinking="Hm.", items=[search], text="Hello!", tool_calls=[Use(name="read", arguments={"a": 1})])
    )
    with client_of(server) as client:
        answer = client.responses.create(model="m", instructions="Be brief.", input="Hi")
    assert [item.type for item in answer.output] == ["reasoning", "web_search_call", "message", "function_call"]
    assert answer.output_text == "Hello!"
    assert answer.usage is not None
    assert answer.usage.input_tokens > 0
    assert answer.usage.output_tokens_details.reasoning_tokens > 0
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens
    (request,) = server.requests
    assert [message["role"] for message in request.messages] == ["system", "user"]


def test_a_stream_says_what_the_whole_answer_says(server: ModelServer) -> None:
    step = Step(thinking="Hm.", text="A longer text.", tool_calls=[Use(name="read", arguments={"a": 1}, id="c")])
    server.script(step, step)
    with client_of(server) as client:
        whole = client.responses.create(model="m", input="Hi")
        events = list(client.responses.create(model="m", input="Hi", stream=True))
        with client.responses.stream(model="m", input="again") as stream:
            helped = stream.until_done().get_final_response()
    assert [event.sequence_number for event in events] == list(range(len(events)))
    last = events[-1]
    assert last.type == "response.completed"
    assert [item.type for item in last.response.output] == [item.type for item in whole.output]
    assert last.response.output_text == whole.output_text
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert done == last.response.output
    assert helped.output_text == "again"


def test_a_chain_is_remembered_unless_the_server_forgets(server: ModelServer) -> None:
    with client_of(server) as client:
        first = client.responses.create(model="m", input="one")
        second = client.responses.create(model="m", input="two", previous_response_id=first.id)
        reference = {"type": "item_reference", "id": second.output[0].id}
        client.responses.create(model="m", input=[{"role": "user", "content": "x"}, reference])
        assert client.responses.retrieve(second.id).output_text == "two"
        assert len(client.responses.input_items.list(second.id).data) == 3
        client.responses.delete(second.id)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(second.id)
        aside = client.responses.create(model="m", input="one", store=False)
        with pytest.raises(openai.BadRequestError, match="not found"):
            client.responses.create(model="m", input="two", previous_response_id=aside.id)
    assert [len(request.items) for request in server.requests] == [1, 3, 2, 1, 0]
    with ModelServer(remembers=False) as forgetful, client_of(forgetful) as client:
        first = client.responses.create(model="m", input="one")
        with pytest.raises(openai.BadRequestError, match="not found"):
            client.responses.create(model="m", input="two", previous_response_id=first.id)


REFUSED: dict[str, dict[str, Any]] = {
    "a call without its output": {"input": [{"role": "user", "content": "x"}, CALL]},
    "an output without its call": {"input": [{"role": "user", "content": "x"}, OUTPUT]},
    "a trigger that is not last": {"input": [{"type": "compaction_trigger"}, {"role": "user", "content": "x"}]},
    "two ways to go on": {"input": "x", "previous_response_id": "resp_1", "conversation": "conv_1"},
    "nothing": {"input": []},
    "an item without a type": {"input": [{"content": "x"}]},
}


@pytest.mark.parametrize("body", REFUSED.values(), ids=list(REFUSED))
def test_what_the_provider_refuses_is_refused(server: ModelServer, body: dict[str, Any]) -> None:
    answer = httpx2.post(
        f"{server.openai_url}/responses", json={"model": "m", **body}, headers={"authorization": "Bearer k"}
    )
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_reasoning_and_what_follows_it_need_each_other(server: ModelServer) -> None:
    server.script(Step(thinking="Hm.", text="Hello!"))
    user = {"role": "user", "content": "Hi"}
    with client_of(server) as client:
        thought, said = (item.to_dict() for item in client.responses.create(model="m", input=[user]).output)
        client.responses.create(model="m", input=[user, thought, said, user])
        for broken in ([user, said, user], [user, thought, user], [user, thought, said, thought, said, user]):
            with pytest.raises(openai.BadRequestError, match=r"required|Duplicate"):
                client.responses.create(model="m", input=broken)
        without_id = {key: value for key, value in said.items() if key != "id"}
        client.responses.create(model="m", input=[user, without_id, user])


@pytest.mark.parametrize("stream", [True, False])
def test_an_overflow_is_an_error_or_the_end_of_a_stream(stream: bool) -> None:
    long = "word " * 3000
    with ModelServer(window=1000) as server, client_of(server) as client:
        with pytest.raises(openai.BadRequestError) as refused:
            client.responses.create(model="m", input=long, stream=stream)
        assert isinstance(classify(refused.value), ContextTooLongError)
    with ModelServer(window=1000, fails_inside=True) as server:
        body = {"model": "m", "input": long, "stream": stream}
        answer = httpx2.post(f"{server.openai_url}/responses", json=body, headers={"authorization": "Bearer k"})
        assert answer.status_code == 200
        data = answer.text.rpartition("data: ")[2] if stream else answer.text
        response = json.loads(data)["response"] if stream else json.loads(data)
        assert response["status"] == "failed"
        assert isinstance(classify(status=400, body={"error": response["error"]}), ContextTooLongError)


def test_a_trigger_and_a_compaction_are_answered_by_one_item(server: ModelServer) -> None:
    with client_of(server) as client:
        user = {"role": "user", "content": "Hi"}
        said = {"role": "assistant", "content": "Hello"}
        answer = client.responses.create(model="m", input=[user, said, {"type": "compaction_trigger"}])
        assert [item.type for item in answer.output] == ["compaction"]
        compacted = client.responses.compact(model="m", input=[user, said, user])
        assert [item.type for item in compacted.output] == ["message", "message", "compaction"]
        assert client.responses.input_tokens.count(model="m", input=[user, said]).input_tokens > 0


def test_it_fails_in_the_words_of_the_dialect(server: ModelServer) -> None:
    with client_of(server) as client:
        server.fail(Failure.SERVER_ERROR)
        with pytest.raises(openai.InternalServerError):
            client.responses.create(model="m", input="x")
        server.fail(Failure.ERROR_IN_STREAM)
        assert list(client.responses.create(model="m", input="x", stream=True))[-1].type == "error"
        with pytest.raises(openai.AuthenticationError):
            client.with_options(api_key="bad").responses.create(model="m", input="x")
