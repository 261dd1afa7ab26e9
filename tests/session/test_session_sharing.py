"""What a program with many conversations asks a session: where its engine is from, and what is not stored yet."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from leporello.errors import StoreError
from leporello.session import AsyncSession, Session
from leporello.store.sqlite import SQLiteStore
from leporello.testing.lifecycle import RecordingEngine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from leporello.messages import Message

HI: Message = {"role": "user", "content": "hi"}


class Full(SQLiteStore):
    """A store on a full disk."""

    def append(self, *args: Any, **options: Any) -> Any:
        """Refuse."""
        raise StoreError("the disk is full.")


def test_conversations_with_one_source_have_an_engine_each(opened: Callable[..., Session]) -> None:
    first = opened("a", engine="lcm", llm=None)
    second = opened("b", engine=first.engine_source)
    assert second.engine_source is first.engine_source
    assert second.engine is not first.engine
    assert type(second.engine) is type(first.engine)


def test_an_engine_that_was_handed_over_has_no_source(opened: Callable[..., Session]) -> None:
    assert opened(engine=RecordingEngine()).engine_source is None


@pytest.mark.slow
def test_what_is_not_stored_is_counted_until_it_is(tmp_path: Path, opened: Callable[..., Session]) -> None:
    store = SQLiteStore(tmp_path / "s.db")
    session = opened(store=store)
    store.__class__ = Full
    session.add(HI)
    session.add(HI)
    assert session.unstored == 2
    store.__class__ = SQLiteStore
    session.add(HI)
    assert session.unstored == 0
    assert len(list(store.messages("talk"))) == 3


@pytest.mark.slow
def test_an_asynchronous_session_tells_it_too(tmp_path: Path) -> None:
    async def story() -> None:
        store = SQLiteStore(tmp_path / "s.db")
        async with await AsyncSession.open("talk", store=store, config={}, context_length=100_000) as session:
            store.__class__ = Full
            await session.add(HI)
            assert session.unstored == 1
            store.__class__ = SQLiteStore

    asyncio.run(story())
