"""A payload that is shortened names what is left out of the original, however often it was shortened before."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings, strategies as st

from leporello.summary import payloads
from leporello.summary.payloads import FOLDED, shorten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leporello.messages import Message

NAMED = re.compile(r"\n\[\.\.\. ([\d,]+) characters [^\]]+ \.\.\.\]\n")
TEXTS = st.text(alphabet=st.sampled_from("abc \n[].é世"), max_size=3_000)
LIMITS = st.lists(st.integers(2, 2_000), min_size=1, max_size=5)
WHERE = st.sampled_from(
    [FOLDED, "kept as m12", "kept as m12; names in them:\n- a.py — read: loadRows\n- sum_rows (table)"]
)


def in_every_place(text: str) -> Message:
    arguments = json.dumps({"text": text, "deep": [{"text": text}]}, ensure_ascii=False)
    return {
        "role": "assistant",
        "content": [{"type": "text", "text": text}],
        "reasoning_content": text,
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "write", "arguments": arguments}}],
    }


def texts_of(message: Message) -> list[str]:
    arguments: dict[str, Any] = json.loads(message["tool_calls"][0]["function"]["arguments"])
    return [
        message["content"][0]["text"],
        message["reasoning_content"],
        arguments["text"],
        arguments["deep"][0]["text"],
    ]


def check(text: str, limits: Sequence[int], where: str = FOLDED) -> None:
    """Shorten again and again: what is shown and what is named together are the original."""
    message = in_every_place(text)
    for limit in limits:
        message = shorten(message, limit, where=where)
        for shown in texts_of(message):
            *_, named = [(0, "")] + [(int(m[1].replace(",", "")), m[0]) for m in NAMED.finditer(shown)]
            assert len(shown) - len(named[1]) + named[0] == len(text)
            first, _, last = shown.partition(named[1]) if named[1] else (shown, "", "")
            assert text.startswith(first)
            assert text.endswith(last)
        assert shorten(message, limit, where=where) == message


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(TEXTS, LIMITS, WHERE)
def test_what_is_named_is_what_is_left_out_of_the_original(text: str, limits: list[int], where: str) -> None:
    check(text, limits, where)


def test_a_message_that_is_short_enough_is_the_same_object() -> None:
    message = in_every_place("short")
    assert shorten(message, 500) is message
    long: Message = {"role": "tool", "tool_call_id": "c", "content": "x" * 5_000}
    once = shorten(long, 1_000)
    assert shorten(once, 1_000) is once


def test_many_marks_that_never_end_take_no_long() -> None:
    """The suite's time limit is the check: anything quadratic takes minutes here."""
    shorten({"role": "tool", "content": "\n[... 1 characters of text" * 40_000}, 1_000)


def test_the_check_catches_a_count_of_the_last_time_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted defect: a text that was shortened before is measured as if it were the original."""

    def careless(text: str, limit: int, where: str) -> str:
        if len(text) <= limit:
            return text
        ends = limit // 2
        return f"{text[:ends]}\n[... {len(text) - 2 * ends:,} characters {where} ...]\n{text[len(text) - ends :]}"

    monkeypatch.setattr(payloads, "_shorter", careless)
    with pytest.raises(AssertionError):
        check("x" * 3_000, [1_000, 400])
