"""The compressor's masked zone: before the tail, what was said and called as it is, long outputs cleared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from leporello.compressor import ContextCompressor, plan
from leporello.llm import ScriptedLLM
from leporello.messages import role_of, text_of, tool_calls_of, violations
from leporello.messages.fixed import CLEARED_OUTPUT
from leporello.redact import ABOUT, redact_messages
from leporello.summary.extract import extract_summary
from leporello.summary.masking import is_long_output
from leporello.summary.sizes import Sizes
from leporello.testing.coding_session import coding_session
from leporello.tokens import count_messages

if TYPE_CHECKING:
    from leporello.messages import Message

pytestmark = pytest.mark.slow

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


def read_turns(count: int) -> list[Message]:
    """Return a question and `count` files that were read for it, one in each turn."""
    messages: list[Message] = [{"role": "user", "content": "Look through the modules."}]
    for number in range(count):
        arguments = f'{{"path": "src/part_{number}.py"}}'
        call = {"id": f"c{number}", "type": "function", "function": {"name": "read_file", "arguments": arguments}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        text = "\n".join(f"tide_table_{number} = load_tide_{number}(port)" for _ in range(30))
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": text})
    return messages


def planned(zone: int, messages: list[Message]) -> plan.FoldPlan:
    return plan.make_plan(
        messages, Sizes(), protect_first_n=1, protect_last_n=2, tail_budget=100, zone_budget=zone, room=None
    )


def test_the_names_of_a_cleared_output_stand_in_the_line_of_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = read_turns(12)
    made = planned(400, messages)
    cleared = [text_of(message).startswith(CLEARED_OUTPUT) for message in made.tail].count(True)
    assert cleared > 0
    sources: list[Any] = made.source
    about = [message[ABOUT] for message in sources if ABOUT in message]
    assert about == [f"src/part_{number}.py" for number in range(11 - cleared, 11)]
    assert not any(ABOUT in message for message in (*made.head, *made.tail))
    summary = extract_summary(redact_messages(made.source), budget_tokens=2_000)
    assert "- src/part_10.py — load_tide_10, tide_table_10" in summary

    monkeypatch.setattr(plan, "marks_of", lambda _call: {})  # planted: a result does not know whose output it is
    summary = extract_summary(redact_messages(planned(400, messages).source), budget_tokens=2_000)
    assert "- src/part_10.py — load_tide_10, tide_table_10" not in summary


def test_what_the_zone_leaves_of_its_share_goes_to_the_summary() -> None:
    messages = read_turns(12)
    without, zoned = planned(0, messages), planned(400, messages)
    assert without.spare == 0
    assert zoned.spare == 400 - (zoned.kept_tokens - without.kept_tokens) > 0
    large = planned(20, messages)  # no turn fits into so small a zone
    assert large.spare == 20
