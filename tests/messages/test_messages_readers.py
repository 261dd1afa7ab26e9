"""The readers of messages never raise, whatever a broken message holds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from leporello.messages import call_ids_of, is_system, parts_of, role_of, text_of, tool_calls_of

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.tuples(inner, inner),
    max_leaves=8,
)
PARTS = st.lists(ANYTHING | st.fixed_dictionaries({"type": ANYTHING, "text": ANYTHING}))
CUSTOM = ANYTHING | st.fixed_dictionaries({"name": ANYTHING, "input": st.text()})
CALLS = st.lists(
    ANYTHING
    | st.fixed_dictionaries({"id": ANYTHING, "function": ANYTHING})
    | st.fixed_dictionaries({"id": ANYTHING, "custom": CUSTOM})
)


class Unspeakable:
    """Something that cannot be told as text."""

    def __str__(self) -> str:
        raise RuntimeError("no")


def circular() -> dict[str, Any]:
    arguments: dict[str, Any] = {"path": "a.py"}
    arguments["self"] = arguments
    return arguments


def deep() -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(100_000):
        value = {"deeper": value}
    return value


def calling(arguments: Any) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "run", "arguments": arguments}}]}


@pytest.mark.parametrize("kind", [["thinking"], {"type": "text"}, {1, 2}, None, 7])
def test_a_part_whose_type_is_no_text_is_still_read(kind: Any) -> None:
    assert text_of({"content": [{"type": kind, "text": "read me"}]}) == "read me"


@pytest.mark.parametrize("kind", ["thinking", "redacted_thinking"])
def test_thinking_is_not_read(kind: str) -> None:
    assert text_of({"content": [{"type": kind, "text": "hidden"}, {"type": "text", "text": "said"}]}) == "said"


@pytest.mark.parametrize("arguments", [circular(), deep(), {"x": Unspeakable()}], ids=["circular", "deep", "no text"])
def test_arguments_that_cannot_be_written_become_empty(arguments: Any) -> None:
    (call,) = tool_calls_of(calling(arguments))
    assert (call.id, call.name, call.arguments, call.raw) == ("a", "run", {}, "")


def test_arguments_that_are_a_dict_are_written_as_json() -> None:
    (call,) = tool_calls_of(calling({"path": "ü.py", ("no", "key"): 1}))
    assert call.raw == '{"path": "ü.py"}'
    assert call.arguments == {"path": "ü.py"}


@pytest.mark.slow
@given(message=ANYTHING | st.fixed_dictionaries({"role": ANYTHING, "content": PARTS, "tool_calls": CALLS}))
def test_the_ids_of_calls_are_those_of_the_calls(message: Any) -> None:
    assert call_ids_of(message) == [call.id for call in tool_calls_of(message)]


@pytest.mark.slow
@given(message=ANYTHING | st.fixed_dictionaries({"role": ANYTHING, "content": PARTS, "tool_calls": CALLS}))
def test_no_reader_raises(message: Any) -> None:
    assert isinstance(role_of(message), str)
    assert isinstance(is_system(message), bool)
    assert all(isinstance(part, dict) for part in parts_of(message))
    assert isinstance(text_of(message), str)
    assert all(isinstance(call.arguments, dict) for call in tool_calls_of(message))
