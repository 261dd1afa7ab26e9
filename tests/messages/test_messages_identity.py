"""fingerprint() and without_private(): what a message says, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from inline_snapshot import snapshot

from leporello.messages import fingerprint, without_private
from leporello.testing.strategies import garbage_messages, messages

if TYPE_CHECKING:
    from collections.abc import Callable

MARK = {"type": "ephemeral"}
HELLO = {"role": "user", "content": "hello"}

SAME: list[tuple[Any, Any]] = [
    (HELLO, {"content": "hello", "role": "user"}),
    (HELLO, {**HELLO, "cache_control": MARK}),
    (HELLO, {**HELLO, "_note": {"seen"}}),
    (HELLO, {"role": "user", "content": [{"type": "text", "text": "hello"}]}),
    (HELLO, {"role": "user", "content": [{"type": "text", "text": "hello", "cache_control": MARK, "_n": 1}]}),
    ({"role": "x", "a": {"b": [{"c": 1, "_d": 2}]}}, {"role": "x", "a": {"b": [{"cache_control": MARK, "c": 1}]}}),
]

DIFFERENT: list[tuple[Any, Any]] = [
    (HELLO, {"role": "assistant", "content": "hello"}),
    (HELLO, {"role": "user", "content": "Hello"}),
    (HELLO, {"role": "user", "content": "hello\x00"}),
    (HELLO, {**HELLO, "name": "Ada"}),
    (HELLO, {"role": "user", "content": [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]}),
    (HELLO, {"role": "user", "content": [{"type": "text", "text": "hello", "lang": "en"}]}),
    ({"content": "\ud83d"}, {"content": "\ud83e"}),
    ({"content": "\ud83d\ude42"}, {"content": "🙂"}),
    ({"content": "\ud83d"}, {"content": "\\ud83d"}),
    ({"content": None}, {}),
    ({"content": ""}, {"content": []}),
    ({"n": 1}, {"n": "1"}),
    ({"n": True}, {"n": 1}),
    ({"n": b"x"}, {"n": "x"}),
    ({"e\u0301": 1}, {"é": 1}),
]


def check(function: Callable[[Any], str]) -> None:
    assert all(function(one) == function(other) for one, other in SAME)
    assert all(function(one) != function(other) for one, other in DIFFERENT)


@pytest.mark.parametrize(("one", "other"), SAME)
def test_what_was_not_said_makes_no_difference(one: Any, other: Any) -> None:
    assert fingerprint(one) == fingerprint(other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_everything_else_does(one: Any, other: Any) -> None:
    assert fingerprint(one) != fingerprint(other)


@pytest.mark.parametrize(
    "planted", [lambda m: str(sorted(m)), repr, lambda m: fingerprint(m)[:0], lambda m: fingerprint({**m, "role": "x"})]
)
def test_a_planted_defect_is_noticed(planted: Callable[[Any], str]) -> None:
    with pytest.raises(AssertionError):
        check(planted)


@pytest.mark.slow
def test_a_fingerprint_is_the_same_in_every_process() -> None:
    code = (
        "from leporello.messages import fingerprint as f; print(f({'role': 'user', 'content': 'hello', 'x': {3, 1}}))"
    )
    runs = {subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout for _ in range(2)}
    assert runs == {fingerprint({**HELLO, "x": {1, 3}}).encode() + b"\n"}
    assert fingerprint(HELLO) == snapshot("484b0dac5fa5fb2005ed87e696e530d8")


@pytest.mark.slow
@given(garbage_messages())
@settings(max_examples=150, deadline=None)
def test_anything_has_a_fingerprint(message: Any) -> None:
    assert len(fingerprint(message)) == 32


def test_depth_is_no_obstacle() -> None:
    deep: Any = "bottom"
    for _ in range(10_000):
        deep = {"a": deep}
    loop: list[Any] = []
    loop.append(loop)
    assert fingerprint({**HELLO, "deep": deep}) == fingerprint({**HELLO, "deep": deep, "cache_control": MARK})
    assert fingerprint({"loop": loop}) != fingerprint({"deep": deep})


@given(messages())
@settings(max_examples=100, deadline=None)
def test_the_wire_form_has_no_private_keys_and_markers_and_says_the_same(message: dict[str, Any]) -> None:
    before = deepcopy(message)
    wire = without_private(message)
    assert message == before
    assert '"_' not in repr(wire).replace("'", '"')
    assert "cache_control" not in repr(wire)
    assert fingerprint(wire) == fingerprint(message)
    assert without_private(wire) is wire
