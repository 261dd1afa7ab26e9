"""The official clients, unchanged but for base_url, in conversations far longer than the provider's window."""

from __future__ import annotations

import asyncio
import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import anthropic
import openai
import pytest

from leporello.testing.model_server import ModelServer, Step, Use

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.fixtures.gateway import Gateway

    from leporello.testing.model_server import ReceivedRequest

pytestmark = pytest.mark.slow

SOAK = bool(os.environ.get("LEPORELLO_SOAK"))
TURNS = 300 if SOAK else 60
WINDOW = 16_000
FACT = "the code of the vault is 7319-QX"
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
]


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    """Where clients are closed at the end."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def narrow() -> Iterator[ModelServer]:
    """A provider that refuses whatever is longer than 16K tokens, and any sequence that is not valid."""
    with ModelServer(window=WINDOW) as server:
        yield server


def question(number: int) -> str:
    return f"question {number}: " + (f"{FACT}. " if number == 3 else "") + "some words to read " * 60


def check_upstream(requests: list[ReceivedRequest], talk: list[dict[str, Any]], turns: int) -> None:
    """Every turn reached the provider, with the newest message as it was; unfolded requests are the client's own."""
    asked = [request for request in requests if request.messages[-1]["content"] in {said["content"] for said in talk}]
    newest = [request.messages[-1]["content"] for request in asked]
    assert newest[-1] == question(turns - 1)
    assert {question(number) for number in range(turns)} <= set(newest)
    whole = [
        request for request in asked if len(request.messages) == 2 * newest.index(request.messages[-1]["content"]) + 1
    ]
    for request in whole[:5]:
        assert [said["content"] for said in request.messages] == [
            said["content"] for said in talk[: len(request.messages)]
        ]
    assert any(len(request.messages) < turns for request in asked[-3:])


def check_store(gateway: Gateway, talk: list[dict[str, Any]]) -> None:
    """One conversation, every message once and in order."""
    (info,) = gateway.store.conversations()
    assert gateway.texts(info.key) == [said["content"] for said in talk]


@pytest.mark.parametrize("engine", ["compressor", "lcm"])
@pytest.mark.parametrize("streaming", [False, True])
def test_openai(
    engine: str, streaming: bool, start: Callable[..., Gateway], narrow: ModelServer, closing: ExitStack
) -> None:
    gateway = start(narrow, {"context": {"engine": engine}, "windows": {"m": WINDOW}})
    client = closing.enter_context(openai.OpenAI(base_url=f"{gateway.address}/v1", api_key="any", max_retries=0))
    talk: list[Any] = []
    for number in range(TURNS):
        talk.append({"role": "user", "content": question(number)})
        if streaming:
            chunks = client.chat.completions.create(model="m", messages=talk, stream=True)
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        else:
            text = client.chat.completions.create(model="m", messages=talk).choices[0].message.content or ""
        assert text == question(number)
        talk.append({"role": "assistant", "content": text})
    check_upstream(narrow.requests, talk, TURNS)
    check_store(gateway, talk)


def test_openai_async(start: Callable[..., Gateway], narrow: ModelServer) -> None:
    """A long conversation and two short ones at the same time, each in order."""
    gateway = start(narrow)

    async def converse(client: openai.AsyncOpenAI, who: str, turns: int) -> list[Any]:
        talk: list[Any] = []
        for number in range(turns):
            talk.append({"role": "user", "content": f"{who} {question(number)}"})
            stream = await client.chat.completions.create(model="m", messages=talk, stream=True)
            text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
            talk.append({"role": "assistant", "content": text})
        return talk

    lengths = {"Ada": TURNS, "Bob": TURNS // 6, "Cleo": TURNS // 6}

    async def all_of_them() -> list[list[Any]]:
        async with openai.AsyncOpenAI(base_url=f"{gateway.address}/v1", api_key="any", max_retries=0) as client:
            return await asyncio.gather(*(converse(client, who, turns) for who, turns in lengths.items()))

    talks = asyncio.run(all_of_them())
    kept = sorted(gateway.texts(info.key) for info in gateway.store.conversations())
    assert kept == sorted([said["content"] for said in talk] for talk in talks)


@pytest.mark.parametrize("streaming", [False, True])
def test_anthropic(streaming: bool, start: Callable[..., Gateway], narrow: ModelServer, closing: ExitStack) -> None:
    gateway = start(narrow)
    client = closing.enter_context(anthropic.Anthropic(base_url=gateway.address, api_key="any", max_retries=0))
    talk: list[Any] = []
    common: dict[str, Any] = {"model": "m", "max_tokens": 2000, "system": "You repeat what is said."}
    for number in range(TURNS):
        talk.append({"role": "user", "content": question(number)})
        if streaming:
            with client.messages.stream(messages=talk, **common) as stream:
                answer = stream.get_final_message()
        else:
            answer = client.messages.create(messages=talk, **common)
        talk.append({"role": "assistant", "content": answer.content})
    (info,) = gateway.store.conversations()
    assert info.messages == 2 * TURNS
    last = narrow.requests[-1]
    assert last.body["messages"][-1]["content"] == question(TURNS - 1)
    assert len(last.body["messages"]) < TURNS


def test_anthropic_async(start: Callable[..., Gateway], narrow: ModelServer) -> None:
    gateway = start(narrow)

    async def converse() -> list[Any]:
        talk: list[Any] = []
        async with anthropic.AsyncAnthropic(base_url=gateway.address, api_key="any", max_retries=0) as client:
            for number in range(TURNS):
                talk.append({"role": "user", "content": question(number)})
                answer = await client.messages.create(model="m", max_tokens=2000, messages=talk)
                talk.append({"role": "assistant", "content": answer.content})
        return talk

    talk = asyncio.run(converse())
    (info,) = gateway.store.conversations()
    assert info.messages == len(talk)


def looks_first(request: ReceivedRequest) -> Step:
    """Call a tool, and answer when its result is there; a request without tools wants a summary."""
    if not request.tools:
        return Step(text="")
    return Step(text="seen") if request.messages[-1]["role"] == "tool" else Step(tool_calls=[Use(name="look")])


def test_tool_loops(start: Callable[..., Gateway], closing: ExitStack) -> None:
    """Calls and their results go through, in the client's own words, folded or not."""
    with ModelServer(window=WINDOW, then=looks_first) as narrow:
        gateway = start(narrow)
        client = closing.enter_context(openai.OpenAI(base_url=f"{gateway.address}/v1", api_key="any", max_retries=0))
        talk: list[Any] = []
        for number in range(TURNS // 2):
            talk.append({"role": "user", "content": question(number)})
            message = client.chat.completions.create(model="m", messages=talk, tools=TOOLS).choices[0].message
            assert message.tool_calls
            talk.append(message.model_dump(exclude_none=True))
            talk.append({"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "output " * 300})
            message = client.chat.completions.create(model="m", messages=talk, tools=TOOLS).choices[0].message
            talk.append({"role": "assistant", "content": message.content})
            assert message.content == "seen"
        (info,) = gateway.store.conversations()
        assert info.messages == len(talk)
        sent = [request for request in narrow.requests if request.tools]
        assert all(request.tools == TOOLS for request in sent)
        assert len(sent[-1].messages) < len(talk) / 2


def test_a_window_that_nobody_knew_is_learnt_once(start: Callable[..., Gateway]) -> None:
    """The provider names its window in a refusal; the client never sees one, and the next conversation knows it."""
    with ModelServer(window=4_000) as upstream:
        gateway = start(upstream, {"windows": {"m": 200_000}})
        for _ in range(2):
            talk: list[Any] = []
            for number in range(30):
                gateway.say(talk, question(number))
        refused = [request for request in upstream.requests if request.messages[-1]["content"] == question(29)]
        assert len(refused) == 2
