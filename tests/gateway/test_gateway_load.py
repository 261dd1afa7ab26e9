"""Many conversations: what is held in memory has a bound, and none is lost or doubled under load."""

from __future__ import annotations

import gc
import os
import socket
from typing import TYPE_CHECKING, Any
from weakref import ref

import pytest
from benchmarks import gateway as load
from tests.gateway.serving import Bench, served

from leporello.config import Config
from leporello.gateway.errors import Refused
from leporello.gateway.server import listening
from leporello.store import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

SOAK = bool(os.environ.get("LEPORELLO_SOAK"))
MOST_GROWTH = 0.05
"""Of the memory, in the second half of some minutes."""


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., None]:
    """Run a story, and end it properly."""

    def runner(story: Callable[[Bench], Coroutine[Any, Any, None]], **bounds: int) -> None:
        served(tmp_path, story, **bounds)

    return runner


async def check_memory(bench: Bench, conversations: int = 60) -> None:
    """Once the bounds are reached, more conversations leave nothing behind."""
    objects: list[int] = []
    for batch in range(3):
        for number in range(conversations):
            await bench.say([], f"I am {batch} {number}")
        gc.collect()
        objects.append(sum(type(one) is not ref for one in gc.get_objects()))  # sqlite3 clears its own late
    assert objects[2] - objects[1] < conversations


@pytest.mark.slow
def test_what_is_held_in_memory_has_a_bound(run: Callable[..., None]) -> None:
    run(check_memory, most_open=8)


@pytest.mark.slow
def test_a_bound_that_does_not_hold_would_be_noticed(run: Callable[..., None]) -> None:
    async def story(bench: Bench) -> None:
        with pytest.raises(AssertionError):
            await check_memory(bench)

    run(story)


def test_long_conversations_make_room_for_others(run: Callable[..., None]) -> None:
    async def story(bench: Bench) -> None:
        talks: list[list[Any]] = [[] for _ in range(6)]
        names = [await bench.say(talk, f"I am {number}", weight=400) for number, talk in enumerate(talks)]
        assert (
            len(bench.clients.pool) == 3
        )  # two of 400 are within the bound, and the newest is not known to be long before
        await bench.clients.pool.expire(3600)
        assert len(bench.clients.pool) == 2
        for number, talk in enumerate(talks):
            assert await bench.say(talk, "and on") == names[number]

    run(story, most_bytes=1000)


@pytest.mark.slow
@pytest.mark.parametrize("bounds", [{"most_open": 6}, {"most_bytes": 900}])
def test_the_key_that_holds_most_makes_room(bounds: dict[str, int], run: Callable[..., None]) -> None:
    async def story(bench: Bench) -> None:
        talks: list[list[Any]] = [[], []]
        names = [await bench.say(talk, f"hello {n}", owner="ada", weight=100) for n, talk in enumerate(talks)]
        for number in range(20):
            await bench.say([], f"I am {number}", owner="mallory", weight=200)
        assert [key for owner, key, _ in bench.clients.pool if owner == "ada"] == names
        for talk, name in zip(talks, names, strict=True):
            assert await bench.say(talk, "on", owner="ada") == name

    run(story, **bounds)


def test_one_that_is_not_held_is_found_in_the_store(run: Callable[..., None]) -> None:
    async def story(bench: Bench) -> None:
        talk: list[Any] = []
        await bench.say(talk, "hello", name="mine")
        branch = [*talk]
        await bench.say(talk, "on", name="mine")
        await bench.say(branch, "elsewhere", name="mine")
        for number in range(12):
            await bench.say([], f"I am {number}")
        assert not [key for key in bench.clients.pool if key[1] == "mine"]
        await bench.say(branch, "and on", name="mine")
        assert await bench.say(talk, "and on", name="mine") == "mine"
        assert bench.store.branches("mine")[1].head is False
        assert [row.message["content"] for row in bench.store.messages("mine")] == [one["content"] for one in talk]
        other = bench.store.messages("mine", branch=2)
        assert [row.message["content"] for row in other] == [one["content"] for one in branch]

    run(story, most_open=2)


def test_one_that_is_not_held_still_belongs_to_its_client(run: Callable[..., None]) -> None:
    async def story(bench: Bench) -> None:
        await bench.say([], "hello", name="mine")
        for number in range(12):
            await bench.say([], f"I am {number}")
        with pytest.raises(Refused, match="drop-in"):
            async with bench.state.agents.session("", "mine"):
                pass

    run(story, most_open=2)


@pytest.mark.slow
def test_conversations_with_the_agent_have_bounds_too(run: Callable[..., None]) -> None:
    async def story(bench: Bench) -> None:
        agents = bench.state.agents
        agents.pool._most_bytes = 1000
        for number in range(12):
            async with agents.session("", f"room-{number}") as session:
                async for _ in session.speak({"role": "user", "content": "some words " * 60}, respond=False):
                    pass
                assert session.weight > 400
        assert len(agents.pool) <= 4
        async with agents.session("", "room-0") as session:
            window = await session.call(lambda agent: agent.session.window)
            assert [message["role"] for message in window] == ["system", "user"]

    run(story)


@pytest.mark.slow
def test_clients_may_name_any_model_and_only_some_are_remembered(run: Callable[..., None]) -> None:
    async def story(bench: Bench) -> None:
        for number in range(200):
            await bench.say([], "hi", model=f"m-{number}")
        assert len(bench.state._windows) == len(bench.state._sources) == 128

    run(story, most_open=4)


def test_conversations_on_one_model_share_what_finds_their_engines(run: Callable[..., None]) -> None:
    """Plugins are looked for once; each conversation has an engine of its own all the same."""

    async def story(bench: Bench) -> None:
        for number in range(3):
            await bench.say([], f"I am {number}")
        held = [bench.clients.pool.get(key) for key in bench.clients.pool]
        sessions = [client._session for client in held if client and client._session]
        engines = {id(session._conversation.engine.engine) for session in sessions}
        sources = {id(session._opened.source) for session in sessions}
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


@pytest.mark.slow
def test_many_conversations_of_all_apis_while_the_gateway_is_killed() -> None:
    """What was answered is stored once, and every conversation goes on behind each kill."""
    size = (
        ["--conversations", "200", "--seconds", "300", "--kills", "50"] if SOAK else ["--seconds", "5", "--kills", "2"]
    )
    seen, wrong = load.measure(load.size([*size, "--dialects", *load.APIS]))
    assert seen.errors == []
    assert wrong == []
    assert seen.kills == (50 if SOAK else 2)
    assert seen.repeated


def test_what_is_lost_doubled_or_grows_would_be_noticed(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a.db")
    store.append("a", [{"role": "user", "content": "one"}, {"role": "assistant", "content": "yes"}])
    store.close()
    assert load.compare(tmp_path / "a.db", [("a", ["one", "yes"])]) == []
    store = open_store(tmp_path / "a.db")
    store.append("unanswered", [{"role": "user", "content": "one"}])
    store.close()
    assert load.compare(tmp_path / "a.db", [("a", ["one", "yes"])], killed=True) == []
    for talks in (
        [("a", ["one", "yes"])],
        [("a", ["one", "yes", "two"])],
        [("a", ["one"])],
        [],
        [("b", ["one", "yes"])],
    ):
        assert load.compare(tmp_path / "a.db", talks)
    minutes = [second / 60 for second in range(300)]
    assert load.growth([(60 * minute, 100 - 50 * 0.1**minute) for minute in minutes]) < MOST_GROWTH
    assert load.growth([(60 * minute, 100 + 4 * minute) for minute in minutes]) > MOST_GROWTH
