"""A call of a custom tool is read like any other, and written back as it came."""

from __future__ import annotations

from typing import Any

import pytest

from leporello.messages import Message, repair, tool_calls_of
from leporello.messages.custom_calls import with_custom_calls


def test_a_call_of_a_custom_tool_is_read_with_its_text() -> None:
    custom = {"id": "a", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}}
    (call,) = tool_calls_of({"role": "assistant", "tool_calls": [custom]})
    assert (call.id, call.name, call.arguments) == ("a", "patch", {"input": "*** Begin"})


def test_a_call_of_a_custom_tool_is_written_back_as_it_came() -> None:
    custom = {"id": "a", "type": "custom", "custom": {"name": "patch", "input": '*** {\n"é"'}, "index": 0}
    said: Message = {"role": "assistant", "content": None, "tool_calls": [custom]}
    repaired = repair([{"role": "user", "content": "Patch it."}, said]).messages[1]
    assert repaired["tool_calls"][0]["type"] == "function"
    assert with_custom_calls(repaired) == said


@pytest.mark.parametrize(
    "call",
    [7, {"_custom": True}, {"_custom": True, "function": 7}, {"_custom": True, "function": {"arguments": "[1]"}}],
)
def test_a_call_that_only_says_that_it_was_custom_stays_as_it_is(call: Any) -> None:
    message: Message = {"role": "assistant", "tool_calls": [call]}
    assert with_custom_calls(message) == message
