"""A compaction that a person asks for folds whatever can be folded, and says why when nothing can be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from leporello import Session
from leporello.messages import text_of, violations
from leporello.plugins import EngineSource

if TYPE_CHECKING:
    from leporello.messages import Message

ENGINES = ["compressor", "lcm"]


def conversation(turns: int) -> list[Message]:
    messages: list[Message] = []
    for number in range(turns):
        asked, said = "It is a matter of detail. " * 20, "Every detail was looked at. " * 20
        messages.append({"role": "user", "content": f"What about part {number}? {asked}"})
        messages.append({"role": "assistant", "content": f"Part {number} is done. {said}"})
    return messages


def opened(engine: str) -> Session:
    return Session.open(model="gpt-5-mini", engine=engine, store=":memory:", config={}, system="You look.", llm=None)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("turns", [4, 8, 30])
def test_all_but_the_newest_turn_is_folded(engine: str, turns: int) -> None:
    """All of it stands in the part that is usually kept: the window has room for 200,000 tokens."""
    messages = conversation(turns)
    with opened(engine) as session:
        session.add(*messages)
        report = session.compress()
        assert report.status == "folded"
        assert report.tokens_after < report.tokens_before
        assert session.window[-2:] == messages[-2:]
        assert len(session.window) == 5
        assert violations(session.window, "openai") == []
        assert session.compress().reason == "nothing stands before your newest message that could be folded"


@pytest.mark.parametrize("engine", ENGINES)
def test_what_the_model_has_not_read_yet_stays(engine: str) -> None:
    newest: Message = {"role": "user", "content": "And what is left?"}
    with opened(engine) as session:
        session.add(*conversation(6), newest)
        assert session.compress("the parts").status == "folded"
        assert session.window[-1] == newest


@pytest.mark.parametrize("engine", ENGINES)
def test_with_one_turn_it_says_why_not(engine: str) -> None:
    with opened(engine) as session:
        session.add(*conversation(1))
        report = session.compress()
        assert (report.status, report.reason) == (
            "unchanged",
            "nothing stands before your newest message that could be folded",
        )
        assert text_of(session.window[-1]).startswith("Part 0 is done.")


@pytest.mark.parametrize("name", ENGINES)
def test_one_that_nobody_asked_for_keeps_the_usual_part(name: str) -> None:
    """The same conversation, folded by the engine without being asked: this is what the tests above would catch."""
    source = EngineSource(None, name=name, model="gpt-5-mini", context_length=400_000, store=":memory:", llm=None)
    engine = source.make()
    engine.on_session_start("talk")
    messages = conversation(8)
    assert engine.compress(messages) == messages
