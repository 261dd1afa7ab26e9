"""Conversations in use: who has them, when they end, and that they go on afterwards."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.gateway.serving import Bench, served

from leporello.errors import StoreError
from leporello.gateway import client_sessions
from leporello.gateway.client_session import Added, ClientSession
from leporello.gateway.errors import Refused
from leporello.gateway.recognition import recognise
from leporello.session.answers import read_answer

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from leporello.messages import Message

HI: list[Message] = [{"role": "user", "content": "hi"}]


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., None]:
    """Run a story on the conversations of a gateway, and end it properly."""

    def runner(story: Callable[[Bench], Coroutine[Any, Any, None]], **bounds: Any) -> None:
        served(tmp_path, story, **bounds)

    return runner


def test_an_idle_conversation_ends_and_goes_on(run: Callable[..., None]) -> None:
    async def story(bench: Bench) -> None:
        talk = list(HI)
        name = await bench.turn(talk)
        bench.clock.now += 59
        assert await bench.clients.pool.expire(60) == 0
        bench.clock.now += 1
        assert await bench.clients.pool.expire(60) == 1
        info = bench.store.info(name)
        assert info is not None
        assert info.ended is not None
        assert len(bench.clients.pool) == 0
        talk.append({"role": "user", "content": "are you still there?"})
        assert await bench.turn(talk) == name
        info = bench.store.info(name)
        assert info is not None
        assert (info.ended, info.messages) == (None, 4)

    run(story)


def test_a_busy_one_does_not_end(run: Callable[..., None]) -> None:
    async def story(bench: Bench) -> None:
        claim = await bench.claim(HI)
        bench.clock.now += 10_000
        assert await bench.clients.pool.expire(60) == 0
        bench.clients.release(claim.session)

    run(story)


def test_one_that_is_used_while_others_end_does_not_end(run: Callable[..., None]) -> None:
    """Ending takes a while; which one is next is decided then."""

    async def story(bench: Bench) -> None:
        first: list[Message] = []
        second: list[Message] = []
        await bench.say(first, "one")
        await bench.say(second, "two")
        bench.clock.now += 10_000
        held = next(iter(bench.clients.pool._held.values()))
        close = held.close

        async def slowly() -> None:
            await asyncio.sleep(0.1)
            await close()

        held.close = slowly  # type: ignore[method-assign]
        expiring = asyncio.ensure_future(bench.clients.pool.expire(3600))
        await asyncio.sleep(0.02)
        claim = await bench.claim([*second, {"role": "user", "content": "two again"}])
        assert await expiring == 1
        assert not claim.session.closed
        bench.clients.release(claim.session)
        assert await bench.say(second, "and again")

    run(story)


def test_a_request_for_one_that_is_ending_waits(run: Callable[..., None]) -> None:
    """It is not a branch: the conversation is there, only not ready."""

    async def story(bench: Bench) -> None:
        talk = list(HI)
        name = await bench.turn(talk)
        talk.append({"role": "user", "content": "wait!"})
        bench.clock.now += 100
        _, served = await asyncio.gather(bench.clients.pool.expire(60), bench.turn(talk))
        assert served == name

    run(story)


def test_room_is_made_by_the_one_that_was_used_least_recently(run: Callable[..., None]) -> None:
    async def story(bench: Bench) -> None:
        talks: list[list[Message]] = [[{"role": "user", "content": f"I am {number}"}] for number in range(4)]
        names = []
        for talk in talks:
            bench.clock.now += 1
            names.append(await bench.turn(talk))
            assert len(bench.clients.pool) <= 2
        ended = {info.key for info in bench.store.conversations() if info.ended is not None}
        assert ended == set(names[:2])

    run(story, most_open=2)


def test_one_that_is_deleted_is_not_found_again(run: Callable[..., None]) -> None:
    async def story(bench: Bench) -> None:
        talk = list(HI)
        name = await bench.turn(talk)
        busy = await bench.claim([*talk, {"role": "user", "content": "x"}])
        with pytest.raises(Refused, match="running"):
            await bench.clients.forget("", name)
        bench.clients.release(busy.session)
        await bench.clients.forget("", name)
        bench.store.delete(name)
        talk.append({"role": "user", "content": "and now?"})
        assert await bench.turn(talk) != name

    run(story)


def test_of_many_equal_ones_each_is_found_once(run: Callable[..., None]) -> None:
    """Twelve people say the same, all at first and then one after the other: nobody is led to a stranger's words."""

    async def story(bench: Bench) -> None:
        talks = [list(HI) for _ in range(12)]
        names = {await bench.turn(talk) for talk in talks}
        assert len(names) == 12
        for talk in talks[:10]:  # those who go on make it harder to find those who have not yet
            await bench.say(talk, "on")
        assert {await bench.say(talk, f"I am {number}") for number, talk in enumerate(talks)} == names
        assert {info.branches for info in bench.store.conversations()} == {1}

    run(story)


def test_requests_at_the_same_time_behind_one_answer_are_branches(run: Callable[..., None]) -> None:
    async def story(bench: Bench) -> None:
        talk = list(HI)
        name = await bench.turn(talk)
        claims = [await bench.claim([*talk, {"role": "user", "content": f"{n}"}]) for n in range(3)]
        assert {claim.session.address.conversation for claim in claims} == {name}
        assert {claim.session.address.branch for claim in claims} == {1, 2, 3}
        for claim in claims:
            bench.clients.release(claim.session)

    run(story)


def test_requests_at_the_same_time_of_users_with_equal_histories_are_no_branches(run: Callable[..., None]) -> None:
    async def story(bench: Bench) -> None:
        talks = [list(HI) for _ in range(2)]
        names = {await bench.turn(talk) for talk in talks}
        claims = [await bench.claim([*talks[0], {"role": "user", "content": f"I am {n}"}]) for n in range(3)]
        used = [claim.session.address.conversation for claim in claims]
        assert {*used[:2]} == names
        assert used[2] not in names
        for claim in claims:
            bench.clients.release(claim.session)

    run(story)


def test_planted_a_fork_of_an_equal_history_is_caught(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    forking = lambda *a, **k: replace(recognise(*a, **k), is_shared=False)  # noqa: E731
    monkeypatch.setattr(client_sessions, "recognise", forking)
    with pytest.raises(AssertionError):
        test_requests_at_the_same_time_of_users_with_equal_histories_are_no_branches(run)


def test_two_that_begin_a_conversation_of_one_name_are_two_roots_of_it(run: Callable[..., None]) -> None:
    async def story(bench: Bench) -> None:
        talks: list[list[Message]] = [[{"role": "user", "content": f"I am {number}"}] for number in range(2)]
        assert set(await asyncio.gather(*(bench.turn(talk, name="one") for talk in talks))) == {"one"}
        for number, talk in enumerate(talks):
            assert await bench.say(talk, f"and on {number}", name="one") == "one"
        (info,) = bench.store.conversations()
        assert (info.branches, info.messages + info.superseded) == (2, 8)

    run(story)


def test_one_whose_client_left_while_it_was_opened_is_free(run: Callable[..., None]) -> None:
    async def story(bench: Bench) -> None:
        talk = list(HI)
        name = await bench.turn(talk)
        bench.clock.now += 100
        await bench.clients.pool.expire(60)
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
        await bench.clients.pool.expire(60)
        talk.append({"role": "user", "content": "try again"})
        opener = bench.clients._opener

        def broken(*_: Any) -> ClientSession:
            raise StoreError("the disk is gone.")

        bench.clients._opener = broken
        with pytest.raises(StoreError):
            await bench.claim(talk)
        bench.clients._opener = opener
        assert await bench.turn(talk) == name

    run(story)


@pytest.mark.parametrize(("calls", "named"), [(["call_1"], "call_9"), ([], "call_1")])
def test_a_result_has_the_id_of_its_call_in_the_window(calls: list[str], named: str, run: Callable[..., None]) -> None:
    """A client knows the call by another id than the provider gave it; planted: nobody says which call that is."""
    call = {"id": "call_9", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    answer = read_answer({"choices": [{"message": {"role": "assistant", "content": None, "tool_calls": [call]}}]})
    result: Message = {"role": "tool", "tool_call_id": "call_1", "content": "the file"}

    async def story(bench: Bench) -> None:
        session = (await bench.claim(HI)).session
        await session.call(ClientSession.add, Added(new=HI))
        await session.call(ClientSession.request, [])
        await session.call(ClientSession.record, answer, ())
        await session.call(ClientSession.add, Added(new=[result], calls=calls))
        (*_, newest) = bench.store.messages(session.address.conversation)
        assert newest.message == {**result, "tool_call_id": named}
        bench.clients.release(session)

    run(story)
