"""A session that speaks the Responses API, with the official package and a strict provider."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import openai
import pytest

from leporello import AsyncSession, Session
from leporello.errors import ContextTooLongError, MalformedAnswerError, SessionError
from leporello.session import tool_result
from leporello.testing.model_server import Failure, ModelServer, Step, Use

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leporello.testing.model_server import ReceivedRequest

TOOL = {"type": "function", "name": "read", "parameters": {"type": "object", "properties": {}}}
CHAT_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "read", "parameters": {"type": "object", "properties": {}}},
}


def worker(request: ReceivedRequest) -> Step:
    """Think, call a tool for every question, then answer at length."""
    number = len(request.items)
    if request.messages[-1]["role"] == "user":
        return Step(thinking="Hm.", text="I look.", tool_calls=[Use(name="read", arguments={"n": number})])
    search = {"type": "web_search_call", "id": f"ws_{id(request)}", "status": "completed"}
    return Step(thinking="So.", items=[search], text=f"It is {number}. " + "word " * 50)


@pytest.fixture
def provider() -> Iterator[Callable[..., tuple[ModelServer, Any]]]:
    opened: list[Any] = []

    def make(**options: Any) -> tuple[ModelServer, Any]:
        server = ModelServer(**{"then": worker, **options})
        opened.append(server.__enter__())
        client = openai.OpenAI(api_key="k", base_url=server.openai_url, max_retries=0)
        opened.append(client.__enter__())
        return server, client

    yield make
    for one in reversed(opened):
        one.__exit__(None, None, None)


def whole(session: Session, client: Any, request: dict[str, Any]) -> list[Any]:
    return session.record(client.responses.create(model="m", **request))


def as_dict(session: Session, client: Any, request: dict[str, Any]) -> list[Any]:
    return session.record(client.responses.create(model="m", **request).to_dict())


def streamed(session: Session, client: Any, request: dict[str, Any]) -> list[Any]:
    for _ in session.stream(client.responses.create(model="m", stream=True, **request)):
        pass
    return session.calls


def helped(session: Session, client: Any, request: dict[str, Any]) -> list[Any]:
    with client.responses.stream(model="m", **request) as stream:
        for _ in session.stream(stream):
            pass
    return session.calls


@pytest.mark.parametrize("engine", ["compressor", "lcm"])
@pytest.mark.parametrize("ask", [whole, as_dict, streamed, helped])
def test_a_long_conversation_is_folded_and_every_request_is_taken(
    engine: str, ask: Any, provider: Any, opened: Any
) -> None:
    server, client = provider()
    session = opened(dialect="responses", engine=engine, context_length=6_000, llm=None, system="You help.")
    for turn in range(16):
        session.add({"role": "user", "content": f"Question {turn}. " + "text " * 60})
        while not session.done:
            request = session.request(tools=[TOOL])
            for call in ask(session, client, request):
                output = {"type": "function_call_output", "call_id": call.id, "output": "file " * 80}
                session.add(output if turn % 2 else tool_result(call, "file " * 80))
    usage = session.usage()
    assert usage.compactions >= 2
    assert request.keys() == {"instructions", "input", "tools"}
    assert request["instructions"].startswith("You help.")
    assert request["tools"] == [TOOL] if engine == "compressor" else TOOL in request["tools"]
    assert len(server.requests) == 32
    assert usage.conversation.prompt_tokens > 0
    assert usage.conversation.cache_read_tokens > 0


def test_nothing_is_changed_as_long_as_nothing_is_folded(provider: Any, opened: Any) -> None:
    server, client = provider()
    session = opened(dialect="responses")
    tools = {"type": "additional_tools", "role": "developer", "tools": [TOOL]}
    asked = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Look at it."}]}
    session.add(tools, asked)
    answer = client.responses.create(model="m", **session.request())
    (call,) = session.record(answer)
    output = {"type": "function_call_output", "call_id": call.id, "output": "a crane", "id": "fco_1"}
    session.add(output)
    assert session.request()["input"] == [tools, asked, *(item.to_dict() for item in answer.output), output]
    assert server.requests[0].tools == []


def test_tools_of_chat_completions_are_written_as_this_api_takes_them(provider: Any, opened: Any) -> None:
    server, client = provider()
    session = opened(dialect="responses")
    session.add({"role": "user", "content": "Look."})
    client.responses.create(model="m", **session.request(tools=[CHAT_TOOL]))
    assert server.requests[0].tools == [{"type": "function", "strict": False, **CHAT_TOOL["function"]}]


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("ask", [whole, streamed])
def test_an_overflow_is_folded_and_sent_again(inside: bool, ask: Any, provider: Any, opened: Any) -> None:
    server, client = provider(then="Yes.", window=5_000, fails_inside=inside)
    session = opened(dialect="responses", llm=None)
    refused = 0
    for turn in range(12):
        session.add({"role": "user", "content": f"{turn} " + "text " * 500})
        while not session.done:
            try:
                ask(session, client, session.request())
            except (openai.BadRequestError, ContextTooLongError) as error:
                refused += session.recover(error)
    assert refused
    assert session.usage().compactions >= refused
    assert len(server.requests) == 12 + refused


def test_a_stream_that_breaks_off_keeps_what_is_whole(provider: Any, opened: Any) -> None:
    server, client = provider(
        then=Step(thinking="Hm.", text="A longer text that breaks off.", tool_calls=[Use(name="x")])
    )
    session = opened(dialect="responses")
    session.add({"role": "user", "content": "Look."})
    server.fail(Failure.BROKEN_STREAM)
    for _ in session.stream(client.responses.create(model="m", stream=True, **session.request())):
        pass
    assert session.calls == []
    session.add({"role": "user", "content": "Again."})
    client.responses.create(model="m", **session.request())
    assert [item.get("type") for item in server.requests[-1].items][:1] == ["message"]


def test_an_answer_that_was_cut_says_so_and_calls_nothing(opened: Any) -> None:
    session = opened(dialect="responses")
    session.add({"role": "user", "content": "Look."})
    session.request()
    call = {"type": "function_call", "call_id": "c", "name": "read", "arguments": '{"pa', "status": "incomplete"}
    cut = {"object": "response", "id": "resp_1", "status": "incomplete", "output": [call]}
    assert session.record({**cut, "incomplete_details": {"reason": "max_output_tokens"}}) == []
    recorded = [event for event in session.told if type(event).__name__ == "AnswerRecorded"]
    assert (recorded[0].finish, recorded[0].answer_id) == ("length", "resp_1")


@pytest.mark.parametrize("broken", [{"object": "response"}, {"object": "response", "output": ["text"]}])
def test_what_is_no_response_is_refused(broken: dict[str, Any], opened: Any) -> None:
    session = opened(dialect="responses")
    session.add({"role": "user", "content": "Look."})
    session.request()
    with pytest.raises(MalformedAnswerError):
        session.record(broken)


def test_usage_is_read_with_its_details(opened: Any) -> None:
    session = opened(dialect="responses")
    session.add({"role": "user", "content": "Look."})
    session.request()
    usage = {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 60},
        "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 12},
        "total_tokens": 120,
    }
    session.record({"object": "response", "status": "completed", "output": [], "usage": usage})
    (row,) = session.store.journal(session.id)
    counted = ("prompt_tokens", "cache_read_tokens", "input_tokens", "completion_tokens", "reasoning_tokens")
    assert [row.usage[name] for name in counted] == [100, 60, 40, 20, 12]


def test_a_conversation_goes_on_after_a_restart(tmp_path: Any, provider: Any) -> None:
    server, client = provider()
    requests = []
    for turn in range(3):
        with Session.open("talk", model="m", store=tmp_path / "s.db", dialect="responses", llm=None) as session:
            session.add({"role": "user", "content": f"Question {turn}."})
            while not session.done:
                requests.append(session.request(tools=[TOOL]))
                for call in whole(session, client, requests[-1]):
                    session.add(tool_result(call, "text"))
    for before, after in pairwise(requests):
        assert after["input"][: len(before["input"])] == before["input"]
    assert len(server.requests[-1].items) > 12


def test_the_async_session_speaks_it_too(provider: Any) -> None:
    server, _ = provider(then="Hello!")

    async def talk() -> str:
        async with (
            openai.AsyncOpenAI(api_key="k", base_url=server.openai_url) as client,
            await AsyncSession.open(model="m", store=":memory:", dialect="responses") as session,
        ):
            await session.add({"role": "user", "content": "Hi"})
            answer = await client.responses.create(model="m", **await session.request())
            await session.record(answer)
            return str(answer.output_text)

    assert asyncio.run(talk()) == "Hello!"


def test_a_dialect_that_nobody_speaks_is_refused() -> None:
    with pytest.raises(SessionError, match="'openai', 'anthropic' or 'responses'"):
        Session.open(dialect="gemini", store=":memory:")  # type: ignore[arg-type]


@pytest.mark.parametrize("engine", ["compressor", "lcm"])
def test_what_the_conversation_begins_with_and_what_only_the_provider_can_read_survive_a_fold(
    engine: str, opened: Any
) -> None:
    session = opened(dialect="responses", engine=engine, context_length=4_000, llm=None)
    tools = {"type": "additional_tools", "role": "developer", "tools": [TOOL]}
    opening = [tools, *({"type": "message", "role": "developer", "content": f"Rule {n}."} for n in range(5))]
    session.add(*opening)
    sealed = {"type": "compaction", "id": "cmp_1", "encrypted_content": "opaque"}
    for turn in range(30):
        session.add({"role": "user", "content": f"Question {turn}. " + "text " * 60})
        session.request()
        text = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "word " * 60}]}
        output = [sealed, text] if turn == 4 else [text]
        session.record({"object": "response", "status": "completed", "output": output})
    session.add({"role": "user", "content": "And now?"})
    items = session.request()["input"]
    assert session.usage().compactions >= 2
    assert items[0] == tools
    rules = [item for item in items if item.get("role") == "developer"]
    assert [item for item in rules if item in opening] == opening
    assert all(item.get("role") == "developer" for item in items[: len(rules)])
    assert items.count(sealed) == 1
    assert items.index(sealed) < next(at for at, item in enumerate(items) if "COMPACTION" in str(item.get("content")))
