"""Many conversations: what is held in memory has a bound, and none is lost or doubled under load."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
from typing import TYPE_CHECKING, Any

import pytest
from benchmarks import gateway as load

from leporello.config import Config
from leporello.gateway.dialogue import Asked, Dialogue
from leporello.gateway.errors import Refused
from leporello.gateway.history import hear
from leporello.gateway.house import House
from leporello.gateway.live import Known
from leporello.gateway.recent import Recent
from leporello.gateway.server import listening
from leporello.gateway.shelf import Shelf
from leporello.session.answers import read_answer
from leporello.store import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

SOAK = bool(os.environ.get("LEPORELLO_SOAK"))
ANSWER = {"choices": [{"message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}]}
MOST_GROWTH = 0.05
"""Of the memory, in the second half of some minutes."""


class Bench:
    """The conversations of a gateway, with bounds of its own."""

    def __init__(self, folder: Path, **bounds: Any) -> None:
        self.store = open_store(folder / "bench.db")
        config = Config.from_mapping({"windows": {"m": 16_000}, "model": {"default": "m", "base_url": "http://x/v1"}})
        self.house = House(config, self.store, engine_options={"llm": None})
        self.shelf = self.house.shelf = Shelf(self.store, self.house._dialogue, **bounds)
        self.house.rooms._shelf = self.shelf

    async def say(
        self, talk: list[Any], text: str, *, name: str = "", model: str = "m", weight: int = 0, owner: str = ""
    ) -> str:
        """Serve one turn, as a request does; returns the conversation's name."""
        talk.append({"role": "user", "content": text})
        heard = hear(talk)
        live = await self.shelf.claim(heard, owner=owner, dialect="openai", family=name, model=model)
        known = live.known
        await live.call(Dialogue.take, Asked(systems=[], new=heard.after(known.count), tools=[], model=model))
        known.count, known.mark = len(heard.marks), heard.marks[-1]
        answer = read_answer(ANSWER)
        await live.call(Dialogue.record, answer)
        known.answered(answer.message)
        await self.shelf.note(live)
        known.before, live.weight = b"", weight
        self.house.give_back(live, model)
        talk.append({"role": "assistant", "content": "yes"})
        return known.key


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., None]:
    """Run a story, and end it properly."""

    def runner(story: Callable[[Bench], Coroutine[Any, Any, None]], **bounds: int) -> None:
        async def whole() -> None:
            bench = Bench(tmp_path, **bounds)
            async with bench.house.open():
                await story(bench)
            bench.store.close()

        asyncio.run(whole())

    return runner


async def check_memory(bench: Bench, conversations: int = 60) -> None:
    """Once the bounds are reached, more conversations leave nothing behind."""
    objects: list[int] = []
    entries: list[int] = []
    for batch in range(3):
        for number in range(conversations):
            await bench.say([], f"I am {batch} {number}")
        gc.collect()
        objects.append(len(gc.get_objects()))
        entries.append(sum(isinstance(one, Known) for one in gc.get_objects()))
    assert objects[2] - objects[1] < conversations
    assert entries[2] - entries[1] < conversations / 2


@pytest.mark.slow
def test_what_is_held_in_memory_has_a_bound(run: Callable[..., None]) -> None:
    run(check_memory, most_open=8, most_known=16)


@pytest.mark.slow
@pytest.mark.parametrize("bounds", [{"most_known": 16}, {"most_open": 8}])
def test_a_bound_that_does_not_hold_would_be_noticed(bounds: dict[str, int], run: Callable[..., None]) -> None:
    async def story(bench: Bench) -> None:
        with pytest.raises(AssertionError):
            await check_memory(bench)

    run(story, **bounds)


def test_long_conversations_make_room_for_others(run: Callable[..., None]) -> None:
    async def story(bench: Bench) -> None:
        talks: list[list[Any]] = [[] for _ in range(6)]
        names = [await bench.say(talk, f"I am {number}", weight=400) for number, talk in enumerate(talks)]
        assert bench.shelf.open == 3  # two of 400 are within the bound, and the newest is not known to be long before
        await bench.shelf.expire(3600)
        assert bench.shelf.open == 2
        for number, talk in enumerate(talks):
            assert await bench.say(talk, "and on") == names[number]

    run(story, most_bytes=1000)


@pytest.mark.slow
@pytest.mark.parametrize("bounds", [{"most_open": 6}, {"most_bytes": 900}, {"most_open": 3, "most_known": 8}])
def test_the_key_that_holds_most_makes_room(bounds: dict[str, int], run: Callable[..., None]) -> None:
    async def story(bench: Bench) -> None:
        talks: list[list[Any]] = [[], []]
        names = [await bench.say(talk, f"hello {n}", owner="ada", weight=100) for n, talk in enumerate(talks)]
        for number in range(20):
            await bench.say([], f"I am {number}", owner="mallory", weight=200)
        known = [key for owner, key in bench.shelf._known if owner == "ada"]
        assert known == names
        if "most_known" not in bounds:
            assert [key for owner, key in bench.shelf._open if owner == "ada"] == names
        for talk, name in zip(talks, names, strict=True):
            assert await bench.say(talk, "on", owner="ada") == name
        assert bench.shelf._shares.total() == len(bench.shelf._known)

    run(story, **bounds)


def test_one_that_is_forgotten_is_found_by_its_name(run: Callable[..., None]) -> None:
    async def story(bench: Bench) -> None:
        talk: list[Any] = []
        assert await bench.say(talk, "hello", name="mine") == "mine"
        branch = [*talk]
        assert await bench.say(talk, "on", name="mine") == "mine"
        assert await bench.say(branch, "elsewhere", name="mine") == "mine~2"
        for number in range(12):
            await bench.say([], f"I am {number}")
        assert ("", "mine") not in bench.shelf._known
        assert await bench.say(talk, "and on", name="mine") == "mine"
        assert await bench.say(branch, "and on", name="mine") == "mine~2"
        assert await bench.say([], "something else", name="mine") == "mine~3"
        stored = [row.message["content"] for row in bench.store.messages("mine")]
        assert stored == ["hello", "yes", "on", "yes", "and on", "yes"]

    run(story, most_open=2, most_known=4)


def test_one_that_is_forgotten_still_belongs_to_its_client(run: Callable[..., None]) -> None:
    async def story(bench: Bench) -> None:
        await bench.say([], "hello", name="mine")
        for number in range(12):
            await bench.say([], f"I am {number}")
        with pytest.raises(Refused, match="drop-in"):
            async with bench.house.rooms.room("", "mine"):
                pass

    run(story, most_open=2, most_known=4)


@pytest.mark.slow
def test_conversations_with_the_agent_have_bounds_too(run: Callable[..., None]) -> None:
    async def story(bench: Bench) -> None:
        rooms = bench.house.rooms
        rooms._most_bytes = 1000
        for number in range(12):
            async with rooms.room("", f"room-{number}") as room:
                async for _ in room.speak({"role": "user", "content": "some words " * 60}, respond=False):
                    pass
                assert room.weight > 400
        assert rooms.open <= 4
        assert len(bench.shelf._known) <= 4 + rooms.open
        async with rooms.room("", "room-0") as room:
            window = await room.do(lambda agent: agent.session.window)
            assert [message["role"] for message in window] == ["system", "user"]

    run(story, most_known=4)


def test_the_newest_are_known_after_a_restart(tmp_path: Path) -> None:
    talks: list[list[Any]] = [[] for _ in range(6)]
    names: list[str] = []

    async def before() -> None:
        bench = Bench(tmp_path)
        async with bench.house.open():
            names.extend([await bench.say(talk, f"I am {number}") for number, talk in enumerate(talks)])
        bench.store.close()

    async def after() -> None:
        bench = Bench(tmp_path, most_known=4)
        async with bench.house.open():
            await bench.shelf.load()
            assert [await bench.say(talk, "on") == name for talk, name in zip(talks[2:], names[2:], strict=True)] == [
                True
            ] * 4
            assert await bench.say(talks[0], "on") != names[0]
        bench.store.close()

    asyncio.run(before())
    asyncio.run(after())


@pytest.mark.slow
def test_clients_may_name_any_model_and_only_some_are_remembered(run: Callable[..., None]) -> None:
    async def story(bench: Bench) -> None:
        for number in range(200):
            await bench.say([], "hi", model=f"m-{number}")
        assert len(bench.house._windows) == len(bench.house._sources) == 128

    run(story, most_open=4)


def test_what_was_written_last_is_remembered() -> None:
    recent: Recent[str, int] = Recent(2)
    for number, key in enumerate("abac"):
        recent.put(key, number)
    assert [recent.get(key) for key in "abc"] == [2, None, 3]


def test_conversations_on_one_model_share_what_finds_their_engines(run: Callable[..., None]) -> None:
    """Plugins are looked for once; each conversation has an engine of its own all the same."""

    async def story(bench: Bench) -> None:
        for number in range(3):
            await bench.say([], f"I am {number}")
        lives = [live._dialogue for live in bench.shelf._open.values() if live._dialogue]
        engines = {id(dialogue._conversation.engine.engine) for dialogue in lives}
        sources = {id(dialogue._opened.source) for dialogue in lives}
        assert len(engines) == 3
        assert len(sources) <= 2  # the first one is opened before the window is known

    run(story)


def test_no_piece_of_an_answer_waits_for_another() -> None:
    with listening(Config.from_mapping({}), "127.0.0.1", 0) as listener:
        assert listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.slow
def test_many_conversations_at_once_from_another_process() -> None:
    """No error, no message lost or doubled; after the caches are full, memory stays where it is."""
    size = ["--conversations", "200", "--seconds", "900"] if SOAK else ["--conversations", "20", "--seconds", "3"]
    seen, wrong = load.measure(load.size(size))
    assert seen.errors == []
    assert wrong == []
    assert len(seen.talks) >= 20
    assert not SOAK or load.growth(seen.memory) < MOST_GROWTH


def test_what_is_lost_doubled_or_grows_would_be_noticed(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a.db")
    store.append("a", [{"role": "user", "content": "one"}, {"role": "assistant", "content": "yes"}])
    store.close()
    assert load.compare(tmp_path / "a.db", [("a", ["one", "yes"])]) == []
    for talks in ([("a", ["one", "yes", "two"])], [("a", ["one"])], [], [("b", ["one", "yes"])]):
        assert load.compare(tmp_path / "a.db", talks)
    minutes = [second / 60 for second in range(300)]
    assert load.growth([(60 * minute, 100 - 50 * 0.1**minute) for minute in minutes]) < MOST_GROWTH
    assert load.growth([(60 * minute, 100 + 4 * minute) for minute in minutes]) > MOST_GROWTH
