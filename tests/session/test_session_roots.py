"""A session on a conversation that a foreign host began again: it resumes the root on which was spoken last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from leporello import LCMEngine
from leporello.lcm import verify
from leporello.messages import is_system
from leporello.store import open_store
from leporello.store.relational import messages as ingesting

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from leporello.messages import Message
    from leporello.session import Session

ENGINES = ("compressor", "lcm")
SYSTEM: Message = {"role": "system", "content": "You are the harbour's assistant."}


def said(run: int, turns: int) -> list[Message]:
    return [
        {"role": role, "content": f"{role} {run}-{n}: the quay is free and the cranes stand by."}
        for n in range(turns)
        for role in ("user", "assistant")
    ]


def forgotten(path: Path) -> None:
    """Let a foreign host talk, forget, and begin again under its name."""
    for run in range(2):
        engine = LCMEngine(16_000, store=path)
        engine.on_event = lambda _: None
        engine.on_session_start("talk")
        engine.on_turn_complete([SYSTEM, *said(run, 3)])
        engine.close()


def shown(session: Session) -> list[Message]:
    return [message for message in session.window if not is_system(message)]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_a_session_resumes_the_newest_root(
    tmp_path: Path, opened: Any, answer: Callable[..., Any], engine: str
) -> None:
    forgotten(tmp_path / "s.db")
    session = opened(engine=engine, store=tmp_path / "s.db")
    assert (session.branch, shown(session)) == (2, said(1, 3))
    assert [message["content"] for message in session.window if is_system(message)] == [SYSTEM["content"]]
    session.add({"role": "user", "content": "And the crane?"})
    session.request()
    session.record(answer("It is free."))
    assert [branch.messages for branch in session.branches()] == [6, 8]
    assert verify(session.store, "talk") == []


def test_planted_a_root_behind_the_head_is_shown_with_all_that_was_forgotten(
    tmp_path: Path, opened: Any, answer: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingesting, "begin_root", lambda _, found, __: found.head)
    with pytest.raises(AssertionError):
        test_a_session_resumes_the_newest_root(tmp_path, opened, answer, "compressor")


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_a_session_stays_on_its_root_when_a_host_begins_another(
    tmp_path: Path, opened: Any, answer: Callable[..., Any], engine: str
) -> None:
    session = opened(engine=engine, store=tmp_path / "s.db", context_length=8_000)
    for n in range(24):
        session.add({"role": "user", "content": f"Question {n}. " + "The vessel waits. " * 40})
        session.request()
        session.record(answer(f"Answer {n}. " + "The quay is free. " * 40))
        if n == 6:
            with open_store(tmp_path / "s.db") as store:  # type: ignore[attr-defined]
                assert store.ingest("talk", [SYSTEM, *said(1, 2)]).branch == 2
    assert session.usage().compactions > 0
    assert session.branch == 1
    assert [branch.messages for branch in session.branches()] == [48, 4]
    assert session.store.head("talk") == 1, "the user has gone on behind an answer there"
    assert verify(session.store, "talk") == []
