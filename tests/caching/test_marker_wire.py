"""On the way to Anthropic's format a message's marker moves to the block that can carry it, or is dropped."""

from __future__ import annotations

from typing import Any

import pytest

from leporello.caching import apply_anthropic_cache_control
from leporello.messages import Message, to_anthropic

MARK = {"type": "ephemeral"}
CALLS = [{"id": f"c{n}", "type": "function", "function": {"name": "f", "arguments": "{}"}} for n in range(2)]
USES = [{"type": "tool_use", "id": f"c{n}", "name": "f", "input": {}} for n in range(2)]
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}


def wire(*messages: Message) -> list[Any]:
    """Return the content of the last message as Anthropic gets it."""
    content = to_anthropic([{"role": "user", "content": "go"}, *messages])[0]["messages"][-1]["content"]
    assert isinstance(content, list)
    return content


def test_a_tool_message_marks_its_result() -> None:
    call: Message = {"role": "assistant", "content": None, "tool_calls": CALLS[:1]}
    result: Message = {"role": "tool", "tool_call_id": "c0", "content": "out", "cache_control": MARK}
    assert wire(call, result) == [{"type": "tool_result", "tool_use_id": "c0", "content": "out", "cache_control": MARK}]


def test_an_empty_tool_result_carries_one_too() -> None:
    call: Message = {"role": "assistant", "content": None, "tool_calls": CALLS[:1]}
    result: Message = {"role": "tool", "tool_call_id": "c0", "content": "", "cache_control": MARK}
    assert wire(call, result)[0]["cache_control"] == MARK


@pytest.mark.parametrize("content", [None, "", "\n", [THOUGHT], []])
def test_calls_without_text_mark_the_last_call(content: Any) -> None:
    marked = apply_anthropic_cache_control(
        [{"role": "assistant", "content": content, "tool_calls": CALLS}], native_anthropic=True
    )
    assert wire(*marked)[-2:] == [USES[0], {**USES[1], "cache_control": MARK}]


def test_text_before_calls_carries_its_own() -> None:
    marked = apply_anthropic_cache_control(
        [{"role": "assistant", "content": "look", "tool_calls": CALLS}], native_anthropic=True
    )
    assert wire(*marked) == [{"type": "text", "text": "look", "cache_control": MARK}, *USES]


@pytest.mark.parametrize("content", [[THOUGHT], [{**THOUGHT, "cache_control": MARK}]])
def test_it_is_dropped_where_nothing_can_carry_it(content: list[Any]) -> None:
    assert wire({"role": "assistant", "content": content, "cache_control": MARK}) == [THOUGHT]


@pytest.mark.parametrize("empty", ["", " \n"])
def test_text_without_words_carries_none(empty: str) -> None:
    """Anthropic refuses a marker on it."""
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": empty, "cache_control": MARK}]
    assert wire({"role": "user", "content": parts})[-1] == {"type": "text", "text": empty}


def test_a_system_marker_reaches_the_system_block() -> None:
    marked = apply_anthropic_cache_control([{"role": "system", "content": "s"}, {"role": "user", "content": "u"}])
    request, _ = to_anthropic(marked)
    assert request["system"] == [{"type": "text", "text": "s", "cache_control": MARK}]
