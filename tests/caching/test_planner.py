"""The planner: everything that an earlier request wrote is read, however much one turn adds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from leporello.caching import CachePolicy, ProviderCache, plan, rules_of
from leporello.caching.markers import count_markers
from leporello.messages import Message, role_of
from leporello.testing.strategies import broken_conversations, garbage_messages, valid_conversations

LONG = "word " * 1_200
SYSTEM: Message = {"role": "system", "content": LONG}
NATIVE = CachePolicy(enabled=True, strategy="planner", native=True, kind="cache_control")
ROUTED = CachePolicy(enabled=True, strategy="planner", native=False, kind="cache_control")
SIMPLE = CachePolicy(enabled=True, strategy="system_and_3", native=True, kind="cache_control")

Mark = Callable[[list[Any]], list[Any]]


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def answer(text: str | None, calls: int = 0, name: str = "c") -> list[Message]:
    """Return an answer with a number of calls, and their results."""
    made: list[dict[str, Any]] = [
        {"id": f"{name}{n}", "type": "function", "function": {"name": "f", "arguments": "{}"}} for n in range(calls)
    ]
    said: Message = {"role": "assistant", "content": text, **({"tool_calls": made} if made else {})}
    results: list[Message] = [
        {"role": "tool", "tool_call_id": call["id"], "content": f"out of {call['id']}"} for call in made
    ]
    return [said, *results]


def test_the_ends_of_the_last_requests_are_marked() -> None:
    messages = [SYSTEM, user("1"), *answer(None, 3, "a"), *answer(None, 2, "b")]
    assert [role_of(message) for message in messages] == [
        "system", "user", "assistant", "tool", "tool", "tool", "assistant", "tool", "tool",
    ]  # fmt: skip
    assert plan(messages) == [0, 1, 5, 8]


@pytest.mark.parametrize(
    ("messages", "places"),
    [
        ([], []),
        ([SYSTEM], [0]),
        ([SYSTEM, user("1")], [0, 1]),
        ([user("1")], [0]),
        ([SYSTEM, user("1"), *answer("a"), user("2")], [0, 1, 3]),
    ],
)
def test_short_lists(messages: list[Any], places: list[int]) -> None:
    assert plan(messages) == places


@pytest.mark.parametrize(("most", "places"), [(0, []), (1, [8]), (2, [0, 8]), (3, [0, 5, 8]), (4, [0, 1, 5, 8])])
def test_with_fewer_marks_the_most_useful_stay(most: int, places: list[int]) -> None:
    messages = [SYSTEM, user("1"), *answer(None, 3, "a"), *answer(None, 2, "b")]
    assert plan(messages, most=most) == places


def test_elsewhere_a_tool_result_carries_its_mark_on_its_text() -> None:
    """On a tool message itself OpenRouter does not take it."""
    marked = ROUTED.mark([SYSTEM, user("1"), *answer(None, 1)])
    assert marked[3]["content"] == [{"type": "text", "text": "out of c0", "cache_control": {"type": "ephemeral"}}]
    assert all("cache_control" not in message for message in marked)


def test_what_cannot_carry_a_mark_leaves_it_to_the_message_before() -> None:
    messages = [SYSTEM, user("1"), *answer(None, 1)]
    messages[-1]["content"] = ""
    assert plan(messages, native=True) == [0, 1, 3]
    assert plan(messages, native=False) == [0, 1]


def check_grown(mark: Mark, before: list[Any], after: list[Any]) -> None:
    """Check that the second request reads all that the first one held."""
    account = ProviderCache(rules_of)
    first = account.request("claude-sonnet-5", messages=mark(before))
    second = account.request("claude-sonnet-5", messages=mark(after))
    assert first.read == 0
    assert first.written == first.prompt, "the first request was not written to its end"
    assert second.read == first.prompt, f"{first.prompt - second.read} tokens were paid again"


@pytest.mark.parametrize("added", [1, 9, 10, 30, 200])
def test_however_many_blocks_one_turn_adds(added: int) -> None:
    before = [SYSTEM, user("1")]
    check_grown(NATIVE.mark, before, [*before, *answer(None, added)])


def test_the_default_strategy_pays_again_when_a_turn_adds_more_than_twenty_blocks() -> None:
    """The defect that the planner is for; and the check that finds it."""
    before = [SYSTEM, user("1")]
    check_grown(SIMPLE.mark, before, [*before, *answer(None, 9)])
    with pytest.raises(AssertionError, match="paid again"):
        check_grown(SIMPLE.mark, before, [*before, *answer(None, 30)])


@pytest.mark.slow
@settings(deadline=None)
@given(valid_conversations(min_turns=2, max_turns=8), st.sampled_from([NATIVE, ROUTED]))
def test_every_request_reads_what_the_one_before_it_wrote(messages: list[Any], policy: CachePolicy) -> None:
    account = ProviderCache(rules_of)
    opening = [SYSTEM, *(message for message in messages if role_of(message) != "system")]
    written = 0
    for end, message in enumerate(opening):
        if role_of(message) == "assistant":
            use = account.request("claude-sonnet-5", messages=policy.mark(opening[:end]))
            assert use.read >= written
            written = use.read + use.written


def test_a_turn_taken_back_still_reads_what_it_shares() -> None:
    account = ProviderCache(rules_of)
    talk = [SYSTEM, user("1"), *answer("a"), user("2")]
    sizes = [account.request("claude-sonnet-5", messages=NATIVE.mark(talk[:end])).prompt for end in (2, 4)]
    account.request("claude-sonnet-5", messages=NATIVE.mark([*talk, *answer("b"), user("3")]))
    again = account.request("claude-sonnet-5", messages=NATIVE.mark([*talk[:3], user("other")]))
    assert again.read == sizes[0]


@pytest.mark.slow
@settings(deadline=None)
@given(valid_conversations() | broken_conversations() | st.lists(garbage_messages(), max_size=8), st.booleans())
def test_any_list_has_at_most_four_in_order(messages: list[Any], native: bool) -> None:
    places = plan(messages, native=native)
    assert places == sorted(set(places))
    assert len(places) <= 4
    assert all(0 <= at < len(messages) for at in places)
    assert count_markers((NATIVE if native else ROUTED).mark(messages)) <= 4
