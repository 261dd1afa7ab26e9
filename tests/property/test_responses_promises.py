"""Conversations of every kind of item, folded again and again: every request is taken, and nothing is lost."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings

from leporello import Session
from leporello.messages import leading_systems
from leporello.messages.responses import item_violations, items_of, kind_of, settle as settling
from leporello.messages.responses.items import COMPACTIONS
from leporello.session import converters
from leporello.testing.response_items import ItemList, response_items, turns
from leporello.testing.strategies import response_item_lists

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leporello.messages.responses import Item

EXAMPLES = 1_000 if os.environ.get("LEPORELLO_SOAK") else 25
ENGINES = ["compressor", "lcm"]
FOLDS = 3
SHORT_TAIL = {"compression": {"protect_last_n": 3}}
WINDOW = 8_000


def requests_of(made: ItemList, engine: str) -> Iterator[tuple[dict[str, Any], list[Item], int]]:
    """Drive a session through a list; yield its requests, what was said so far, and how often it was folded."""
    told = list(turns([{"type": "message", **item} if "role" in item else item for item in made.items]))
    every = max(1, len(told) // (FOLDS + 1))
    with Session.open(
        model="m",
        context_length=WINDOW,
        dialect="responses",
        engine=engine,
        store=":memory:",
        llm=None,
        system="Help.",
    ) as session:
        said: list[Item] = []
        for number, (of_model, items) in enumerate(told):
            if of_model:
                session.request()
                session.record({"object": "response", "status": "completed", "output": items})
            else:
                session.add(*items)
            said += items
            if not of_model:
                if number and number % every < 2:
                    session.compress()
                yield session.request(), said, session.usage().compactions
        rows = session.store.messages(session.id, system=True)
        stored = [item for row in rows for item in items_of([row.message])]
        assert stored == _rows([{"type": "message", "role": "system", "content": "Help."}, *said])


def _rows(said: list[Item]) -> list[Item]:
    """Return what the store lists: equal messages of the system prompt are one row."""
    count = leading_systems(said)
    prompt = [item for at, item in enumerate(said[:count]) if item not in said[:at]]
    return prompt + said[count:]


def check(made: ItemList, engine: str) -> int:
    """Check every request; return how often the conversation was folded."""
    folds = 0
    for request, said, folds in requests_of(made, engine):
        items = request["input"]
        assert item_violations(items, made.reasoned) == []
        if not folds:
            assert items == said
            assert request["instructions"] == "Help."
        if kind_of(said[0]) == "additional_tools":
            assert items[0] == said[0]
        if kind_of(said[-1]) == "compaction_trigger":
            assert items[-1] == said[-1]
        sealed = [item for item in said if kind_of(item) in COMPACTIONS]
        assert not sealed or sealed[-1] in items
        asking = ("agent_message", "compaction_trigger")
        newest = next(item for item in reversed(said) if item.get("role") == "user" or kind_of(item) in asking)
        assert newest in items
    return folds


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=EXAMPLES, deadline=None)
@given(made=response_item_lists(min_turns=4, max_turns=10, payload=150))
def test_every_request_is_taken_however_often_it_was_folded(engine: str, made: ItemList) -> None:
    check(made, engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_system_message_that_is_said_twice_at_the_beginning(engine: str) -> None:
    made = response_items(3, turns=12, payload=150)
    twice = {"type": "message", "role": "system", "content": "Be brief."}
    made = replace(made, items=[twice, twice, *made.items])
    assert check(made, engine) >= FOLDS
    first, said, _ = next(requests_of(made, engine))
    assert first["input"][:2] == said[:2] == [twice, twice]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("seed", "length", "end"), [(6593, 8, "tool"), (285, 10, "user"), (591, 8, "tool")])
def test_the_newest_compaction_of_the_provider_is_the_one_that_stays(
    engine: str, seed: int, length: int, end: str
) -> None:
    """In the first list a fold leaves an earlier one behind a summary, in the others one without its source."""
    assert check(response_items(seed, turns=length, payload=150, end=end), engine) >= FOLDS


@pytest.mark.parametrize("engine", ENGINES)
def test_the_lists_above_are_really_folded(engine: str) -> None:
    assert check(response_items(3, turns=12, payload=150), engine) >= FOLDS


def _unpaired(items: list[Item]) -> list[Item]:
    return [item for item in items if kind_of(item) != "function_call_output"]


def _without_reasoning(items: list[Item]) -> list[Item]:
    return [item for item in items if kind_of(item) != "reasoning"]


def _twice(items: list[Item]) -> list[Item]:
    return [*items, *(item for item in items if "id" in item)]


@pytest.mark.parametrize("defect", [_unpaired, _without_reasoning, _twice])
def test_a_planted_defect_is_noticed(defect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(converters, "settled", lambda items: defect(settling.settled(items)))
    with pytest.raises(AssertionError):
        check(response_items(3, turns=12, payload=150), "compressor")
