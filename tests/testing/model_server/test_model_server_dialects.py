"""The model server speaks to the official clients: plain, streaming, asynchronous, with tools."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from leporello.engine import Usage, normalise_usage
from leporello.messages import from_anthropic
from leporello.testing.model_server import ModelServer, ReceivedRequest, Step, Use
from leporello.tokens import count_request

HELLO: list[Any] = [{"role": "user", "content": "Hello there, model"}]
WEATHER = Use(name="weather", arguments={"city": "Wien", "days": 3}, id="call_weather")
RICH = Step(thinking="It is about the weather.", text="Let me look.", tool_calls=[WEATHER])
OPENAI_TOOL: dict[str, Any] = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
ANTHROPIC_TOOL: dict[str, Any] = {"name": "weather", "input_schema": {"type": "object"}}


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


@pytest.fixture
def openai_client(server: ModelServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(api_key="k", base_url=server.openai_url, max_retries=0) as client:
        yield client


@pytest.fixture
def anthropic_client(server: ModelServer) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(api_key="k", base_url=server.anthropic_url, max_retries=0) as client:
        yield client


def test_openai_answers(server: ModelServer, openai_client: openai.OpenAI) -> None:
    server.script(RICH)
    answer = openai_client.chat.completions.create(model="m", messages=HELLO, tools=[OPENAI_TOOL])  # type: ignore[list-item]
    message = answer.choices[0].message
    assert (message.content, answer.choices[0].finish_reason) == ("Let me look.", "tool_calls")
    assert message.tool_calls is not None
    call: Any = message.tool_calls[0]
    assert (call.id, call.function.name) == ("call_weather", "weather")
    assert json.loads(call.function.arguments) == {"city": "Wien", "days": 3}
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == count_request(HELLO, tools=[OPENAI_TOOL])


def test_openai_streams_the_same(server: ModelServer, openai_client: openai.OpenAI) -> None:
    server.script(RICH)
    stream = openai_client.chat.completions.create(
        model="m", messages=HELLO, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert "".join(delta.content or "" for delta in deltas) == "Let me look."
    calls = [call for delta in deltas for call in delta.tool_calls or []]
    arguments = "".join(call.function.arguments or "" for call in calls if call.function)
    assert json.loads(arguments) == {"city": "Wien", "days": 3}
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "tool_calls"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.prompt_tokens == count_request(HELLO)


def test_openai_streams_usage_only_when_asked(openai_client: openai.OpenAI) -> None:
    stream = openai_client.chat.completions.create(model="m", messages=HELLO, stream=True)
    assert not [chunk for chunk in stream if chunk.usage]


def test_openai_asynchronously(server: ModelServer) -> None:
    async def ask() -> tuple[str | None, str]:
        async with openai.AsyncOpenAI(api_key="k", base_url=server.openai_url, max_retries=0) as client:
            plain = await client.chat.completions.create(model="m", messages=HELLO)
            stream = await client.chat.completions.create(model="m", messages=HELLO, stream=True)
            pieces = [chunk.choices[0].delta.content or "" async for chunk in stream]
        return plain.choices[0].message.content, "".join(pieces)

    assert asyncio.run(ask()) == ("Hello there, model", "Hello there, model")


def test_anthropic_answers(server: ModelServer, anthropic_client: anthropic.Anthropic) -> None:
    server.script(RICH)
    answer = anthropic_client.messages.create(model="m", max_tokens=99, messages=HELLO, tools=[ANTHROPIC_TOOL])  # type: ignore[list-item]
    thinking, text, use = answer.content
    assert thinking.type == "thinking"
    assert thinking.signature
    assert text.type == "text"
    assert text.text == "Let me look."
    assert use.type == "tool_use"
    assert (use.id, use.name, use.input) == ("call_weather", "weather", {"city": "Wien", "days": 3})
    assert answer.stop_reason == "tool_use"


def test_anthropic_streams_the_same(server: ModelServer, anthropic_client: anthropic.Anthropic) -> None:
    server.script(RICH, RICH)
    plain = anthropic_client.messages.create(model="m", max_tokens=99, messages=HELLO)
    with anthropic_client.messages.stream(model="m", max_tokens=99, messages=HELLO) as stream:
        text = "".join(stream.text_stream)
        streamed = stream.get_final_message()
    assert text == "Let me look."
    same = ("content", "stop_reason", "role", "model")
    assert {key: streamed.to_dict()[key] for key in same} == {key: plain.to_dict()[key] for key in same}
    assert streamed.usage.output_tokens == plain.usage.output_tokens


def test_anthropic_asynchronously(server: ModelServer) -> None:
    async def ask() -> tuple[str, str]:
        async with anthropic.AsyncAnthropic(api_key="k", base_url=server.anthropic_url, max_retries=0) as client:
            plain = await client.messages.create(model="m", max_tokens=99, messages=HELLO)
            async with client.messages.stream(model="m", max_tokens=99, messages=HELLO) as stream:
                streamed = await stream.get_final_text()
        first: Any = plain.content[0]
        return first.text, streamed

    assert asyncio.run(ask()) == ("Hello there, model", "Hello there, model")


def test_a_tool_round_in_the_anthropic_dialect(server: ModelServer, anthropic_client: anthropic.Anthropic) -> None:
    server.script(RICH, "It rains.")
    asked = anthropic_client.messages.create(model="m", max_tokens=99, messages=HELLO)
    result = {"type": "tool_result", "tool_use_id": "call_weather", "content": "rain"}
    messages: list[Any] = [
        *HELLO,
        {"role": "assistant", "content": asked.to_dict()["content"]},
        {"role": "user", "content": [result]},
    ]
    answer: Any = anthropic_client.messages.create(model="m", max_tokens=99, messages=messages).content[0]
    assert answer.text == "It rains."
    assert server.requests[-1].messages == from_anthropic({"messages": messages})


def test_tokens_are_counted_as_usage_counts_them(server: ModelServer, anthropic_client: anthropic.Anthropic) -> None:
    counted = anthropic_client.messages.count_tokens(model="m", messages=HELLO, system="Be brief.")
    used = anthropic_client.messages.create(model="m", max_tokens=99, messages=HELLO, system="Be brief.").usage
    assert counted.input_tokens == used.input_tokens > 0
    assert server.requests[-1].messages[0] == {"role": "system", "content": "Be brief."}


def test_models_are_listed_in_both_dialects() -> None:
    with ModelServer(models=["alpha", "beta"]) as server:
        with openai.OpenAI(api_key="k", base_url=server.openai_url) as client:
            assert [model.id for model in client.models.list()] == ["alpha", "beta"]
        with anthropic.Anthropic(api_key="k", base_url=server.anthropic_url) as other:
            assert [model.id for model in other.models.list()] == ["alpha", "beta"]


def test_usage_can_be_changed_for_both_dialects() -> None:
    """The place where a simulated cache reports what it read."""

    def cached(request: ReceivedRequest, usage: Usage) -> Usage:
        read = usage["prompt_tokens"] - 1 if request.messages else 0
        return normalise_usage({**usage, "cache_read_tokens": read})

    with ModelServer(usage=cached) as server:
        with openai.OpenAI(api_key="k", base_url=server.openai_url) as client:
            first = normalise_usage(client.chat.completions.create(model="m", messages=HELLO).usage)
        with anthropic.Anthropic(api_key="k", base_url=server.anthropic_url) as other:
            second = normalise_usage(other.messages.create(model="m", max_tokens=9, messages=HELLO).usage)
    assert first["cache_read_tokens"] == second["cache_read_tokens"] == first["prompt_tokens"] - 1
    assert first["input_tokens"] == second["input_tokens"] == 1


def test_an_answer_is_no_longer_than_was_asked_for(server: ModelServer) -> None:
    server.script("word " * 500)
    response = httpx2.post(
        f"{server.openai_url}/chat/completions",
        json={"model": "m", "messages": HELLO, "max_tokens": 20},
        headers={"authorization": "Bearer k"},
    ).json()
    assert response["choices"][0]["finish_reason"] == "length"
    assert response["usage"]["completion_tokens"] <= 25
