"""Very long lists, as an import brings them: folded like any other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from leporello import ContextCompressor
from leporello.llm import ScriptedLLM
from leporello.messages import Message, violations
from leporello.summary.placement import END
from leporello.tokens import count_messages

pytestmark = pytest.mark.slow

GOOD = "## Goal\nKeep the port running.\n\n## Progress\n### Done\n- Looked at the files."


def tool_turn(number: int, *, text: str = "") -> list[Message]:
    function = {"name": "read_file", "arguments": json.dumps({"path": f"src/part_{number}.py"})}
    return [
        {"role": "user", "content": f"Please look at part {number} of the yard."},
        {
            "role": "assistant",
            "content": text or None,
            "tool_calls": [{"id": f"c{number}", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": f"c{number}", "content": f"crane = assign({number})\n" * 40},
        {"role": "assistant", "content": f"Part {number} is in order."},
    ]


def long_list(turns: int = 700) -> list[Message]:
    messages: list[Message] = [{"role": "system", "content": "You work on a port's software."}]
    return messages + [message for number in range(turns) for message in tool_turn(number)]


@pytest.mark.parametrize("content", [None, 7, [None, 3, {"type": ["text"], "text": "x"}], {"a": 1}])
def test_contents_that_cannot_be_read_are_folded(content: Any) -> None:
    messages = long_list()
    broken: Any = {"role": "assistant", "content": content, "tool_calls": [None, {"function": 3}]}
    messages[1_400] = broken
    engine = ContextCompressor(200_000)
    engine.on_event = lambda _: None
    after = engine.compress(messages)
    assert not violations(after, "openai")
    assert len(after) < len(messages)


@pytest.mark.parametrize("llm", [None, ScriptedLLM(GOOD, context_length=200_000)], ids=["extractive", "model"])
def test_the_promises_hold(llm: ScriptedLLM | None) -> None:
    messages = long_list(1_200)
    before = json.dumps(messages)
    engine = ContextCompressor(200_000, llm=llm)
    engine.on_event = lambda _: None
    after = engine.compress(messages)
    assert json.dumps(messages) == before
    assert not violations(after, "openai")
    assert not violations(after, "anthropic")
    assert after[-4:] == messages[-4:]
    assert json.dumps(after).count(END) == 1
    assert count_messages(after) < engine.threshold_tokens
    report = engine.last_compaction
    assert report is not None
    assert (report.status, report.tokens_after) == ("folded", count_messages(after))
    assert report.tokens_before == count_messages(messages)
    again = engine.compress(after)
    assert json.dumps(again).count(END) == 1


def test_everything_is_read_and_every_prompt_fits_the_summariser() -> None:
    llm = ScriptedLLM(GOOD, context_length=32_000)
    engine = ContextCompressor(200_000, llm=llm)
    engine.compress(long_list())
    assert all(count_messages(call.messages) + call.max_tokens <= 32_000 for call in llm.calls)
    assert "".join(llm.prompts).count("part_350.py") >= 1


def test_a_list_that_cannot_get_shorter_comes_back_made_valid() -> None:
    messages: list[Any] = [{"role": ("user", "assistant")[n % 2], "content": "."} for n in range(2_100)]
    engine = ContextCompressor(200_000, config={"protect_last_n": 2_090})
    engine.on_event = lambda _: None
    assert engine.compress(messages + [None]) == messages  # noqa: RUF005 - typed as it is
    assert engine.last_compaction is not None
    assert engine.last_compaction.status in ("unchanged", "refused")
