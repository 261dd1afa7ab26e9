"""Groups: a call is never parted from its results."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from leporello.messages import Group, Message, group_start, group_stop, groups, is_cut, violations
from leporello.messages.types import is_system, role_of
from leporello.testing.strategies import broken_conversations, valid_conversations


def shape(roles: str) -> list[Message]:
    """Return messages by letters: s, u, a, t, and c for an assistant that calls."""
    names = {"s": "system", "u": "user", "a": "assistant", "c": "assistant", "t": "tool"}
    calls = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    return [{"role": names[r], "content": "x", **({"tool_calls": calls} if r == "c" else {})} for r in roles]


@pytest.mark.parametrize(
    ("roles", "sizes"),
    [
        ("", []),
        ("sua", [1, 1, 1]),
        ("ucttau", [1, 3, 1, 1]),
        ("tut", [1, 1, 1]),
        ("att", [1, 1, 1]),
        ("cctc", [1, 2, 1]),
        ("ssusscttsasu", [1, 1, 3, 4, 2, 1]),
        ("cstst", [2, 2, 1]),
    ],
)
def test_a_call_and_its_results_are_one_group(roles: str, sizes: list[int]) -> None:
    assert [group.stop - group.start for group in groups(shape(roles))] == sizes


@pytest.mark.slow
@given(broken_conversations())
@settings(max_examples=100, deadline=None)
def test_groups_cover_the_list_and_agree_with_their_edges(messages: list[Any]) -> None:
    found = groups(messages)
    assert [i for group in found for i in range(group.start, group.stop)] == list(range(len(messages)))
    for group in found:
        for index in range(group.start, group.stop):
            assert Group(group_start(messages, index), group_stop(messages, index)) == group


@pytest.mark.slow
@given(valid_conversations(), st.data())
@settings(max_examples=100, deadline=None)
def test_a_cut_at_a_group_start_keeps_calls_and_results_together(messages: list[Any], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(messages)))
    cut = group_start(messages, index)
    assert cut <= index
    assert is_cut(messages, cut)
    for half in (messages[:cut], messages[cut:]):
        assert not {v.code for v in violations(half, "openai")} & {"result-orphan", "result-missing", "result-late"}


@given(valid_conversations(end="tool"))
@settings(max_examples=50, deadline=None)
def test_a_cut_inside_a_group_would_part_them(messages: list[Any]) -> None:
    inside = [i for i in range(len(messages)) if not is_cut(messages, i)]
    assert all(role_of(messages[i]) == "tool" or is_system(messages[i]) for i in inside)
    assert any("result-orphan" in {v.code for v in violations(messages[i:], "openai")} for i in inside)


def test_the_end_is_a_cut_and_what_is_beyond_is_refused() -> None:
    messages = shape("uct")
    assert group_start(messages, 3) == group_stop(messages, 3) == 3
    with pytest.raises(IndexError, match="no message 4 in a list of 3"):
        group_start(messages, 4)


def test_a_long_run_of_orphans_is_no_burden() -> None:
    assert len(groups(shape("t" * 50_000))) == 50_000
