"""The conversations of a gateway without a network: turns are served as a request does, on a clock that a test sets."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from leporello.config import Config
from leporello.gateway.client_session import Added, ClientSession
from leporello.gateway.client_sessions import ClientSessions
from leporello.gateway.history import parse
from leporello.gateway.state import State
from leporello.messages import Message
from leporello.session.answers import read_answer
from leporello.store import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from leporello.gateway.client_sessions import Claim

Talk = list[Message]


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """The conversations of a gateway, with bounds of its own."""

    def __init__(self, folder: Path, **bounds: Any) -> None:
        self.clock = Clock()
        self.store = open_store(folder / "bench.db")
        config = Config.from_mapping({"windows": {"m": 16_000}, "model": {"default": "m", "base_url": "http://x/v1"}})
        self.state = State(config, self.store, engine_options={"llm": None})
        self.clients = self.state.clients = ClientSessions(self.store, self.state._session, clock=self.clock, **bounds)

    async def claim(self, talk: Talk, *, name: str = "", owner: str = "", model: str = "m") -> Claim:
        history = parse(talk, owner=owner, dialect="openai", name=name)
        return await self.clients.claim(history, owner=owner, dialect="openai", name=name, model=model)

    async def turn(self, talk: Talk, *, name: str = "", owner: str = "", model: str = "m", weight: int = 0) -> str:
        """Serve a request, and add the answer to it; returns the conversation's name."""
        history = parse(talk, owner=owner, dialect="openai", name=name)
        claim = await self.claim(talk, name=name, owner=owner, model=model)
        client = claim.session
        added = Added(new=history.after(claim.count), known=claim.known_by(history.hashes[-1]))
        await client.call(ClientSession.add, added)
        await client.call(ClientSession.request, [])
        body = {"choices": [{"message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}]}
        answer = read_answer(body)
        await client.call(ClientSession.record, answer, history.answered(answer.message))
        client.weight = weight
        self.state.releaser(client, model)()
        talk.append({"role": "assistant", "content": "yes"})
        return client.address.conversation

    async def say(self, talk: Talk, text: str, **options: Any) -> str:
        """Let the user of a conversation say something."""
        talk.append({"role": "user", "content": text})
        return await self.turn(talk, **options)


def served(folder: Path, story: Callable[[Bench], Coroutine[Any, Any, None]], **bounds: Any) -> None:
    """Run a story, and end it properly."""

    async def whole() -> None:
        bench = Bench(folder, **bounds)
        async with bench.state.open():
            await story(bench)
        bench.store.close()

    asyncio.run(whole())
