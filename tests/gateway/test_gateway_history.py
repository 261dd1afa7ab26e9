"""Hashes: a history is recognised however a client writes it down again, and no other is taken for it."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given, strategies as st

from leporello.gateway.history import extended, parse
from leporello.gateway.sse import Events
from leporello.messages import Message, from_anthropic, to_anthropic

if TYPE_CHECKING:
    from collections.abc import Callable


def hashes(messages: list[Message]) -> list[bytes]:
    return parse(messages).hashes


ANSWER: Message = {"role": "assistant", "content": "It is noon."}
CALL: Message = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"a": 1, "b": [2]}'}}],
}


def call(arguments: str, **fields: Any) -> Message:
    function = {"name": "look", "arguments": arguments}
    calls = [{"id": "c1", "type": "function", "function": function}]
    return cast("Message", {"role": "assistant", "tool_calls": calls, **fields})


def image(detail: str) -> Message:
    part = {"type": "image_url", "image_url": {"url": "data:a", "detail": detail}}
    return {"role": "user", "content": [part]}


@pytest.mark.parametrize(
    ("sent", "echoed"),
    [
        (ANSWER, {**ANSWER, "refusal": None, "annotations": [], "audio": None}),
        (ANSWER, {**ANSWER, "content": [{"type": "text", "text": "It is noon."}]}),
        (ANSWER, {**ANSWER, "content": [{"type": "text", "text": "It is noon.", "cache_control": {"type": "x"}}]}),
        (ANSWER, {**ANSWER, "content": "It is noon.\n"}),
        (ANSWER, {**ANSWER, "tool_calls": []}),
        (ANSWER, {**ANSWER, "reasoning_content": "let me see"}),
        (CALL, call('{"b":[2],"a":1}', content="")),
        (CALL, {**CALL, "tool_calls": [{**CALL["tool_calls"][0], "id": "call_1"}]}),
        (CALL, {**CALL, "tool_calls": [{"type": "function", "function": CALL["tool_calls"][0]["function"]}]}),
        (
            {"role": "tool", "tool_call_id": "c1", "content": "seen"},
            {"role": "tool", "tool_call_id": "call_1", "content": "seen\n"},
        ),
        ({"role": "user", "content": "hi"}, {"role": "user", "content": "hi\n"}),
        (image("auto"), image("high")),
        (CALL, call('{"a": 1, "b": [2]}', content=None, refusal=None)),
        (
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "yes"}]},
            {"role": "assistant", "content": "yes"},
        ),
    ],
)
def test_an_answer_is_known_however_it_comes_back(sent: Message, echoed: Message) -> None:
    assert hashes([sent]) == hashes([echoed])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([ANSWER], [{**ANSWER, "role": "user"}]),
        ([ANSWER], [{**ANSWER, "content": "It is late."}]),
        ([CALL], [call('{"a": 2, "b": [2]}')]),
        ([CALL], [{**CALL, "tool_calls": []}]),
        (
            [{"role": "tool", "tool_call_id": "1", "content": "x"}],
            [{"role": "tool", "tool_call_id": "1", "content": "y"}],
        ),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:a"}}]}],
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:b"}}]}],
        ),
        ([ANSWER, ANSWER], [ANSWER]),
    ],
)
def test_what_says_something_else_has_another_hash(one: list[Message], other: list[Message]) -> None:
    assert hashes(one)[-1] != hashes(other)[-1]


@pytest.mark.parametrize("other", [{"owner": "bob"}, {"dialect": "anthropic"}, {"name": "b"}])
def test_equal_words_of_another_client_have_other_hashes(other: dict[str, str]) -> None:
    client = {"owner": "ada", "dialect": "openai", "name": "a"}
    one, second = parse([ANSWER], **client), parse([ANSWER], **{**client, **other})
    assert one.hashes != second.hashes
    assert one.alone(ANSWER) != second.alone(ANSWER)
    assert one.hashes == parse([ANSWER], **client).hashes


TALKS = st.lists(
    st.tuples(st.sampled_from(["user", "assistant", "system"]), st.text(alphabet="ab \n", max_size=3)), max_size=8
).map(lambda said: [{"role": role, "content": text} for role, text in said])


def spoken(messages: list[Message]) -> list[tuple[str, str]]:
    said = [(message["role"], message["content"]) for message in messages if message["role"] != "system"]
    return [(role, text.strip()) for role, text in said]


def check_hashes(of: Callable[[list[Message]], list[bytes]], one: Any, other: Any) -> None:
    """Two hashes are equal exactly when everything that was said up to there is equal."""
    for count, hash_ in enumerate(of(one), 1):
        for number, second in enumerate(of(other), 1):
            same = spoken(one)[:count] == spoken(other)[:number]
            assert (hash_ == second) is same


@given(TALKS, TALKS)
def test_hashes_are_equal_when_histories_are(one: Any, other: Any) -> None:
    check_hashes(hashes, one, other)


def test_a_hash_of_the_last_message_alone_would_be_noticed() -> None:
    talks: tuple[list[Message], list[Message]] = (
        [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
        [{"role": "user", "content": "b"}],
    )
    with pytest.raises(AssertionError):
        check_hashes(lambda messages: [extended(b"", message["content"].encode()) for message in messages], *talks)


@given(TALKS)
def test_what_is_new_stands_behind_what_is_known(talk: Any) -> None:
    history = parse(talk)
    for count in range(len(history.hashes) + 1):
        assert spoken(history.after(count)) == spoken(talk)[count:]


def test_the_way_to_anthropic_and_back_keeps_the_hashes() -> None:
    talk: list[Message] = [
        {"role": "user", "content": "look"},
        CALL,
        {"role": "tool", "tool_call_id": "c1", "content": "seen"},
        ANSWER,
    ]
    back = from_anthropic(to_anthropic(talk)[0])
    assert hashes(back) == hashes(talk)


STREAM = b'data: {"a": 1}\n\n: comment\r\n\r\nevent: x\ndata: {"b":\ndata: 2}\n\ndata: [DONE]\n\ndata: {"c"'


def check_events(feed: Callable[[list[bytes]], tuple[list[Any], bytes]], cuts: list[int]) -> None:
    """However a stream is cut, the same events come out, and all of its bytes."""
    places = sorted({0, len(STREAM), *cuts})
    events, rest = feed([STREAM[start:stop] for start, stop in pairwise(places)])
    assert [event.data for event in events] == [{"a": 1}, None, {"b": 2}, None]
    assert [event.last for event in events] == [False, False, False, True]
    assert b"".join(event.raw for event in events) + rest == STREAM


def _fed(chunks: list[bytes]) -> tuple[list[Any], bytes]:
    events = Events()
    return [event for chunk in chunks for event in events.feed(chunk)], events.rest


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_a_stream_may_be_cut_anywhere(cuts: list[int]) -> None:
    check_events(_fed, cuts)


def test_a_reader_that_forgets_what_is_incomplete_would_be_noticed() -> None:
    with pytest.raises(AssertionError):
        check_events(lambda chunks: ([event for chunk in chunks for event in Events().feed(chunk)], b""), [5])
