"""Every JSON value comes back equal and with its keys in order; anything else is refused with its path."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from leporello.errors import MessageError
from leporello.messages.as_json import MAX_DEPTH
from leporello.store import open_store
from leporello.store.codec import LONG, decode, encode, is_canonical, next_chain, verbatim
from leporello.testing.strategies import json_values

TEXTS = st.text(st.characters(codec=None), max_size=20)  # lone surrogates and NUL too
LONG_TEXTS = st.builds(lambda text, n: (text or "x") * (LONG // len(text or "x") + n), TEXTS, st.integers(0, 2))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS | LONG_TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
MESSAGES = st.dictionaries(TEXTS, VALUES, max_size=4)

TRICKY: list[dict[str, Any]] = [
    {},
    {"role": "user", "content": "NUL \0 and half \ud83d of a \udc00 pair"},
    {"role": "user", "content": 10**4000, "x": -(2**200), "f": 1e308, "g": 5e-324, "z": -0.0},
    {"content": "", "refs": [["00" * 16, "content"]], "$payload": "x" * LONG},
    {"b": 1, "a": {"d": 1, "c": 2}},
    {"role": "user", "content": [{"type": "text", "text": "汉" * LONG}, {"type": "text", "text": "汉" * LONG}]},
    {"k" * (LONG + 1): "a long key", "\ud800": 1},
    {"0": {"0": "y" * LONG}, "list": [["z" * LONG]]},
    {"\ud800\udc00": "a key of two halves", "\U00010000": "beside the same character as one"},
    {"\ud800\udc00": {"content": "z" * LONG, "n": ["\ud83d\ude42", "\ud83d"]}},
]


def assert_exact(message: dict[str, Any]) -> None:
    encoded = encode(message)
    back = decode(encoded.body, encoded.refs, encoded.payloads)
    assert back == message
    assert verbatim(back) == verbatim(message) == encoded.verbatim  # the order of keys, -0.0 and 1 == True too
    assert is_canonical(encoded.body)


@pytest.mark.parametrize("message", TRICKY, ids=range(len(TRICKY)))
def test_tricky_messages_come_back(message: dict[str, Any]) -> None:
    assert_exact(message)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(MESSAGES)
def test_every_json_object_comes_back(message: dict[str, Any]) -> None:
    assert_exact(message)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.lists(st.builds(lambda extra: {"role": "user", "content": "x", **extra}, MESSAGES), max_size=4))
def test_every_json_object_comes_back_from_the_store(messages: list[Any]) -> None:
    messages = [{**m, "role": "user"} for m in messages]
    store = open_store(":memory:")
    ids = store.append("c", messages)
    found = store.get(ids)
    assert [verbatim(found[id_].message) for id_ in ids] == [verbatim(m) for m in messages]


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"content": (1, 2)}, "messages[0].content"),
        ({"content": [{"x": {1: 2}}]}, "messages[0].content[0].x"),
        ({"content": float("nan")}, "messages[0].content"),
        ({"content": b"bytes"}, "messages[0].content"),
        ({"meta": {"a": [1, {2, 3}]}}, "messages[0].meta.a[1]"),
        ({"content": 10**5000}, "messages[0].content"),
        ("just text", "messages[0]"),
        (None, "messages[0]"),
    ],
)
def test_what_is_not_json_is_refused_with_its_path(value: Any, path: str) -> None:
    store = open_store(":memory:")
    with pytest.raises(MessageError) as caught:
        store.append("c", [value])
    assert caught.value.path == path
    assert list(store.conversations()) == []


def test_a_value_that_holds_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(MessageError, match=f"more than {MAX_DEPTH} levels"):
        encode({"content": loop})


def test_a_refused_list_stores_nothing() -> None:
    store = open_store(":memory:")
    with pytest.raises(MessageError, match=r"messages\[1\]"):
        store.ingest("c", [{"role": "user", "content": "good"}, {"role": "user", "content": {1}}])
    assert list(store.messages("c")) == []


@pytest.mark.slow
@given(json_values(), json_values())
def test_the_chain_tells_any_two_messages_apart(one: Any, other: Any) -> None:
    a, b = verbatim({"content": one}), verbatim({"content": other})
    assert (next_chain(b"", a) == next_chain(b"", b)) == (json.dumps(one) == json.dumps(other))


def test_long_texts_are_kept_once_and_compressed() -> None:
    store = open_store(":memory:")
    text = "a long and repetitive output\n" * 1000
    store.append("c", [{"role": "user", "content": text}, {"role": "assistant", "content": text}])
    with store._db.read() as connection:  # type: ignore[attr-defined]
        rows = connection.execute("SELECT uses, length(data) FROM payloads").fetchall()
    assert [uses for uses, _ in rows] == [2]
    assert rows[0][1] < len(text) / 10


def test_the_check_of_exactness_catches_a_lossy_codec() -> None:
    """Planted defect: a codec that sorts keys, and one that turns a tuple into a list."""
    message = {"b": 1, "a": 2}
    assert verbatim(json.loads(json.dumps(message, sort_keys=True))) != verbatim(message)
    with pytest.raises(MessageError):
        assert_exact({"content": (1,)})


def test_both_halves_of_a_surrogate_pair_stay_two_characters() -> None:
    message = {"role": "user", "content": "\ud83d\ude42", "parts": [{"text": "🙂 and \ude42\ud83d"}]}
    encoded = encode(message)
    assert decode(encoded.body, encoded.refs, encoded.payloads) == message
    assert len(message["content"]) == 2
