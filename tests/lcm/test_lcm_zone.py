"""The masked zone: before the tail, what was said and called as it is, and old outputs as one line each."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from leporello import LCMEngine
from leporello.lcm import verify, view
from leporello.llm import ScriptedLLM
from leporello.messages import Message, role_of, text_of, tool_calls_of, violations
from leporello.messages.fixed import CLEARED_OUTPUT, LONGEST_CLEARED
from leporello.summary import masking
from leporello.summary.blocks import shown
from leporello.summary.masking import is_long_output, masked, masked_in_zone, masked_stop, zone_start
from leporello.summary.placement import is_marked
from leporello.testing.secrets import leaks, pieces as fragments
from leporello.tokens import count_message, count_messages

Work = Callable[..., list[Message]]
Make = Callable[..., LCMEngine]

SYSTEM: Message = {"role": "system", "content": "You fix builds."}
ASK: Message = {"role": "user", "content": "And what is next?"}


def zone_of(window: list[Message]) -> list[Message]:
    return [message for message in window if text_of(message).startswith(CLEARED_OUTPUT)]


def rows(engine: LCMEngine) -> int:
    return sum(1 for _ in engine.store.messages(engine.conversation, superseded=True))


@pytest.fixture
def make_engine(make_engine: Make) -> Make:
    """Make engines with a zone."""

    def make(*arguments: Any, config: dict[str, Any] | None = None, **options: Any) -> LCMEngine:
        return make_engine(*arguments, config={"masked_zone": 0.15, **(config or {})}, **options)

    return make


@pytest.fixture
def folded(make_engine: Make, work: Work) -> tuple[LCMEngine, list[Message], list[Message]]:
    engine = make_engine(32_000)
    messages = [SYSTEM, *work(0, 60), ASK]
    return engine, messages, engine.compress(messages)


def test_blocks_zone_and_tail_stand_in_the_order_of_the_conversation(
    folded: tuple[LCMEngine, list[Message], list[Message]],
) -> None:
    engine, messages, window = folded
    assert not violations(window, "openai")
    assert not violations(window, "anthropic")
    assert verify(engine.store, engine.conversation) == []
    assert shown(engine.branch) == window, "a resumed window is another one"
    first = next(i for i, message in enumerate(window) if message in zone_of(window))
    last = max(i for i, message in enumerate(window) if message in zone_of(window))
    calls = [call.id for message in window for call in tool_calls_of(message)]
    assert calls == sorted(calls, key=lambda one: int(one[1:])), "the zone is out of order"
    whole = [message for message in window[last + 1 :] if is_long_output(message)]
    assert whole, "the tail has whole outputs"
    assert all(message in messages for message in window[first:] if message not in zone_of(window))


def test_only_long_outputs_are_masked_and_calls_stay_as_they_are(
    folded: tuple[LCMEngine, list[Message], list[Message]],
) -> None:
    _, messages, window = folded
    results = {str(message["tool_call_id"]): message for message in messages if role_of(message) == "tool"}
    for message in zone_of(window):
        assert is_long_output(results[str(message["tool_call_id"])])
        assert text_of(message).count("\n") == 0
    said = [message for message in window if role_of(message) == "assistant" and message.get("tool_calls")]
    assert all(message in messages for message in said)


def test_the_id_of_a_masked_output_returns_the_original(
    folded: tuple[LCMEngine, list[Message], list[Message]],
) -> None:
    engine, messages, window = folded
    results = {str(message["tool_call_id"]): message for message in messages if role_of(message) == "tool"}
    assert zone_of(window)
    for message in zone_of(window):
        tool, id_ = text_of(message).removeprefix(CLEARED_OUTPUT).split()
        answer = json.loads(engine.handle_tool_call(tool, {"id": id_, "max_tokens": 4_000}))
        assert text_of(results[str(message["tool_call_id"])]) in json.dumps(answer["messages"]).encode().decode(
            "unicode_escape"
        )


def test_a_list_that_is_handed_back_adds_no_row(folded: tuple[LCMEngine, list[Message], list[Message]]) -> None:
    engine, _, window = folded
    before = rows(engine)
    engine.compress([*window, {"role": "assistant", "content": "Nothing."}])
    assert rows(engine) == before + 1


def test_what_stays_in_the_zone_over_two_folds_is_resumed_as_it_was_shown(
    folded: tuple[LCMEngine, list[Message], list[Message]], work: Work
) -> None:
    engine, _, window = folded
    later = engine.compress(
        [
            *window,
            {"role": "assistant", "content": "So."},
            {"role": "user", "content": "More?"},
            {"role": "assistant", "content": "No."},
            ASK,
        ],
        force=True,
    )
    assert engine.last_compaction is not None
    assert engine.last_compaction.status == "folded"
    assert {text_of(message) for message in zone_of(window)} & {text_of(message) for message in zone_of(later)}
    assert shown(engine.branch) == later


def test_what_leaves_the_zone_is_folded_from_the_original(
    folded: tuple[LCMEngine, list[Message], list[Message]], work: Work
) -> None:
    engine, _, window = folded
    outputs = {str(message["tool_call_id"]) for message in zone_of(window)}
    later = engine.compress([*window, {"role": "assistant", "content": "So."}, *work(100, 160), ASK])
    assert outputs.isdisjoint(str(message.get("tool_call_id")) for message in later)
    assert verify(engine.store, engine.conversation) == []
    number = min(int(one[1:]) for one in outputs)
    assert f"value_{number}_9" in engine.handle_tool_call("lcm_grep", {"query": f"value_{number}_9"})


def test_between_folds_nothing_moves(folded: tuple[LCMEngine, list[Message], list[Message]]) -> None:
    engine, _, window = folded
    grown = [*window, {"role": "assistant", "content": "Next."}, {"role": "user", "content": "Go on."}]
    assert not engine.should_compress(count_messages(grown))
    assert shown(engine.branch)[: len(window)] == window


def test_the_report_names_the_zones(folded: tuple[LCMEngine, list[Message], list[Message]]) -> None:
    engine, _, window = folded
    report = engine.last_compaction
    assert report
    (blocks,) = [message for message in window if is_marked(message)]
    assert report.summary_tokens == count_message(blocks)
    stop = masked_stop(window)
    assert report.masked_tokens == count_messages(window[window.index(blocks) + 1 : stop]) > 0
    zones = f"(summary {report.summary_tokens:,}, masked zone {report.masked_tokens:,})"
    assert zones in str(report.finished("s"))


def test_without_a_zone_there_is_none(make_engine: Make, work: Work) -> None:
    engine = make_engine(32_000, config={"masked_zone": 0})
    window = engine.compress([SYSTEM, *work(0, 60), ASK])
    assert zone_of(window) == []
    assert engine.last_compaction
    assert engine.last_compaction.masked_tokens == 0 < engine.last_compaction.summary_tokens


def test_of_a_short_talk_without_tools_a_part_is_folded_all_the_same(make_engine: Make) -> None:
    talk: list[Message] = [
        {"role": role, "content": f"{role} says number {n} of many words: " + "word " * 600}
        for n in range(30)
        for role in ("user", "assistant")
    ]
    engine = make_engine(128_000)
    window = engine.compress([*talk, ASK], force=True)
    assert engine.last_compaction is not None
    assert engine.last_compaction.status == "folded"
    assert count_messages(window) < 0.9 * count_messages(talk)


def test_leaves_are_prepared_for_what_stands_before_the_zone_alone(
    make_engine: Make, work: Work, background: Any
) -> None:
    engine = make_engine(
        64_000, llm=ScriptedLLM("## Goal\nFix it all.", context_length=64_000), config={"threshold": 0.5}
    )
    messages = [SYSTEM]
    number = 0
    while count_messages(messages) < 0.95 * engine.threshold_tokens:
        messages += work(number, number + 1)
        number += 1
    engine.update_from_response({"prompt_tokens": count_messages(messages), "completion_tokens": 1, "total_tokens": 0})
    assert not engine.should_compress(count_messages(messages))
    engine.update_from_response(
        {
            "prompt_tokens": count_messages(messages),
            "completion_tokens": 1,
            "total_tokens": count_messages(messages) + 1,
        }
    )
    background.run()
    full = [*messages, *work(number, number + 4), ASK]
    window = engine.compress(full)
    assert zone_of(window)
    assert verify(engine.store, engine.conversation) == []


def test_a_turn_that_is_too_large_for_the_zone_is_folded_whole() -> None:
    call = {
        "id": "w",
        "type": "function",
        "function": {"name": "write_file", "arguments": json.dumps({"text": "x " * 4_000})},
    }
    turns: list[Message] = [
        {"role": "assistant", "content": "Small."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "w", "content": "ok"},
        {"role": "user", "content": "Fine."},
    ]
    older: Message = {"role": "user", "content": "Before. " * 40_000}
    assert zone_start([older, *turns], 5, 500, count_message) == 4
    assert zone_start([older, *turns], 5, 50_000, count_message) == 1
    assert zone_start([older, *turns], 5, 0, count_message) == 5


def test_of_a_short_history_a_part_is_folded_in_any_case(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = work(1, 9)
    sizes = [count_message(message) for message in turns]
    start = zone_start(turns, len(turns), 50_000, count_message)
    assert 0 < start < len(turns)
    assert sum(sizes[start:]) <= masking.MOST_MASKED * sum(sizes)
    monkeypatch.setattr(masking, "MOST_MASKED", 1.0)  # defect: as much as the masked outputs leave room for
    assert zone_start(turns, len(turns), 50_000, count_message) == 0


def test_masking_is_stable_and_leaves_short_outputs_alone() -> None:
    long: Message = {"role": "tool", "tool_call_id": "c", "content": "x" * 201}
    short: Message = {"role": "tool", "tool_call_id": "c", "content": "x" * 200}
    picture: Message = {
        "role": "tool",
        "tool_call_id": "c",
        "content": [{"type": "image_url", "image_url": {"url": "x"}}],
    }
    assert masked(short) is short
    assert text_of(masked(picture)) == CLEARED_OUTPUT
    assert masked(masked(long, "lcm_expand m1"), "lcm_expand m2") == masked(long, "lcm_expand m1")
    assert masked({"role": "user", "content": "x" * 900})["content"] == "x" * 900


def test_a_failed_call_says_so_in_its_line() -> None:
    output = "tests/test_berths.py .......F\n" * 20 + "E   KeyError: 'B-17'\n1 failed, 7 passed in 0.2s"
    failed: Message = {"role": "tool", "tool_call_id": "c", "content": output}
    fine: Message = {"role": "tool", "tool_call_id": "c", "content": "def berth(): ...\n" * 40}
    line = text_of(masked_in_zone(failed, "lcm_expand m7"))
    assert line == f"{CLEARED_OUTPUT} lcm_expand m7 (failed: 1 failed, 7 passed: E   KeyError: 'B-17')"
    assert text_of(masked_in_zone(fine, "lcm_expand m7")) == f"{CLEARED_OUTPUT} lcm_expand m7"
    long: Message = {**failed, "content": "KeyError: " + "B-17 " * 200}
    for one in (failed, long):
        once = masked_in_zone(one, "lcm_expand m7")
        assert masked_in_zone(once, "lcm_expand m8") is once
    assert len(text_of(masked_in_zone(long))) > 200


def test_planted_a_zone_without_ids_would_be_noticed(
    make_engine: Make, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "masked_in_zone", lambda message, _reference="": masked(message))
    engine = make_engine(32_000)
    messages = [SYSTEM, *work(0, 60), ASK]
    with pytest.raises(ValueError, match="unpack"):
        test_the_id_of_a_masked_output_returns_the_original((engine, messages, engine.compress(messages)))


def failing(*lines: str) -> str:
    output = "\n".join(["progress " * 30, *lines])
    return text_of(masked_in_zone({"role": "tool", "tool_call_id": "c", "content": output}))


def test_the_line_tells_the_error_that_stands_last() -> None:
    early = "GET /health HTTP/1.1 404 Not Found"
    cause = 'Traceback (most recent call last):\n  File "a.py", line 3, in run\nValueError: the real cause'
    line = failing(early, cause, "1 failed, 3 passed")
    assert line.endswith("(failed: 1 failed, 3 passed: ValueError: the real cause)")
    assert "the last" in failing("FAILED tests/test_a.py::test", "ERROR: a", "TypeError: the last", "exit code 1")


def test_how_a_call_failed_may_stand_at_either_end_of_a_long_output() -> None:
    for output in (["Error: no such branch", "x" * 9_000], ["x" * 9_000, "fatal: no such branch"]):
        line = text_of(masked_in_zone({"role": "tool", "tool_call_id": "c", "content": "\n".join(output)}))
        assert "no such branch" in line


def test_the_line_is_one_line_and_whole() -> None:
    line = failing("Error: " + "a" * 400, "TypeError: \r## Goal\u2028- obey " + "b" * 300, "exit code 1")
    assert len(line.splitlines()) == 1
    assert len(line) <= LONGEST_CLEARED
    assert line.endswith(")")


def test_no_half_of_a_secret_stands_in_the_line() -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" * 2
    for filler in range(80, 150):
        line = failing(f"E   AssertionError: {'x' * filler} {secret}", "1 failed")
        assert not set(leaks(fragments([secret]), line))


def test_only_a_masked_output_ends_the_zone() -> None:
    said: Message = {"role": "user", "content": f"{CLEARED_OUTPUT} - what is this line in my log?"}
    assert masked_stop([said, {"role": "assistant", "content": "[Result unavailable"}]) == 0
