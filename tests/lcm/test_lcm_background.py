"""Nobody waits: leaves are prepared above the soft mark and swapped in at the hard mark."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from leporello import LCMEngine
from leporello.engine import normalise_usage
from leporello.errors import NetworkError
from leporello.lcm import verify
from leporello.lcm.background import ThreadPool
from leporello.lcm.node_writer import REMAKE
from leporello.llm import Completion, FakeClock, ScriptedLLM
from leporello.messages import Message
from leporello.prices import cost
from leporello.store import open_store
from leporello.tokens import count_messages

if TYPE_CHECKING:
    from pathlib import Path

    from leporello.testing.manual_executor import ManualExecutor

Work = Callable[..., list[Message]]
Make = Callable[..., LCMEngine]

GOOD = "## Goal\nFix the build.\n\n## Progress\n### Done\n- Read src/app.py."
LONG = GOOD + "".join(f"\n- Read src/part_{n}.py and put its value {n * 37} in order." for n in range(12))
ASK: Message = {"role": "user", "content": "And what is next?"}
ANSWERED: list[Message] = [{"role": "assistant", "content": "Next."}, ASK]


def request(engine: LCMEngine, messages: list[Message]) -> bool:
    """Ask as a host does before a request."""
    engine.update_from_response({"prompt_tokens": count_messages(messages), "completion_tokens": 1})
    preflight = engine.should_compress_preflight(messages)
    return engine.should_compress(count_messages(messages)) or preflight


def grow(engine: LCMEngine, work: Work, upto: float, first: int = 0) -> list[Message]:
    """Return a conversation that fills so much of the threshold."""
    messages: list[Message] = []
    turn = first
    while count_messages([*messages, *work(turn, turn + 1), ASK]) < engine.threshold_tokens * upto:
        messages += work(turn, turn + 1)
        turn += 1
    return [*messages, ASK]


def prepared(engine: LCMEngine) -> int:
    return len(engine.store.prepared_nodes(engine.conversation))


def test_below_the_soft_mark_nothing_is_prepared(make_engine: Make, work: Work, background: ManualExecutor) -> None:
    engine = make_engine(llm=ScriptedLLM(GOOD))
    assert not request(engine, grow(engine, work, 0.6))
    background.run()
    assert not prepared(engine)


def test_above_it_leaves_are_prepared_and_the_hard_mark_swaps_them_in_without_a_call(
    make_engine: Make, work: Work, background: ManualExecutor
) -> None:
    llm = ScriptedLLM(GOOD, context_length=64_000)
    engine = make_engine(llm=llm)
    messages = grow(engine, work, 0.9)
    assert not request(engine, messages)
    assert not llm.calls, "the turn waited for the model"
    background.run()
    assert prepared(engine) >= 2
    calls = len(llm.calls)
    full: list[Message] = [*messages, {"role": "assistant", "content": "Next."}, *work(500, 510)]
    assert request(engine, full)
    window = engine.compress(full)
    assert len(llm.calls) == calls, "the fold waited for the model"
    assert verify(engine.store, "s") == []
    assert count_messages(window) < engine.threshold_tokens
    assert any(node.made_by == "model" for node in engine.store.nodes("s"))


@pytest.mark.slow
def test_when_prepared_leaves_are_enough_exactly_their_messages_are_folded(
    make_engine: Make, work: Work, background: ManualExecutor
) -> None:
    engine = make_engine(64_000, llm=ScriptedLLM(GOOD, context_length=64_000), config={"threshold": 0.5})
    messages = grow(engine, work, 0.98)
    request(engine, messages)
    background.run()
    ready = {
        seq
        for node in engine.store.prepared_nodes("s")
        for cover in node.covers
        for seq in range(cover.first_seq, cover.last_seq + 1)
    }
    full: list[Message] = [*messages, {"role": "assistant", "content": "Next."}, *work(500, 510)]
    assert request(engine, full)
    engine.compress(full)
    folded = {
        seq
        for node in engine.store.nodes("s")
        for cover in node.covers
        for seq in range(cover.first_seq, cover.last_seq + 1)
    }
    assert folded == ready
    assert verify(engine.store, "s") == []


@pytest.mark.slow
def test_a_request_that_was_the_newest_is_prepared_when_another_one_comes(
    make_engine: Make, work: Work, background: ManualExecutor
) -> None:
    """It stands before leaves that are prepared already, and is too short to ask the model about."""
    engine = make_engine(64_000, llm=ScriptedLLM(GOOD, context_length=64_000), config={"threshold": 0.5})
    loop = [message for message in grow(engine, work, 0.8)[:-1] if message["role"] != "user"]
    messages: list[Message] = [{"role": "user", "content": "Fix them all."}, *loop]
    request(engine, messages)
    background.run()
    messages = [*messages, {"role": "user", "content": "Go on."}, *work(100, 112)[1:]]
    request(engine, messages)
    background.run()
    messages = [*messages, {"role": "user", "content": "Go on."}, *work(200, 216)[1:]]
    assert request(engine, messages)
    engine.compress(messages)
    assert not [node.id for node in engine.store.nodes("s") if node.meta.get(REMAKE)]
    assert verify(engine.store, "s") == []


@pytest.mark.slow
def test_when_the_hard_mark_comes_first_extractive_leaves_go_in_and_are_improved_at_the_next_fold(
    make_engine: Make, work: Work, background: ManualExecutor
) -> None:
    llm = ScriptedLLM(GOOD, context_length=64_000)
    engine = make_engine(llm=llm)
    messages = grow(engine, work, 1.5)
    engine.should_compress(count_messages(messages))
    window = engine.compress(messages)
    assert not llm.calls
    assert {node.made_by for node in engine.store.nodes("s")} == {"extract"}
    before = list(window)
    request(engine, [*window, {"role": "assistant", "content": "Next."}, *grow(engine, work, 0.72, 300)])
    background.run()
    assert window == before
    assert {node.made_by for node in engine.store.nodes("s")} == {"extract"}, "a rewrite outside of a fold"
    longer: list[Message] = [*window, {"role": "assistant", "content": "Next."}, *work(700, 760)]
    assert request(engine, longer)
    engine.compress(longer)
    assert any(node.made_by == "model" for node in engine.store.nodes("s"))
    assert verify(engine.store, "s") == []


@pytest.mark.slow
def test_condensed_nodes_are_prepared_too_so_that_a_fold_writes_nothing(
    make_engine: Make, work: Work, background: ManualExecutor
) -> None:
    """Over many folds every node is the model's, and none was written while a turn waited."""
    llm = ScriptedLLM(LONG, context_length=64_000)
    engine = make_engine(64_000, llm=llm, config={"threshold": 0.4, "leaf_tokens": 1_000})
    messages: list[Message] = [ASK]
    folds, calls_in_folds = 0, 0
    for turn in range(260):
        messages = [*messages, *work(turn, turn + 1)[1:], {"role": "user", "content": f"Go on with {turn}."}]
        full = request(engine, messages)
        background.run()
        if full:
            before = len(llm.calls)
            messages = engine.compress(messages)
            calls_in_folds += len(llm.calls) - before
            folds += 1
            assert count_messages(messages) < engine.threshold_tokens
    nodes = engine.store.nodes("s")
    assert folds >= 4
    assert calls_in_folds == 0
    assert max(node.level for node in nodes) >= 1
    assert {node.made_by for node in nodes if node.children} == {"model"}
    assert verify(engine.store, "s") == []


def test_what_is_paid_in_the_background_is_in_the_report_of_the_fold(
    make_engine: Make, work: Work, background: ManualExecutor
) -> None:
    usage = {"input_tokens": 1_000_000, "output_tokens": 0}
    answer = Completion(text=GOOD, usage=normalise_usage(usage))
    llm = ScriptedLLM(answer, context_length=64_000, model="claude-sonnet-5", provider="anthropic")
    engine = make_engine(llm=llm)
    messages = grow(engine, work, 0.9)
    request(engine, messages)
    background.run()
    each = cost(usage, "claude-sonnet-5", "anthropic")
    paid = len(llm.calls)
    full: list[Message] = [*messages, {"role": "assistant", "content": "Next."}, *work(500, 510)]
    assert request(engine, full)
    engine.compress(full)
    assert engine.last_compaction is not None
    assert len(llm.calls) == paid == engine.last_compaction.model_calls
    assert each is not None
    assert engine.last_compaction.cost_usd == pytest.approx(each * paid)
    assert json.loads(engine.handle_tool_call("lcm_status", {}))["cost_usd"] == pytest.approx(each * paid)


def test_prepared_leaves_are_written_again_when_somebody_names_a_focus(
    make_engine: Make, work: Work, background: ManualExecutor
) -> None:
    llm = ScriptedLLM(GOOD, context_length=64_000)
    engine = make_engine(llm=llm)
    messages = grow(engine, work, 0.9)
    request(engine, messages)
    background.run()
    leaves = prepared(engine)
    assert leaves >= 2
    without = len(llm.prompts)
    engine.compress([*messages, *ANSWERED], focus_topic="the lamps of the quay")
    asked = llm.prompts[without:]
    assert len(asked) >= leaves
    assert all("the lamps of the quay" in prompt for prompt in asked)
    assert verify(engine.store, "s") == []
    assert not prepared(engine), "the ones without the focus are given up"


def test_a_prepared_leaf_stays_where_the_limits_allow_no_other(
    make_engine: Make, work: Work, background: ManualExecutor
) -> None:
    llm = ScriptedLLM(GOOD, context_length=64_000)
    engine = make_engine(llm=llm, config={"max_calls": 1})
    messages = grow(engine, work, 0.9)
    request(engine, messages)
    background.run()
    [ready] = engine.store.prepared_nodes("s")
    calls = len(llm.prompts)
    engine.compress([*messages, *ANSWERED], focus_topic="the lamps of the quay")
    assert len(llm.prompts) == calls + 1
    assert ready.id in {node.id for node in engine.branch.nodes(engine.branch.window())}
    assert verify(engine.store, "s") == []


def test_a_model_that_is_away_is_tried_again_and_comes_back(
    make_engine: Make, work: Work, background: ManualExecutor
) -> None:
    clock, up = FakeClock(), {"now": False}

    def answer(_: list[Message]) -> str:
        if not up["now"]:
            raise NetworkError("connection refused")
        return GOOD

    store = open_store(":memory:", clock=clock)
    engine = make_engine(llm=ScriptedLLM(answer, context_length=64_000), clock=clock, store=store)
    messages = grow(engine, work, 0.9)
    request(engine, messages)
    background.run()
    assert prepared(engine) == 0
    up["now"] = True
    clock.advance(3_600)
    request(engine, messages)
    background.run()
    assert prepared(engine) >= 2


def test_the_pool_of_the_process_prepares_in_a_file(tmp_path: Path, work: Work) -> None:
    """The real threads, on a real file; closing the engine waits for them."""
    file = tmp_path / "store.db"
    engine = LCMEngine(16_000, store=file, llm=ScriptedLLM(GOOD, context_length=64_000))
    engine.on_event = lambda _: None
    engine.on_session_start("s")
    messages = grow(engine, work, 0.9)
    request(engine, messages)
    engine.close()
    with closing(open_store(file)) as store:
        assert len(store.prepared_nodes("s")) >= 2


def test_equal_work_is_done_once(make_engine: Make, work: Work, background: ManualExecutor) -> None:
    llm = ScriptedLLM(GOOD, context_length=64_000)
    engine = make_engine(llm=llm)
    messages = grow(engine, work, 0.9)
    for _ in range(5):
        request(engine, messages)
    background.run()
    assert len(llm.calls) == prepared(engine)
    request(engine, messages)
    background.run()
    assert len(llm.calls) == prepared(engine)


def test_an_engine_without_a_model_prepares_nothing(make_engine: Make, work: Work, background: ManualExecutor) -> None:
    engine = make_engine()
    request(engine, grow(engine, work, 0.9))
    background.run()
    assert not prepared(engine)


class TestPool:
    """The threads of the process."""

    def test_it_starts_with_the_first_work_and_drains(self) -> None:
        pool, done = ThreadPool(), threading.Event()
        before = threading.active_count()
        assert pool.drain("a", 0)
        assert threading.active_count() == before
        pool.submit(done.set, "a")
        assert done.wait(10)
        assert pool.drain("a", 10)

    def test_draining_has_a_limit(self) -> None:
        pool, gate = ThreadPool(), threading.Event()

        def wait() -> None:
            gate.wait(10)

        pool.submit(wait, "a")
        assert not pool.drain("a", 0.01)
        assert pool.drain("somebody else", 0)
        gate.set()
        assert pool.drain("a", 10)

    def test_work_that_fails_does_not_end_the_pool(self) -> None:
        pool, done = ThreadPool(1), threading.Event()

        def fail() -> None:
            raise RuntimeError("planted")

        pool.submit(fail, "a")
        pool.submit(done.set, "a")
        assert done.wait(10)

    def test_a_child_process_has_a_pool_of_its_own(self) -> None:
        pool = ThreadPool()
        started = threading.Event()
        pool.submit(started.set, "a")
        assert started.wait(10)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            finished = threading.Event()
            pool.submit(finished.set, "a")
            os.write(writer, b"1" if finished.wait(10) else b"0")
            os._exit(0)
        assert os.read(reader, 1) == b"1"
        os.waitpid(child, 0)
