"""What counts in a message, what does not, and what no input can break."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings, strategies as st

from leporello.tokens import count_message, count_messages, count_request, count_text, count_tools
from leporello.tokens.estimate import LOW_DETAIL_TOKENS, MEDIA_TOKENS, PER_CALL, PER_ID, PER_MESSAGE, PER_REQUEST

if TYPE_CHECKING:
    from collections.abc import Callable

LONG = "the quick brown fox jumps over the lazy dog " * 20
BASE64 = "iVBORw0KGgoAAAANSUhEUgAA" * 5_000

any_text = st.text(st.characters(exclude_categories=()), max_size=200)
anything: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | any_text | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text | st.integers(), inner, max_size=4),
    max_leaves=12,
)
keys = st.sampled_from(
    ["role", "content", "type", "tool_calls", "function", "text", "image_url", "source", "id", "_x", "data"]
)
messages = st.dictionaries(keys, anything, max_size=5)


def test_nothing_is_nothing_and_anything_is_something() -> None:
    assert count_text("") == 0
    assert count_text("a") == 1
    assert count_text("\ud800") >= 1


@given(any_text, any_text)
def test_two_texts_together_count_about_as_much_as_apart(first: str, second: str) -> None:
    """Joining changes at most the one pair of neighbours where they meet, and the rounding."""
    together, apart = count_text(first + second), count_text(first) + count_text(second)
    assert abs(together - apart) <= 2


@given(any_text, any_text)
def test_a_longer_text_never_counts_less_beyond_rounding(text: str, more: str) -> None:
    assert count_text(text + more) >= count_text(text) - 1


@pytest.mark.parametrize("character", ["a", "é", "漢", "🎉", " ", "\n", "7", "{"])
@pytest.mark.parametrize("length", [1_023, 16_383, 16_384, 16_385, 40_000, 200_001])
def test_long_texts_are_weighed_in_pieces_without_a_seam(character: str, length: int) -> None:
    """Twice the text is twice the count, wherever pieces end."""
    once, twice = count_text(character * length), count_text(character * (2 * length))
    assert abs(twice - 2 * once) <= 2


@pytest.mark.slow
@given(st.lists(messages, max_size=5))
def test_messages_add_up(conversation: list[Any]) -> None:
    assert count_messages(conversation) == sum(map(count_message, conversation))


@pytest.mark.slow
@settings(max_examples=300)
@given(messages | anything)
def test_no_message_raises(message: Any) -> None:
    assert count_message(message) >= PER_MESSAGE
    assert count_request([message], [message], message) >= PER_REQUEST


@pytest.mark.slow
def test_broken_conversations_do_not_raise() -> None:
    loop: list[Any] = []
    loop.append(loop)
    deep: Any = "x"
    for _ in range(50_000):
        deep = [deep]
    broken: Any = [{"content": loop}, {"content": deep}, {"tool_calls": 5}, {"n": 10**5_000}, {"type": []}, 3, None]
    assert count_messages(broken) > 0
    assert count_messages(None) == count_messages(7) == 0  # type: ignore[arg-type]


def counts(field: dict[str, Any]) -> bool:
    """Tell whether a field adds about as much as its text."""
    added = count_message({"role": "assistant", **field}) - count_message({"role": "assistant"})
    return added >= 0.9 * count_text(LONG)


REACHES_THE_MODEL: list[dict[str, Any]] = [
    {"content": LONG},
    {"content": [{"type": "text", "text": LONG}]},
    {"content": [LONG]},
    {"content": [{"type": "thinking", "thinking": LONG, "signature": "s"}]},
    {"content": [{"type": "thinking", "thinking": "t", "signature": LONG}]},
    {"content": [{"type": "redacted_thinking", "data": LONG}]},
    {"content": [{"type": "refusal", "refusal": LONG}]},
    {"content": [{"type": "tool_use", "id": "1", "name": "f", "input": {"code": LONG}}]},
    {"content": [{"type": "tool_use", "id": "1", "name": "f", "input": {LONG: 1}}]},
    {"content": [{"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": LONG}]}]},
    {"content": [{"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": LONG}}]},
    {"content": {"unexpected": LONG}},
    {"thinking_blocks": [{"type": "thinking", "thinking": LONG, "signature": "s"}]},
    {"reasoning_content": LONG},
    {"name": LONG},
    {"tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": LONG}}]},
    {"tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": {"a": LONG}}}]},
    {"tool_calls": [{"id": "1", "type": "function", "function": {"name": LONG, "arguments": "{}"}}]},
    {"tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": {"_query": LONG}}}]},
    {"tool_calls": [{"id": "1", "function": {"name": "f", "arguments": {"mime_type": "text/plain", "data": LONG}}}]},
    {"function_call": {"name": "f", "arguments": LONG}},
    {"payload_of_a_new_provider": {"body": [LONG]}},
]


@pytest.mark.parametrize("field", REACHES_THE_MODEL)
def test_what_reaches_the_model_counts(field: dict[str, Any]) -> None:
    assert counts(field)


@pytest.mark.parametrize(
    "field",
    [
        {"_note": LONG},
        {"_note": {"deep": [LONG]}},
        {"cache_control": {"type": LONG}},
        {"timestamp": LONG},
        {"role": LONG},
    ],
)
def test_private_notes_and_markers_do_not_count(field: dict[str, Any]) -> None:
    assert not counts(field)


def test_the_check_rejects_a_counter_that_forgets_tool_calls() -> None:
    def forgetful(message: dict[str, Any]) -> int:
        return count_text(str(message.get("content") or ""))

    fields = [field for field in REACHES_THE_MODEL if "tool_calls" in field]
    assert fields
    assert all(forgetful({"role": "assistant", **field}) < count_text(LONG) for field in fields)


IMAGES: list[dict[str, Any]] = [
    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{BASE64}"}},
    {"type": "image_url", "image_url": f"data:image/png;base64,{BASE64}"},
    {"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}},
    {"type": "input_image", "image_url": f"data:image/png;base64,{BASE64}"},
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": BASE64}},
    {"type": "image", "source": {"type": "url", "url": "https://example.org/cat.png"}},
    {"type": "image", "data": BASE64, "mimeType": "image/png"},
    {"type": "input_audio", "input_audio": {"data": BASE64, "format": "wav"}},
    {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{BASE64}"}},
    {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": BASE64}},
    {"inline_data": {"mime_type": "image/png", "data": BASE64}},
]


def is_fixed(count: Callable[[dict[str, Any]], int], part: dict[str, Any]) -> bool:
    """Tell whether an image, sound or file counts as the fixed number, not as its encoding."""
    return abs(count({"role": "user", "content": [part]}) - PER_MESSAGE - MEDIA_TOKENS) <= 8


@pytest.mark.parametrize("part", IMAGES)
def test_media_count_as_a_fixed_number(part: dict[str, Any]) -> None:
    assert is_fixed(count_message, part)


def test_the_check_rejects_counting_the_encoding() -> None:
    assert not is_fixed(lambda message: count_text(str(message)), IMAGES[0])


def test_media_inside_a_tool_result_and_repeated_media() -> None:
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": [IMAGES[4]] * 3}]}
    assert count_message(result) == PER_MESSAGE + PER_ID + 3 * MEDIA_TOKENS
    low = {"type": "image_url", "image_url": {"url": "https://example.org/cat.png", "detail": "low"}}
    assert count_message({"role": "user", "content": [low]}) == PER_MESSAGE + LOW_DETAIL_TOKENS


def test_ids_and_calls_have_fixed_overheads() -> None:
    call = {"id": "x" * 500, "type": "function", "function": {"name": "", "arguments": ""}}
    assert count_message({"role": "assistant", "tool_calls": [call]}) == PER_MESSAGE + PER_CALL + PER_ID + 1
    assert count_message({"role": "tool", "tool_call_id": "x" * 500, "content": ""}) == PER_MESSAGE + PER_ID


def test_a_request_counts_messages_tools_and_system() -> None:
    talk = [{"role": "user", "content": "hello"}]
    tools = [{"type": "function", "function": {"name": "find", "description": LONG, "parameters": {"type": "object"}}}]
    assert count_tools(tools) >= count_text(LONG)
    assert count_tools([]) == count_tools(None) == 0
    alone = count_request(talk)
    assert alone == PER_REQUEST + count_messages(talk)
    assert count_request(talk, tools) == alone + count_tools(tools)
    blocks = [{"type": "text", "text": LONG, "cache_control": {"type": "ephemeral"}}]
    assert (
        count_request(talk, system=LONG) == count_request(talk, system=blocks) == alone + PER_MESSAGE + count_text(LONG)
    )


def test_counting_leaves_the_message_as_it_was() -> None:
    part = {"type": "text", "text": "a"}
    message = {"role": "user", "content": [part, part]}
    count_message(message)
    assert message == {"role": "user", "content": [part, part]}


@pytest.mark.parametrize(
    "text", ["w " * 2_500, " w" * 2_500, "[]" * 1_000, "x " * 2_500, "ab " * 1_000, "a\u0301" * 500]
)
def test_monotonous_text_is_not_counted_as_nothing(text: str) -> None:
    """Undercounting is the dangerous direction: at least a token a word, and one for eight bytes."""
    assert count_text(text) >= max(len(text.split()), len(text.encode()) // 8)
    assert count_messages([{"role": "user", "content": text}] * 3) >= 3 * len(text.split())
