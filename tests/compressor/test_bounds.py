"""V7: bounded calls, a deadline, no compaction every turn; V8: between compactions a request only grows at its end."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from leporello import ContextCompressor
from leporello.llm import FakeClock, ScriptedLLM
from leporello.testing.conversations import conversation
from leporello.tokens import count_messages

if TYPE_CHECKING:
    from leporello.messages import Message

pytestmark = pytest.mark.slow

GOOD = "## Goal\nKeep the port running.\n\n## Progress\n### Done\n- Looked at the files."


def tool_turn(number: int, text: str) -> list[Message]:
    function = {"name": "run", "arguments": json.dumps({"n": number})}
    return [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": f"c{number}", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": f"c{number}", "content": text},
    ]


class TestRefire:
    """A conversation that cannot get below its threshold."""

    def fired(self, turns: int, growth: str) -> list[int]:
        engine = ContextCompressor(32_000)
        messages: list[Message] = [{"role": "user", "content": "word " * 20_000}]
        fired = []
        for turn in range(turns):
            messages += tool_turn(turn, growth)
            tokens = count_messages(messages)
            if engine.should_compress(tokens):
                fired.append(turn)
                messages = engine.compress(messages, current_tokens=tokens)
                assert engine.last_compaction is not None
                assert [messages[i]["role"] for i in engine.last_compaction.unfoldable] == ["user"]
        return fired

    def test_small_turns_do_not_fire_every_time(self) -> None:
        fired = self.fired(60, "nothing new")
        assert len(fired) < 6

    def test_it_fires_again_once_the_window_has_grown(self) -> None:
        fired = self.fired(40, "something new " * 200)
        assert 2 <= len(fired) < 30
        assert fired[-1] > 20

    def test_a_new_conversation_fires_at_the_threshold(self) -> None:
        engine = ContextCompressor(32_000)
        engine.compress([{"role": "user", "content": "word " * 40_000}], current_tokens=40_000)
        assert not engine.should_compress(40_000)
        engine.on_session_reset()
        assert engine.should_compress(40_000)


def test_1000_turns_need_a_bounded_number_of_model_calls() -> None:
    llm = ScriptedLLM(GOOD, context_length=32_000)
    engine = ContextCompressor(32_000, llm=llm)
    messages: list[Message] = [{"role": "user", "content": "Keep the port running."}]
    total = 0
    for turn in range(1_000):
        new = tool_turn(turn, f"result {turn} " * 40)
        total += count_messages(new)
        messages += new
        tokens = count_messages(messages)
        if engine.should_compress(tokens):
            messages = engine.compress(messages, current_tokens=tokens)
            assert count_messages(messages) < engine.threshold_tokens
    # each compaction frees at least a third of the threshold, and needs a call or two
    assert 0 < len(llm.calls) <= 2 * (total / (engine.threshold_tokens / 3) + 1)


@pytest.mark.parametrize("window", [8_000, 32_000])
def test_a_small_summariser_keeps_to_its_calls_and_its_window(window: int) -> None:
    messages = conversation(3, turns=400, payload=600, end="user", images=False)
    assert count_messages(messages) > 180_000
    llm = ScriptedLLM(GOOD, context_length=window)
    engine = ContextCompressor(200_000, llm=llm, config={"max_calls": 5})
    engine.compress(messages)
    assert len(llm.calls) <= 5
    assert all(count_messages(call.messages) + call.max_tokens <= window for call in llm.calls)
    assert engine.last_compaction is not None
    assert engine.last_compaction.status == "folded"
    assert "without the model" in engine.last_compaction.reason


def test_a_slow_summariser_is_cut_off_at_the_deadline() -> None:
    clock = FakeClock()
    llm = ScriptedLLM(GOOD, context_length=8_000, seconds=25, clock=clock)
    engine = ContextCompressor(200_000, llm=llm, config={"deadline_seconds": 60.0}, clock=clock)
    engine.compress(conversation(3, turns=400, payload=600, end="user", images=False))
    assert clock() <= 60
    assert engine.last_compaction is not None
    assert engine.last_compaction.seconds <= 60


def test_between_two_compactions_the_window_only_grows_at_its_end() -> None:
    engine = ContextCompressor(16_000)
    window: list[Message] = []
    prefix_moved = compactions = 0
    for number, message in enumerate(conversation(5, turns=120, payload=200, images=False)):
        before = json.dumps(window)
        window = [*window, message]
        if message["role"] != "assistant" and engine.should_compress(count_messages(window)):
            window = engine.compress(window)
            compactions += 1
        prefix_moved += json.dumps(window)[: len(before) - 1] != before[:-1] and number > 0
    assert compactions >= 3
    assert prefix_moved == compactions
