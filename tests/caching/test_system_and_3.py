"""`apply_anthropic_cache_control`: the table, the limit of four, and that nothing else is touched."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from leporello.caching import apply_anthropic_cache_control, without_markers
from leporello.errors import ConfigError
from leporello.messages import to_anthropic
from leporello.testing.picture import picture, same_picture
from leporello.testing.strategies import broken_conversations, garbage_messages, valid_conversations

MARK = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}
SYSTEM = {"role": "system", "content": "Be brief."}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}

Apply = Callable[..., list[Any]]


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def user(words: Any, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": words, **more}


def markers(value: Any) -> int:
    """Count the markers anywhere in a value, by another way than the code does; values may hold themselves."""
    found, seen, waiting = 0, set(), [value]
    while waiting:
        node = waiting.pop()
        if id(node) in seen or not isinstance(node, (dict, list, tuple)):
            continue
        seen.add(id(node))
        found += isinstance(node, dict) and "cache_control" in node
        waiting += node.values() if isinstance(node, dict) else node
    return found


@pytest.mark.parametrize(
    ("message", "native", "elsewhere"),
    [
        pytest.param(
            {"role": "tool", "tool_call_id": "c", "content": "out"},
            {"role": "tool", "tool_call_id": "c", "content": "out", "cache_control": MARK},
            {"role": "tool", "tool_call_id": "c", "content": "out"},
            id="tool: on the message, native only",
        ),
        pytest.param(
            {"role": "tool", "tool_call_id": "c", "content": ""},
            {"role": "tool", "tool_call_id": "c", "content": "", "cache_control": MARK},
            {"role": "tool", "tool_call_id": "c", "content": ""},
            id="tool comes before empty",
        ),
        pytest.param(
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "assistant", "content": None, "tool_calls": [CALL], "cache_control": MARK},
            {"role": "assistant", "content": None, "tool_calls": [CALL], "cache_control": MARK},
            id="None: on the message",
        ),
        pytest.param(user(""), user("", cache_control=MARK), user("", cache_control=MARK), id="empty text"),
        pytest.param(user([]), user([], cache_control=MARK), user([], cache_control=MARK), id="empty list"),
        pytest.param(user(" \n"), user(" \n", cache_control=MARK), user(" \n", cache_control=MARK), id="no words"),
        pytest.param(
            user("hi"),
            user([text("hi", cache_control=MARK)]),
            user([text("hi", cache_control=MARK)]),
            id="text becomes a part",
        ),
        pytest.param(
            user([text("a"), text("b")]),
            user([text("a"), text("b", cache_control=MARK)]),
            user([text("a"), text("b", cache_control=MARK)]),
            id="list: the last part",
        ),
        pytest.param(
            user([text("a"), text(""), "loose"]),
            user([text("a", cache_control=MARK), text(""), "loose"]),
            user([text("a", cache_control=MARK), text(""), "loose"]),
            id="list: the last part that can carry one",
        ),
        pytest.param(
            {"role": "assistant", "content": [text("a"), THOUGHT]},
            {"role": "assistant", "content": [text("a", cache_control=MARK), THOUGHT]},
            {"role": "assistant", "content": [text("a", cache_control=MARK), THOUGHT]},
            id="thinking cannot carry one",
        ),
    ],
)
def test_where_the_marker_goes(message: dict[str, Any], native: dict[str, Any], elsewhere: dict[str, Any]) -> None:
    assert apply_anthropic_cache_control([message], native_anthropic=True) == [native]
    assert apply_anthropic_cache_control([message]) == [elsewhere]


def marked_places(messages: list[Any], **options: Any) -> list[int]:
    return [at for at, message in enumerate(apply_anthropic_cache_control(messages, **options)) if markers(message)]


def test_the_system_prompt_and_the_last_three_are_marked() -> None:
    messages = [SYSTEM, *(user(str(n)) for n in range(6))]
    assert marked_places(messages) == [0, 4, 5, 6]


def test_without_a_system_prompt_the_last_four_are_marked() -> None:
    assert marked_places([user(str(n)) for n in range(6)]) == [2, 3, 4, 5]


def test_a_system_message_that_comes_later_is_none_of_the_three() -> None:
    messages = [SYSTEM, user("1"), user("2"), user("3"), {"role": "system", "content": "note"}, user("4")]
    assert marked_places(messages) == [0, 2, 3, 5]


@pytest.mark.parametrize(("messages", "places"), [([], []), ([SYSTEM], [0]), ([user("1")], [0])])
def test_short_lists(messages: list[Any], places: list[int]) -> None:
    assert marked_places(messages) == places


def test_an_hour_is_said_in_the_marker() -> None:
    assert apply_anthropic_cache_control([user("hi")], cache_ttl="1h") == [user([text("hi", cache_control=HOUR)])]


@pytest.mark.parametrize("ttl", ["2h", "", "5 m", "300"])
def test_another_lifetime_is_a_configuration_error(ttl: str) -> None:
    with pytest.raises(ConfigError, match="Use 5m or 1h"):
        apply_anthropic_cache_control([user("hi")], cache_ttl=ttl)


SIX = [
    {**SYSTEM, "cache_control": HOUR},
    user([text("a", cache_control=MARK), text("b", cache_control=MARK)]),
    {"role": "assistant", "content": None, "tool_calls": [{**CALL, "cache_control": MARK}]},
    {"role": "tool", "tool_call_id": "c", "content": [text("out", cache_control=MARK)]},
    {"role": "assistant", "content": "done"},
    user("more"),
    user([{"type": "tool_result", "tool_use_id": "c", "content": [text("deep", cache_control=MARK)]}]),
]


def test_six_markers_become_four() -> None:
    assert markers(SIX) == 6
    marked = apply_anthropic_cache_control(SIX, native_anthropic=True)
    assert [markers(message) for message in marked] == [1, 0, 0, 0, 1, 1, 1]


def test_a_payload_that_is_called_like_a_marker_stays() -> None:
    asked = {"type": "tool_use", "id": "c", "name": "f", "input": {"cache_control": "no-store"}}
    message = {"role": "assistant", "content": [text("a", cache_control=MARK), asked]}
    assert without_markers([message]) == [{"role": "assistant", "content": [text("a"), asked]}]


def check(apply: Apply, messages: list[Any], *, native: bool) -> None:
    """Check what holds for any input: at most four, the input as it was, unmarked messages the same objects."""
    before = picture(messages)
    marked = apply(messages, native_anthropic=native)
    assert same_picture(picture(messages), before), "the input was changed"
    assert len(marked) == len(messages)
    assert sum(map(markers, marked)) <= 4, "too many markers"
    for old, new in zip(messages, marked, strict=True):
        assert markers(old) or markers(new) or new is old, "an unmarked message was copied"


@pytest.mark.slow
@settings(deadline=None)
@given(valid_conversations() | broken_conversations() | st.lists(garbage_messages(), max_size=8), st.booleans())
def test_any_list_has_at_most_four_and_stays_as_it_was(messages: list[Any], native: bool) -> None:
    check(apply_anthropic_cache_control, messages, native=native)


def keeps_old_markers(messages: list[Any], native_anthropic: bool = False) -> list[Any]:
    marked = apply_anthropic_cache_control(messages, native_anthropic=native_anthropic)
    return [new if markers(new) else old for old, new in zip(messages, marked, strict=True)]


def copies_everything(messages: list[Any], native_anthropic: bool = False) -> list[Any]:
    return apply_anthropic_cache_control(deepcopy(messages), native_anthropic=native_anthropic)


def writes_into_the_input(messages: list[Any], native_anthropic: bool = False) -> list[Any]:
    messages[:] = apply_anthropic_cache_control(messages, native_anthropic=native_anthropic)
    return messages


@pytest.mark.parametrize(
    ("apply", "complaint"),
    [
        (keeps_old_markers, "too many"),
        (copies_everything, "was copied"),
        (writes_into_the_input, "was changed"),
    ],
)
def test_the_check_catches(apply: Apply, complaint: str) -> None:
    messages = deepcopy([*SIX[:4], user("unmarked"), *SIX[4:]])
    with pytest.raises(AssertionError, match=complaint):
        check(apply, messages, native=True)


@settings(deadline=None)
@given(valid_conversations(end="user"))
def test_on_anthropics_wire_there_are_at_most_four(messages: list[Any]) -> None:
    request, _ = to_anthropic(apply_anthropic_cache_control(messages, native_anthropic=True))
    assert markers(request) <= 4


@settings(deadline=None)
@given(valid_conversations(end="user"))
def test_marking_says_nothing_new(messages: list[Any]) -> None:
    """What goes to Anthropic is the same with the markers taken out again: the cached prefix stays."""
    marked, _ = to_anthropic(apply_anthropic_cache_control(messages, native_anthropic=True))
    plain, _ = to_anthropic(without_markers(messages))
    assert unmarked(marked) == unmarked(plain)


def unmarked(request: dict[str, Any]) -> list[Any]:
    """Return a request's blocks without markers; text alone is one block."""
    rows = [("system", request.get("system", [])), *((m["role"], m["content"]) for m in request["messages"])]
    return [
        (role, [{key: value for key, value in block.items() if key != "cache_control"} for block in blocks])
        for role, blocks in ((role, [text(held)] if isinstance(held, str) else held) for role, held in rows)
    ]
