"""Conversations in use: who has them, when they end, and that they go on afterwards."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from leporello.config import Config
from leporello.errors import StoreError
from leporello.gateway.dialogue import Asked, Dialogue
from leporello.gateway.errors import Refused
from leporello.gateway.history import hear
from leporello.gateway.house import House
from leporello.session.answers import read_answer
from leporello.store import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from leporello.gateway.live import Live
    from leporello.store import Store

HI = [{"role": "user", "content": "hi"}]


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """A shelf with a clock that a test sets."""

    def __init__(self, store: Store, most_open: int = 512) -> None:
        self.clock = Clock()
        self.house = House(Config.from_mapping({"windows": {"m": 16_000}}), store, engine_options={"llm": None})
        self.shelf = self.house.shelf
        self.shelf._clock = self.clock
        self.shelf._most_open = most_open

    async def claim(self, talk: list[dict[str, Any]], name: str = "") -> Live:
        return await self.shelf.claim(hear(talk), owner="", dialect="openai", family=name, model="m")

    async def turn(self, talk: list[dict[str, Any]], name: str = "") -> str:
        """Serve one turn, as a request does."""
        live = await self.claim(talk, name)
        heard = hear(talk)
        asked = Asked(systems=[], new=heard.after(live.known.count), tools=[], model="m")
        await live.call(Dialogue.take, asked)
        answer = read_answer(
            {"choices": [{"message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}]}
        )
        await live.call(Dialogue.record, answer)
        talk.append({"role": "assistant", "content": "yes"})
        live.known.count, live.known.mark = len(talk), hear(talk).marks[-1]
        await self.shelf.note(live)
        self.shelf.release(live)
        return live.known.key


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., None]:
    """Run a story on a shelf, and end it properly."""

    def runner(story: Callable[[Bench], Coroutine[Any, Any, None]], **options: Any) -> None:
        async def whole() -> None:
            store = open_store(tmp_path / "shelf.db")
            bench = Bench(store, **options)
            async with bench.house.open():
                await story(bench)
            store.close()

        asyncio.run(whole())

    return runner


def test_an_idle_conversation_ends_and_goes_on(run: Callable[..., None]) -> None:
    async def story(bench: Bench) -> None:
        talk = list(HI)
        name = await bench.turn(talk)
        bench.clock.now += 59
        assert await bench.shelf.expire(60) == 0
        bench.clock.now += 1
        assert await bench.shelf.expire(60) == 1
        info = bench.house.store.info(name)
        assert info is not None
        assert info.ended is not None
        assert bench.shelf.open == 0
        talk.append({"role": "user", "content": "are you still there?"})
        assert await bench.turn(talk) == name
        info = bench.house.store.info(name)
        assert info is not None
        assert (info.ended, info.messages) == (None, 4)

    run(story)


def test_a_busy_one_does_not_end(run: Callable[..., None]) -> None:
    async def story(bench: Bench) -> None:
        live = await bench.claim(HI)
        bench.clock.now += 10_000
        assert await bench.shelf.expire(60) == 0
        bench.shelf.release(live)

    run(story)


def test_a_request_for_one_that_is_ending_waits(run: Callable[..., None]) -> None:
    """It is not a branch: the conversation is there, only not ready."""

    async def story(bench: Bench) -> None:
        talk = list(HI)
        name = await bench.turn(talk)
        talk.append({"role": "user", "content": "wait!"})
        bench.clock.now += 100
        _, served = await asyncio.gather(bench.shelf.expire(60), bench.turn(talk))
        assert served == name

    run(story)


def test_room_is_made_by_the_one_that_was_used_least_recently(run: Callable[..., None]) -> None:
    async def story(bench: Bench) -> None:
        talks = [[{"role": "user", "content": f"I am {number}"}] for number in range(4)]
        names = []
        for talk in talks:
            bench.clock.now += 1
            names.append(await bench.turn(talk))
            assert bench.shelf.open <= 2
        ended = {info.key for info in bench.house.store.conversations() if info.ended is not None}
        assert ended == set(names[:2])

    run(story, most_open=2)


def test_one_that_is_deleted_is_not_found_again(run: Callable[..., None]) -> None:
    async def story(bench: Bench) -> None:
        talk = list(HI)
        name = await bench.turn(talk)
        busy = await bench.claim([*talk, {"role": "user", "content": "x"}])
        with pytest.raises(Refused, match="running"):
            await bench.shelf.forget("", name)
        bench.shelf.release(busy)
        await bench.shelf.forget("", name)
        bench.house.store.delete(name)
        talk.append({"role": "user", "content": "and now?"})
        assert await bench.turn(talk) != name

    run(story)


def test_of_many_equal_ones_each_is_found_once(run: Callable[..., None]) -> None:
    async def story(bench: Bench) -> None:
        talks = [list(HI) for _ in range(5)]
        names = {await bench.turn(talk) for talk in talks[:1]}
        lives = [await bench.claim(HI) for _ in range(4)]
        assert len({live.known.key for live in lives} | names) == 5
        for live in lives:
            bench.shelf.release(live)

    run(story)


def test_one_whose_client_left_while_it_was_opened_is_free(run: Callable[..., None]) -> None:
    async def story(bench: Bench) -> None:
        talk = list(HI)
        name = await bench.turn(talk)
        bench.clock.now += 100
        await bench.shelf.expire(60)
        talk.append({"role": "user", "content": "I have no time"})
        impatient = asyncio.ensure_future(bench.claim(talk))
        await asyncio.sleep(0)  # it has begun
        impatient.cancel()
        with pytest.raises(asyncio.CancelledError):
            await impatient
        assert await bench.turn(talk) == name

    run(story)


def test_one_that_could_not_be_opened_is_found_again(run: Callable[..., None]) -> None:
    async def story(bench: Bench) -> None:
        talk = list(HI)
        name = await bench.turn(talk)
        bench.clock.now += 100
        await bench.shelf.expire(60)
        talk.append({"role": "user", "content": "try again"})
        opener = bench.shelf._opener

        def broken(*_: Any) -> Dialogue:
            raise StoreError("the disk is gone.")

        bench.shelf._opener = broken
        with pytest.raises(StoreError):
            await bench.claim(talk)
        bench.shelf._opener = opener
        assert await bench.turn(talk) == name

    run(story)
