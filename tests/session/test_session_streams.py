"""Streamed answers, of both packages and as dicts: recorded as if they had come at once, also when they break off."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anthropic
import httpx2
import openai
import pytest

from leporello.messages import STUB_RESULT, Dialect, violations
from leporello.session import AsyncSession, Session, tool_result
from leporello.session.events import AnswerRecorded
from leporello.testing.model_server import Failure, ModelServer, Step, Use

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

READ = Use(name="read_file", arguments={"path": "a.txt", "lines": [1, 2]})
SCRIPT = (
    Step(text="Let me look.", tool_calls=[READ, Use(name="terminal", arguments={"command": "ls"})]),
    Step(text="It is empty.", thinking="Hm, nothing there."),
)


def chunks(server: ModelServer, dialect: Dialect, request: dict[str, Any]) -> Iterator[Any]:
    if dialect == "anthropic":
        with anthropic.Anthropic(base_url=server.anthropic_url, api_key="any", max_retries=0) as client:
            yield from client.messages.create(model="any", max_tokens=500, stream=True, **request)
    else:
        with openai.OpenAI(base_url=server.openai_url, api_key="any", max_retries=0) as chat:
            asked = {"stream": True, "stream_options": {"include_usage": True}, **request}
            yield from chat.chat.completions.create(model="any", **asked)


def whole(server: ModelServer, dialect: Dialect, request: dict[str, Any]) -> Any:
    if dialect == "anthropic":
        with anthropic.Anthropic(base_url=server.anthropic_url, api_key="any", max_retries=0) as client:
            return client.messages.create(model="any", max_tokens=500, **request)
    with openai.OpenAI(base_url=server.openai_url, api_key="any", max_retries=0) as chat:
        return chat.chat.completions.create(model="any", **request)


def talk(opened: Any, dialect: Dialect, take: Callable[[Session, ModelServer, dict[str, Any]], Any]) -> Session:
    """Play the script, taking the answers in one way or the other."""
    session: Session = opened(f"{dialect}-{take.__name__}", dialect=dialect)
    with ModelServer(SCRIPT) as server:
        session.add({"role": "user", "content": "What is in a.txt?"})
        while not session.done:
            take(session, server, session.request())
            for call in session.calls:
                session.add(tool_result(call, f"{call.name} {json.dumps(call.arguments)}"))
    return session


@pytest.mark.slow
@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
def test_a_streamed_conversation_is_the_same_as_one_that_comes_at_once(opened: Any, dialect: Dialect) -> None:
    def streamed(session: Session, server: ModelServer, request: dict[str, Any]) -> None:
        given = list(chunks(server, dialect, request))
        assert list(session.stream(iter(given))) == given

    def recorded(session: Session, server: ModelServer, request: dict[str, Any]) -> None:
        assert session.record(whole(server, dialect, request)) == session.calls

    one, other = talk(opened, dialect, streamed), talk(opened, dialect, recorded)
    assert one.window == other.window
    assert len(one.window) == 5
    spent, same = one.usage().conversation, other.usage().conversation
    assert (spent.requests, spent.completion_tokens) == (same.requests, same.completion_tokens)
    assert spent.prompt_tokens > 0


def test_chunks_may_be_dicts(opened: Any) -> None:
    session = opened()
    session.add({"role": "user", "content": "Hello"})
    session.request()
    deltas: list[dict[str, Any]] = [
        {"role": "assistant", "content": "Let "},
        {"content": "me look."},
        {"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": {"name": "read_", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"name": "file", "arguments": '{"path"'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ': "a"}'}}]},
        {"reasoning_content": "hm"},
    ]
    given: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    given.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}], "usage": None})
    list(session.stream(given))
    assert session.window[-1] == {
        "role": "assistant",
        "content": "Let me look.",
        "reasoning_content": "hm",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "a"}'}}
        ],
    }
    (call,) = session.calls
    assert (call.name, call.arguments, call.raw) == ("read_file", {"path": "a"}, '{"path": "a"}')


@pytest.mark.slow
@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
@pytest.mark.parametrize("pieces", [3, 6, 9])
def test_an_answer_that_is_not_read_to_its_end_is_recorded_as_incomplete(
    opened: Any, dialect: Dialect, pieces: int
) -> None:
    session = opened(dialect=dialect)
    with ModelServer(SCRIPT) as server:
        session.add({"role": "user", "content": "What is in a.txt?"})
        for number, _ in enumerate(session.stream(chunks(server, dialect, session.request())), start=1):
            if number == pieces:
                break
        assert session.calls == []
        assert session.done
        (recorded,) = [event for event in session.told if isinstance(event, AnswerRecorded)]
        assert recorded.incomplete
        session.add({"role": "user", "content": "Never mind."})
        session.record(whole(server, dialect, session.request()))
    window = session.window
    assert violations(window, dialect) == []
    assert [m["content"] for m in window if m["role"] == "user"] == ["What is in a.txt?", "Never mind."]
    results = [message["content"] for message in window if message["role"] == "tool"]
    assert set(results) <= {STUB_RESULT}


@pytest.mark.slow
@pytest.mark.parametrize("failure", [Failure.BROKEN_STREAM, Failure.ERROR_IN_STREAM, Failure.CLOSED_IN_ANSWER])
@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
def test_a_stream_that_breaks_leaves_a_conversation_that_goes_on(
    opened: Any, failure: Failure, dialect: Dialect
) -> None:
    session = opened(dialect=dialect)
    with ModelServer(["It is empty."]) as server:
        session.add({"role": "user", "content": "What is in a.txt?"})
        server.fail(failure)
        with suppress(openai.APIError, anthropic.APIError, httpx2.HTTPError):  # some breaks look like an end
            list(session.stream(chunks(server, dialect, session.request())))
        assert session.calls == []
        (recorded,) = [event for event in session.told if isinstance(event, AnswerRecorded)]
        assert recorded.incomplete
        session.add({"role": "user", "content": "Again, please."})
        list(session.stream(chunks(server, dialect, session.request())))
        assert session.done
    assert violations(session.window, dialect) == []


def test_nothing_at_all_records_nothing(opened: Any) -> None:
    session = opened()
    session.add({"role": "user", "content": "Hello"})
    session.request()
    assert list(session.stream([])) == []
    assert not session.done
    assert len(session.window) == 1


def test_an_answer_that_ends_without_saying_so_is_incomplete_and_none_of_its_calls_is_run(opened: Any) -> None:
    """What was to come might have changed the call: a command without its arguments, for one."""
    session = opened()
    session.add({"role": "user", "content": "Hello"})
    session.request()
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "terminal", "arguments": "{}"}}
    list(session.stream([{"choices": [{"index": 0, "delta": {"content": "Hi.", "tool_calls": [call]}}]}]))
    assert session.done
    assert session.calls == []
    assert session.window[-1]["_incomplete"]


def test_an_async_stream_is_recorded_and_so_is_one_that_is_cancelled() -> None:
    async def scenario(server: ModelServer) -> list[Any]:
        async with (
            openai.AsyncOpenAI(base_url=server.openai_url, api_key="any") as client,
            await AsyncSession.open("talk", store=":memory:", config={}, model="any") as session,
        ):
            await session.add({"role": "user", "content": "Hello"})
            request = await session.request()
            answer = await client.chat.completions.create(model="any", stream=True, **request)
            async for _ in session.stream(answer):
                pass
            await session.add({"role": "user", "content": "And?"})
            await session.request()
            begun = asyncio.Event()

            async def stalls() -> AsyncIterator[dict[str, Any]]:
                yield {"choices": [{"index": 0, "delta": {"content": "A longer"}}]}
                begun.set()
                await asyncio.Event().wait()

            async def read() -> None:
                async for _ in session.stream(stalls()):
                    pass

            reading = asyncio.create_task(read())
            await begun.wait()
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            return session.window

    with ModelServer(["Hi there."]) as server:
        window = asyncio.run(scenario(server))
    assert window[1] == {"role": "assistant", "content": "Hi there."}
    assert window[3] == {"role": "assistant", "content": "A longer", "_incomplete": True}
