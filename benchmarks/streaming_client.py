"""Streamed conversations of one kind of client, held by a process of its own: what it heard is printed as JSON.

It imports nothing of ours, so that clients may live in environments of their own (`benchmarks.gateway_streams`).
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Ask = Callable[[list[dict[str, Any]]], Awaitable[str]]

MOST_SECONDS = 60
"""A turn that takes longer hangs."""
_TICK = 0.2


def openai_chat(address: str) -> Ask:
    from openai import AsyncOpenAI

    client = AsyncOpenAI(base_url=f"{address}/v1", api_key="any", max_retries=0, timeout=MOST_SECONDS)

    async def ask(talk: list[dict[str, Any]]) -> str:
        chunks: Any = await client.chat.completions.create(model="m", messages=talk, stream=True)  # type: ignore[arg-type]
        return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks if chunk.choices])

    return ask


def openai_responses(address: str) -> Ask:
    from openai import AsyncOpenAI

    client = AsyncOpenAI(base_url=f"{address}/v1", api_key="any", max_retries=0, timeout=MOST_SECONDS)

    async def ask(talk: list[dict[str, Any]]) -> str:
        events: Any = await client.responses.create(model="m", input=talk, stream=True)  # type: ignore[arg-type]
        return "".join([event.delta async for event in events if event.type == "response.output_text.delta"])

    return ask


def anthropic_messages(address: str) -> Ask:
    from anthropic import AsyncAnthropic

    client = AsyncAnthropic(base_url=address, api_key="any", max_retries=0, timeout=MOST_SECONDS)

    async def ask(talk: list[dict[str, Any]]) -> str:
        async with client.messages.stream(model="m", max_tokens=500, messages=talk) as stream:  # type: ignore[arg-type]
            return "".join([text async for text in stream.text_stream])

    return ask


def litellm_chat(address: str) -> Ask:
    return _litellm("openai/m", f"{address}/v1")


def litellm_messages(address: str) -> Ask:
    return _litellm("anthropic/m", address)


def _litellm(model: str, base_url: str) -> Ask:
    completion: Any = importlib.import_module("litellm").acompletion

    async def ask(talk: list[dict[str, Any]]) -> str:
        chunks = await completion(
            model=model, messages=talk, stream=True, base_url=base_url, api_key="any", timeout=MOST_SECONDS
        )
        return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks if chunk.choices])

    return ask


CLIENTS = {
    "openai chat": openai_chat,
    "openai responses": openai_responses,
    "anthropic": anthropic_messages,
    "litellm chat": litellm_chat,
    "litellm anthropic": litellm_messages,
}


async def hold(ask: Ask, label: str, turns: int) -> dict[str, Any]:
    """Hold one conversation; the next turn is posted when the stream of the last one ends."""
    talk: list[dict[str, Any]] = []
    longest = 0.0
    for turn in range(turns):
        talk.append({"role": "user", "content": f"{label}, turn {turn}: where does container {turn * 7919} stand?"})
        started = time.monotonic()
        try:
            text = await asyncio.wait_for(ask(talk), MOST_SECONDS)
        except Exception as error:  # noqa: BLE001 - whatever goes wrong in a client is what is looked for
            return {"error": f"turn {turn}: {error!r}", "said": [one["content"] for one in talk], "longest": longest}
        longest = max(longest, time.monotonic() - started)
        talk.append({"role": "assistant", "content": text})
    return {"error": "", "said": [one["content"] for one in talk], "longest": longest}


async def longest_stall(stop: asyncio.Event) -> float:
    """Return for how long this process did nothing for its conversations: what hangs meanwhile hangs here."""
    longest = 0.0
    while not stop.is_set():
        begun = time.monotonic()
        await asyncio.sleep(_TICK)
        longest = max(longest, time.monotonic() - begun - _TICK)
    return longest


async def run(options: argparse.Namespace) -> dict[str, Any]:
    ask = CLIENTS[options.kind](options.address)
    slots = asyncio.Semaphore(options.at_once)
    await ask([{"role": "user", "content": "hi"}])  # a client imports much of itself with its first request

    async def one(number: int) -> dict[str, Any]:
        async with slots:
            return await hold(ask, f"{options.kind} {number}", options.turns)

    stop = asyncio.Event()
    watch = asyncio.create_task(longest_stall(stop))
    held = await asyncio.gather(*map(one, range(options.sessions)))
    stop.set()
    return {"held": held, "stalled": await watch}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("kind", choices=CLIENTS)
    parser.add_argument("--sessions", type=int, default=4)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--at-once", type=int, default=10)
    sys.stdout.write(f"\n{json.dumps(asyncio.run(run(parser.parse_args())))}\n")


if __name__ == "__main__":
    main()
