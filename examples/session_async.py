"""Many conversations at once in an event loop: `AsyncSession`, whose engine lives in a thread of its own.

It runs on a model server on loopback; point `base_url` and `api_key` at your provider instead.
"""

from __future__ import annotations

import asyncio

from openai import AsyncOpenAI

from leporello.session import AsyncSession
from leporello.testing.model_server import ModelServer

QUESTIONS = ("How are you?", "What is a leporello?", "And who was he?")


async def talk(name: str, client: AsyncOpenAI) -> str:
    """Hold one conversation, and return its last answer."""
    async with await AsyncSession.open(name, model="any", store=":memory:", config={}) as session:
        for question in QUESTIONS:
            await session.add({"role": "user", "content": f"{name}: {question}"})
            while not session.done:
                request = await session.request()
                await session.record(await client.chat.completions.create(model="any", **request))
        return session.answer


async def main() -> None:
    """Hold five conversations at the same time."""
    with ModelServer() as server:
        async with AsyncOpenAI(base_url=server.openai_url, api_key="any") as client:
            answers = await asyncio.gather(*(talk(f"visitor {n}", client) for n in range(5)))
    print("\n".join(answers))


if __name__ == "__main__":
    asyncio.run(main())
