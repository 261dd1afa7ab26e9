"""Every byte between an official client and its provider, over a conversation far longer than the window.

One tap stands between the client and the gateway, another between the gateway and the provider.
"""

from __future__ import annotations

import asyncio
import os
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import anthropic
import openai
import pytest

from leporello.messages import text_of
from leporello.testing.model_server import ModelServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from tests.fixtures.gateway import Exchange, Gateway, Tap

SOAK = bool(os.environ.get("LEPORELLO_SOAK"))
TURNS = 300 if SOAK else 40
WINDOW = 16_000
ASKS_FOR_COUNT = b'"stream_options":{"include_usage":true},'
COUNT = re.compile(rb'data: \{(?:(?!\n\n).)*"choices": ?\[\](?:(?!\n\n).)*\n\n', re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Line:
    """A client's address, the gateway behind it, and the taps on both sides."""

    gateway: Gateway
    outside: Tap
    inside: Tap


@pytest.fixture
def line(start: Callable[..., Gateway], tap: type[Tap]) -> Iterator[Line]:
    with ModelServer(window=WINDOW) as server, tap(server.anthropic_url) as inside:
        gateway = start(inside, {"windows": {"m": WINDOW}})
        with tap(gateway.address) as outside:
            yield Line(gateway=gateway, outside=outside, inside=inside)


def question(number: int) -> str:
    return f"question {number}: " + "some words to read, é 中 😀 " * 50


def check(outside: Sequence[Exchange], inside: Sequence[Exchange]) -> None:
    """What the client got is what the provider sent; before the first fold the provider got what the client sent."""
    later = iter(inside)
    pairs = []
    for one in outside:
        other = next((other for other in later if _as_shown(other.answer, one.answer)), None)
        assert other is not None, one.answer
        pairs.append((one, other))
    same = [_as_sent(one.request, other.request) for one, other in pairs]
    unfolded = same.index(False)
    assert unfolded >= 5
    assert not any(same[unfolded:])
    assert all(len(other.request) < len(one.request) for one, other in pairs[unfolded:])


def _as_shown(sent: bytes, got: bytes) -> bool:
    return got in (sent, COUNT.sub(b"", sent))


def _as_sent(sent: bytes, got: bytes) -> bool:
    return sent in (got, got.replace(ASKS_FOR_COUNT, b"", 1))


def check_store(gateway: Gateway, talk: Sequence[dict[str, Any]]) -> None:
    """One conversation, every message once and in order."""
    (info,) = gateway.store.conversations()
    assert [text_of(row.message) for row in gateway.store.messages(info.key)] == [said["content"] for said in talk]


def openai_whole(client: openai.OpenAI, talk: list[Any]) -> str:
    return client.chat.completions.create(model="m", messages=talk).choices[0].message.content or ""


def openai_stream(client: openai.OpenAI, talk: list[Any]) -> str:
    chunks = client.chat.completions.create(model="m", messages=talk, stream=True)
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


async def openai_whole_async(client: openai.AsyncOpenAI, talk: list[Any]) -> str:
    got = await client.chat.completions.create(model="m", messages=talk)
    return got.choices[0].message.content or ""


async def openai_stream_async(client: openai.AsyncOpenAI, talk: list[Any]) -> str:
    counted: Any = {"stream_options": {"include_usage": True}}
    chunks = await client.chat.completions.create(model="m", messages=talk, stream=True, **counted)
    return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks if chunk.choices])


COMMON: dict[str, Any] = {"model": "m", "max_tokens": 2000, "system": "You repeat what is said."}


def anthropic_whole(client: anthropic.Anthropic, talk: list[Any]) -> str:
    return _text(client.messages.create(messages=talk, **COMMON))


def anthropic_stream(client: anthropic.Anthropic, talk: list[Any]) -> str:
    with client.messages.stream(messages=talk, **COMMON) as stream:
        return _text(stream.get_final_message())


async def anthropic_whole_async(client: anthropic.AsyncAnthropic, talk: list[Any]) -> str:
    return _text(await client.messages.create(messages=talk, **COMMON))


async def anthropic_stream_async(client: anthropic.AsyncAnthropic, talk: list[Any]) -> str:
    async with client.messages.stream(messages=talk, **COMMON) as stream:
        return _text(await stream.get_final_message())


def _text(message: Any) -> str:
    return "".join(block.text for block in message.content)


def converse(client: Any, ask: Callable[..., str]) -> list[dict[str, Any]]:
    """Hold a long conversation as programs do: every request with the whole history."""
    talk: list[dict[str, Any]] = []
    with client:
        for number in range(TURNS):
            talk.append({"role": "user", "content": question(number)})
            talk.append({"role": "assistant", "content": ask(client, talk)})
    return talk


async def converse_async(client: Any, ask: Callable[..., Awaitable[str]]) -> list[dict[str, Any]]:
    """Hold it with an asynchronous client."""
    talk: list[dict[str, Any]] = []
    async with client:
        for number in range(TURNS):
            talk.append({"role": "user", "content": question(number)})
            talk.append({"role": "assistant", "content": await ask(client, talk)})
    return talk


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "ask"),
    [
        (openai.OpenAI, openai_whole),
        (openai.OpenAI, openai_stream),
        (openai.AsyncOpenAI, openai_whole_async),
        (openai.AsyncOpenAI, openai_stream_async),
        (anthropic.Anthropic, anthropic_whole),
        (anthropic.Anthropic, anthropic_stream),
        (anthropic.AsyncAnthropic, anthropic_whole_async),
        (anthropic.AsyncAnthropic, anthropic_stream_async),
    ],
    ids=lambda given: given.__name__,
)
def test_bytes_are_passed_on_as_they_are(kind: type[Any], ask: Callable[..., Any], line: Line) -> None:
    address = line.outside.openai_url if "OpenAI" in kind.__name__ else line.outside.anthropic_url
    client = kind(base_url=address, api_key="any", max_retries=0)
    is_async = kind.__name__.startswith("Async")
    talk = asyncio.run(converse_async(client, ask)) if is_async else converse(client, ask)
    assert [said["content"] for said in talk[1::2]] == [question(number) for number in range(TURNS)]
    check(line.outside.exchanges, line.inside.exchanges)
    check_store(line.gateway, talk)


@pytest.mark.parametrize("defect", ["answer", "request", "never folded"])
def test_a_byte_that_is_not_would_be_noticed(defect: str, tap: type[Tap]) -> None:
    """The planted defects: an answer with a byte too many, a request with one, and one that was never folded."""
    asked = [b'{"messages":[' + b"x" * number + b"]}" for number in range(1, 9)]
    inside = [
        tap.exchange(request=asked[n].replace(b"x", b"" if n > 5 else b"x"), status=200, answer=b"{%d}" % n)
        for n in range(8)
    ]
    outside = [tap.exchange(request=asked[n], status=200, answer=b"{%d}" % n) for n in range(8)]
    check(outside, inside)
    if defect == "answer":
        outside[2] = replace(outside[2], answer=outside[2].answer + b" ")
    elif defect == "request":
        inside[2] = replace(inside[2], request=inside[2].request + b" ")
    else:
        inside = [replace(one, request=asked[number]) for number, one in enumerate(inside)]
    with pytest.raises((AssertionError, ValueError)):
        check(outside, inside)
