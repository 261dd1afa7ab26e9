"""Did the prefix move: told for every way in which a request can differ from the one before it."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings, strategies as st

from leporello.caching import PrefixChange, PrefixTracker, apply_anthropic_cache_control
from leporello.testing.strategies import broken_conversations, valid_conversations
from leporello.tokens import count_messages, count_tools

if TYPE_CHECKING:
    from leporello.messages import Message

SYSTEM: Message = {"role": "system", "content": "Be brief."}
TALK: list[Message] = [
    SYSTEM,
    {"role": "user", "content": "one"},
    {"role": "assistant", "content": "two"},
    {"role": "user", "content": "three"},
]
TOOLS = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}]
MORE: Message = {"role": "assistant", "content": "four"}


def after(first: list[Any], second: list[Any], **options: Any) -> PrefixChange:
    """Return how a second request differs from a first."""
    tracker = PrefixTracker()
    tracker.see(first)
    return tracker.see(second, **options)


def said(change: PrefixChange) -> tuple[bool, int | None, str]:
    return change.moved, change.index, change.reason


def test_the_first_request_moves_nothing() -> None:
    change = PrefixTracker().see(TALK, TOOLS)
    assert (*said(change), change.tokens_lost) == (False, None, "first request", 0)


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        pytest.param([*TALK, MORE], (False, None, "grew"), id="grew"),
        pytest.param(list(TALK), (False, None, "unchanged"), id="unchanged"),
        pytest.param(deepcopy(TALK), (False, None, "unchanged"), id="copied"),
        pytest.param(apply_anthropic_cache_control(TALK), (False, None, "unchanged"), id="marked"),
        pytest.param([{**m, "_seen": 1} for m in TALK], (False, None, "unchanged"), id="private notes"),
        pytest.param(TALK[:3], (False, None, "cut back"), id="cut back"),
        pytest.param([*TALK[:2], MORE, TALK[3]], (True, 2, "message edited"), id="edited"),
        pytest.param([SYSTEM, MORE], (True, 1, "history rewritten"), id="rewritten"),
        pytest.param([{**SYSTEM, "content": "Now"}, *TALK[1:]], (True, 0, "system prompt changed"), id="system"),
        pytest.param(TALK[1:], (True, 0, "system prompt changed"), id="system gone"),
    ],
)
def test_what_changed_is_told(second: list[Any], expected: tuple[bool, int | None, str]) -> None:
    assert said(after(TALK, second)) == expected


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"tools": TOOLS}, "tools changed"),
        ({"system": "apart"}, "system prompt changed"),
        ({"model": "another"}, "model changed"),
    ],
)
def test_what_stands_before_the_messages_counts_too(options: dict[str, Any], reason: str) -> None:
    change = after(TALK, TALK, **options)
    assert (*said(change), change.tokens_lost) == (True, None, reason, count_messages(TALK))


def test_tools_in_another_order_are_other_tools() -> None:
    tracker = PrefixTracker()
    other = {"type": "function", "function": {"name": "write", "parameters": {"type": "object"}}}
    tracker.see(TALK, [*TOOLS, other])
    assert tracker.see(TALK, [other, *TOOLS]).reason == "tools changed"


def test_a_list_of_tools_that_grew_in_place_is_noticed() -> None:
    tracker, tools = PrefixTracker(), list(TOOLS)
    tracker.see(TALK, tools)
    tools.append({"name": "late"})
    assert tracker.see(TALK, tools).reason == "tools changed"


def test_the_hosts_word_wins_when_something_moved() -> None:
    assert after(TALK, [SYSTEM, MORE], why="compaction").reason == "compaction"
    assert after(TALK, [*TALK, MORE], why="compaction").reason == "grew"


def test_lost_is_what_stood_behind_the_change() -> None:
    edited = [*TALK[:2], MORE, TALK[3]]
    assert after(TALK, edited).tokens_lost == count_messages(TALK[2:])
    tracker = PrefixTracker()
    tracker.see(TALK, TOOLS, system="apart")
    tools_survive = tracker.see(TALK, TOOLS, system="another")
    everything = count_tools(TOOLS) + count_messages([{"role": "system", "content": "apart"}, *TALK])
    assert tools_survive.tokens_lost == everything - count_tools(TOOLS)


def test_lost_is_what_the_host_weighs_where_it_says_so() -> None:
    tracker, edited = PrefixTracker(), [*TALK[:2], MORE, TALK[3]]
    tracker.see(TALK[:3], weights=[1, 2, 4])
    tracker.see(TALK, weights=[1, 2, 4, 8])
    assert tracker.see(edited, weights=[1, 2, 16, 8]).tokens_lost == 4 + 8
    assert tracker.see(TALK, weights=[1, 2, 4, 8]).tokens_lost == 16 + 8


def test_each_request_is_compared_with_the_one_before_it() -> None:
    tracker = PrefixTracker()
    edited = [*TALK[:2], MORE, TALK[3]]
    requests = (TALK, edited, [*edited, MORE], TALK)
    assert [tracker.see(request).reason for request in requests] == [
        "first request",
        "message edited",
        "grew",
        "history rewritten",
    ]


def check_hashes(kind: type[PrefixTracker], messages: list[Any]) -> None:
    """Check that a hash names what was said, whatever way led there."""
    tracker, names = kind(), set()
    for end in range(len(messages) + 1):
        name = tracker.see(messages[:end]).hash
        assert name == kind().see(messages[:end]).hash, "the way there made a difference"
        names.add(name)
    assert len(names) == len(messages) + 1, "two share a hash"


@pytest.mark.slow
@settings(deadline=None)
@given(valid_conversations(max_turns=3))
def test_the_hash_names_the_request(messages: list[Any]) -> None:
    check_hashes(PrefixTracker, messages)


class CountsRequests(PrefixTracker):
    """Names a request by how many there were."""

    requests = 0

    def _hash(self) -> str:
        self.requests += 1
        return str(self.requests)


class ForgetsTheBeginning(PrefixTracker):
    """Names a request by what stands before its messages."""

    def _hash(self) -> str:
        return self._opening.fingerprint


@pytest.mark.parametrize(
    ("kind", "complaint"), [(CountsRequests, "the way there"), (ForgetsTheBeginning, "share a hash")]
)
def test_the_check_of_the_hashes_can_fail(kind: type[PrefixTracker], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_hashes(kind, TALK)


@pytest.mark.slow
@settings(deadline=None)
@given(valid_conversations() | broken_conversations(), st.data())
def test_moved_is_said_exactly_when_a_known_message_differs(messages: list[Any], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, max(0, len(messages) - 1)))
    grown = after(messages[:at], messages)
    assert not grown.moved
    if messages:
        edited = after(messages, [*messages[:at], {"role": "user", "content": "surely nobody said this"}])
        assert (edited.moved, edited.index) == (True, at)


class Watched(dict[str, Any]):
    """A message that counts how often its content is read."""

    looks = 0

    def items(self) -> Any:
        self.looks += 1
        return super().items()

    def get(self, key: str, default: Any = None) -> Any:
        self.looks += 1
        return super().get(key, default)

    def __eq__(self, other: object) -> bool:
        self.looks += 1
        return super().__eq__(other)

    __hash__ = None


def check_looks(kind: type[PrefixTracker]) -> None:
    """Check that a request that grew is read from where it grew."""
    tracker, messages = kind(), [Watched(role="user", content=str(n)) for n in range(50)]
    tracker.see(messages)
    for message in messages:
        message.looks = 0
    newest = Watched(role="user", content="new")
    tracker.see([*messages, newest])
    assert newest.looks > 0
    assert sum(message.looks for message in messages) == 0, "old messages were read again"


def test_old_messages_are_not_read_again() -> None:
    check_looks(PrefixTracker)


def test_the_check_of_the_looks_can_fail() -> None:
    class ReadsEverything(PrefixTracker):
        def see(self, messages: Any, *args: Any, **options: Any) -> PrefixChange:
            self._messages.clear()
            return super().see(messages, *args, **options)

    with pytest.raises(AssertionError, match="read again"):
        check_looks(ReadsEverything)


@pytest.mark.parametrize("vouched", [0, 1, len(TALK)])
def test_what_the_host_vouches_for_makes_no_difference_when_it_is_true(vouched: int) -> None:
    longer = [*TALK, {"role": "user", "content": "more"}]
    edited = [*TALK[:-1], {"role": "user", "content": "other"}, {"role": "user", "content": "more"}]
    assert after(TALK, longer, unchanged=vouched) == after(TALK, longer)
    assert after(TALK, edited, unchanged=min(vouched, len(TALK) - 1)) == after(TALK, edited)
