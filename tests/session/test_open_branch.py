"""Another branch of a conversation is opened by its number, and resumed from then on."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from leporello import AsyncSession, Session
from leporello.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path


def opened(folder: Path, **more: Any) -> Session:
    return Session.open(
        "harbour", model="m", context_length=8_000, store=folder / "b.db", config={}, llm=None, owner="ada", **more
    )


def say(session: Session, text: str) -> None:
    session.add({"role": "user", "content": text})
    session.request()
    session.record({"choices": [{"message": {"role": "assistant", "content": "Good."}, "finish_reason": "stop"}]})


def said(session: Session) -> list[Any]:
    return [message["content"] for message in session.window if message["role"] == "user"]


def test_it_goes_on_where_that_branch_was(tmp_path: Path) -> None:
    with opened(tmp_path) as first:
        say(first, "One.")
        with first.fork() as second:
            say(second, "Two.")
            with second.open_branch(first.branch) as again:
                assert (again.branch, said(again)) == (first.branch, ["One."])
                say(again, "Three.")
            assert said(second) == ["One.", "Two."]
        assert len(first.branches()) == 2
    with opened(tmp_path) as resumed:
        assert said(resumed) == ["One.", "Three."], "it is the head"


def test_a_number_that_there_is_not_is_told(tmp_path: Path) -> None:
    with opened(tmp_path) as session:
        say(session, "One.")
        with pytest.raises(StoreError):
            session.open_branch(99)
        assert (session.owner, said(session)) == ("ada", ["One."])


def test_it_can_be_opened_with_asyncio(tmp_path: Path) -> None:
    with closing(opened(tmp_path)) as first:
        say(first, "One.")
        with first.fork() as second:
            say(second, "Two.")

    async def window() -> list[Any]:
        at: dict[str, Any] = {"store": tmp_path / "b.db", "config": {}, "llm": None, "owner": "ada"}
        async with (
            await AsyncSession.open("harbour", model="m", context_length=8_000, **at) as session,
            await session.open_branch(1) as other,
        ):
            return [message["content"] for message in other.window if message["role"] == "user"]

    assert asyncio.run(window()) == ["One."]
