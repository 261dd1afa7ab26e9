"""The compressor's masked zone: before the tail, what was said and called as it is, long outputs cleared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from leporello.compressor import ContextCompressor, plan
from leporello.llm import ScriptedLLM
from leporello.messages import role_of, text_of, tool_calls_of, violations
from leporello.messages.fixed import CLEARED_OUTPUT
from leporello.summary.masking import is_long_output
from leporello.testing.coding_session import coding_session
from leporello.tokens import count_messages

if TYPE_CHECKING:
    from leporello.messages import Message

WINDOW = 64_000
GOOD = "## Goal\nBuild the port's software.\n\n## Progress\n### Done\n- Much."


def engine(zone: float = 0.15, **options: Any) -> ContextCompressor:
    return ContextCompressor(WINDOW, config={"masked_zone": zone}, llm=ScriptedLLM(GOOD), **options)


def masked_in(window: list[Message]) -> list[Message]:
    return [message for message in window[4:] if text_of(message).startswith(CLEARED_OUTPUT)]


def test_the_zone_stands_between_summary_and_tail_and_calls_stay_as_they_are() -> None:
    messages = coding_session(30)
    window = engine().compress(messages)
    assert not violations(window, "openai")
    assert not violations(window, "anthropic")
    zone = masked_in(window)
    assert len(zone) > 2
    results = {message["tool_call_id"]: message for message in messages if role_of(message) == "tool"}
    assert all(is_long_output(results[message["tool_call_id"]]) for message in zone)
    assert all(message in messages for message in window if tool_calls_of(message)), "arguments were shortened"
    plain = engine(0).compress(messages)
    tail = [message for message in plain if message in messages[-20:]]
    assert window[-len(tail) :] == tail, "the zone took something from the tail"


def test_the_summariser_reads_what_the_zone_clears() -> None:
    llm = ScriptedLLM(GOOD)
    messages = coding_session(30)
    window = ContextCompressor(WINDOW, config={"masked_zone": 0.15}, llm=llm).compress(messages)
    cleared = {message["tool_call_id"] for message in masked_in(window)}
    outputs = [text_of(message) for message in messages if message.get("tool_call_id") in cleared]
    read = "\n".join(text_of(message) for call in llm.calls for message in call.messages)
    assert outputs
    assert all(output[:60].splitlines()[0] in read for output in outputs)


def test_it_takes_no_more_than_its_share_and_the_result_is_below_the_threshold() -> None:
    messages = coding_session(40)
    for share in (0.05, 0.1, 0.2, 0.8):
        compressor = engine(share)
        window = compressor.compress(messages)
        assert count_messages(window) < compressor.threshold_tokens
        without = count_messages(engine(0).compress(messages))
        assert count_messages(window) - without <= share * compressor.threshold_tokens + compressor.max_summary_tokens


def test_what_it_shows_grows_with_its_share() -> None:
    messages = coding_session(40)
    kept = [len(engine(share).compress(messages)) for share in (0, 0.05, 0.1, 0.2)]
    assert kept == sorted(kept)
    assert kept[0] < kept[-1]


def test_a_second_fold_clears_nothing_twice_and_moves_the_zone_on() -> None:
    compressor = engine()
    once = compressor.compress(coding_session(30))
    twice = compressor.compress([*once, *coding_session(30, seed=7)[1:]])
    assert not violations(twice, "openai")
    assert all(text_of(message).count(CLEARED_OUTPUT) <= 1 for message in twice)
    ids = {message.get("tool_call_id") for message in masked_in(once)}
    assert ids.isdisjoint(message.get("tool_call_id") for message in masked_in(twice))


def test_planted_a_zone_that_is_not_masked_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "prune", lambda messages, *_: messages)
    with pytest.raises(AssertionError):
        test_the_zone_stands_between_summary_and_tail_and_calls_stay_as_they_are()
