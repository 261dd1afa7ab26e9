"""The artifact trail: gathered from the store, in the background or when a tool reads it, and nothing of it twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings, strategies as st

from leporello import LCMEngine
from leporello.lcm.artifacts import ArtifactTrail
from leporello.messages import Message
from leporello.store import Branch, Store, open_store

if TYPE_CHECKING:
    from leporello.store.records import Artifact
    from leporello.testing.manual_executor import ManualExecutor

Work = Callable[..., list[Message]]
Make = Callable[..., LCMEngine]


def call(number: int, command: str) -> Message:
    function = {"name": "terminal", "arguments": json.dumps({"command": command})}
    calls = [{"id": f"c{number}", "type": "function", "function": function}]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(number: int, content: str) -> Message:
    return {"role": "tool", "tool_call_id": f"c{number}", "content": content}


def of(store: Store, conversation: str = "s") -> list[Artifact]:
    return [found for _, found in reversed(store.artifacts(conversation, limit=10_000))]


def commands(store: Store) -> list[tuple[str, str]]:
    return [(found.value, found.note) for found in of(store) if found.kind == "command"]


def test_storing_a_turn_gathers_nothing_and_asking_gathers_everything(make_engine: Make, work: Work) -> None:
    engine = make_engine()
    engine.should_compress_preflight(work(0, 5))
    assert not of(engine.store)
    told = json.loads(engine.handle_tool_call("lcm_describe", {"id": "file:src/module_3.py"}))
    assert told["kind"] == "file"
    assert len(of(engine.store)) > 10


def test_many_messages_are_gathered_in_the_background(
    make_engine: Make, work: Work, background: ManualExecutor
) -> None:
    engine = make_engine()
    engine.should_compress_preflight(work(0, 3))
    assert not background.waiting
    engine.should_compress_preflight(work(0, 12))
    assert background.run() == 1
    assert any(found.value == "src/module_11.py" for found in of(engine.store))


def test_what_a_host_stored_itself_is_gathered_in_the_background_too(
    make_engine: Make, work: Work, background: ManualExecutor
) -> None:
    store = open_store(":memory:")
    engine = make_engine(store=store)
    engine.on_session_start("s", branch=Branch(store, "s"))
    store.append("s", work(0, 12))
    engine.should_compress_preflight(work(0, 3))
    assert not background.waiting
    engine.should_compress_preflight(work(0, 12))
    assert background.run() == 1
    assert any(found.value == "src/module_11.py" for found in of(engine.store))
    engine.on_turn_complete(work(0, 12))
    engine.should_compress_preflight(work(0, 12))
    assert not background.waiting, "nothing is new"
    assert len(list(store.messages("s"))) == len(work(0, 12)), "the engine of a session stores nothing itself"


def test_without_work_in_the_background_the_end_of_the_session_gathers(make_engine: Make, work: Work) -> None:
    engine = make_engine(config={"background": False})
    engine.should_compress_preflight(work(0, 12))
    assert not of(engine.store)
    engine.on_session_end("s", work(0, 12))
    assert any(found.value == "src/module_11.py" for found in of(engine.store))


def test_a_command_is_told_once_with_its_outcome(make_engine: Make) -> None:
    """A call that is not answered yet waits for its result."""
    engine = make_engine()
    begun: list[Message] = [{"role": "user", "content": "Test it."}, call(1, "pytest -q tests/unit")]
    engine.handle_tool_call("lcm_artifacts", {}, messages=begun)
    assert not commands(engine.store)
    engine.handle_tool_call(
        "lcm_artifacts", {}, messages=[*begun, result(1, "3 failed, 1 passed in 0.2s\nexit code 1")]
    )
    found = commands(engine.store)
    assert [value for value, _ in found] == ["pytest -q tests/unit"]
    assert "unknown" not in found[0][1]


def test_a_call_that_nobody_answers_is_told_when_the_conversation_goes_on(make_engine: Make) -> None:
    engine = make_engine()
    messages: list[Message] = [
        {"role": "user", "content": "Test it."},
        call(1, "pytest -q tests/unit"),
        {"role": "user", "content": "Never mind."},
    ]
    engine.handle_tool_call("lcm_artifacts", {}, messages=messages)
    assert [value for value, _ in commands(engine.store)] == ["pytest -q tests/unit"]


def turns(count: int) -> list[Message]:
    made: list[Message] = []
    for n in range(count):
        made += [{"role": "user", "content": f"Step {n}."}, call(n, f"make part-{n}"), result(n, f"built part-{n}")]
    return made


def check_complete(store: Store, messages: Sequence[Any]) -> None:
    """Check that the trail is what one pass over the whole conversation finds: nothing missing, nothing twice."""
    with open_store(":memory:") as fresh:  # type: ignore[attr-defined]
        fresh.append("s", messages)
        ArtifactTrail(lambda: fresh, "s", "").catch_up()
        wanted = [(found.kind, found.value, found.note) for found in of(fresh)]
    assert [(found.kind, found.value, found.note) for found in of(store)] == wanted


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(cuts=st.lists(st.integers(0, 36), max_size=8), restarts=st.lists(st.booleans(), min_size=9, max_size=9))
def test_however_often_it_is_gathered_and_by_whom_the_trail_is_the_same(cuts: list[int], restarts: list[bool]) -> None:
    messages = turns(12)
    store = open_store(":memory:")
    trail, stored = ArtifactTrail(lambda: store, "s", ""), 0
    for cut, restart in zip([*sorted(cuts), len(messages)], restarts, strict=False):
        store.append("s", messages[stored:cut])
        stored = max(stored, cut)
        trail = ArtifactTrail(lambda: store, "s", "") if restart else trail
        trail.catch_up()
    check_complete(store, messages)


@pytest.mark.parametrize("lost", [0, 5, -1])
def test_planted_a_lost_artifact_is_caught(lost: int) -> None:
    messages = turns(6)
    store, whole = open_store(":memory:"), open_store(":memory:")
    for each in (store, whole):
        each.append("s", messages)
    ArtifactTrail(lambda: whole, "s", "").catch_up()
    found = of(whole)
    store.add_artifacts("s", [one for one in found if one is not found[lost]])
    with pytest.raises(AssertionError):
        check_complete(store, messages)


def test_a_message_inserted_later_is_gathered_too() -> None:
    """Its number is newer than that of a call behind it that is not answered yet."""
    store = open_store(":memory:")
    trail = ArtifactTrail(lambda: store, "s", "")
    history: list[Message] = [*turns(2), call(7, "make all")]
    store.ingest("s", history)
    store.ingest("s", [*history[:3], {"role": "user", "content": "See docs/plan.md."}, *history[3:]], full=True)
    trail.catch_up()
    assert "make all" not in {value for value, _ in commands(store)}
    store.ingest("s", [*store_list(store), result(7, "built")])
    trail.catch_up()
    assert "make all" in {value for value, _ in commands(store)}
    assert "docs/plan.md" in {found.value for found in of(store)}


def store_list(store: Store) -> list[Message]:
    return [row.message for row in store.messages("s")]
