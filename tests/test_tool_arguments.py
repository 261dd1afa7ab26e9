"""Wrong arguments are answered with what is right; what a model plainly meant is taken."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st
from inline_snapshot import snapshot

from leporello.errors import ToolError
from leporello.tool_arguments import checked

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "The file.", "minLength": 1, "maxLength": 20},
        "limit": {"type": "integer", "minimum": 1, "maximum": 9, "default": 5},
        "mode": {"type": "string", "enum": ["fast", "slow"]},
        "deep": {"type": "boolean", "default": False},
    },
    "required": ["path"],
    "additionalProperties": False,
}
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=30)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
    max_leaves=6,
)


def problem(given: Any) -> str:
    with pytest.raises(ToolError) as caught:
        checked("read", SCHEMA, given)
    return str(caught.value)


def test_defaults_are_filled_in() -> None:
    assert checked("read", SCHEMA, {"path": "a", "mode": None}) == {
        "path": "a",
        "limit": 5,
        "mode": None,
        "deep": False,
    }


def test_what_was_plainly_meant_is_taken() -> None:
    given = {"path": "a", "limit": "7", "deep": "True"}
    assert checked("read", SCHEMA, given) == {"path": "a", "limit": 7, "mode": None, "deep": True}
    assert checked("read", SCHEMA, {"path": "a", "limit": 3.0})["limit"] == 3


def test_every_problem_says_what_is_right() -> None:
    assert problem([]) == snapshot(
        "the arguments of read must be a JSON object: path (string), limit? (integer), mode? (string), deep? (boolean)."
    )
    assert problem({}) == snapshot(
        "read needs path: The file. It takes path (string), limit? (integer), mode? (string), deep? (boolean)."
    )
    assert problem({"path": ""}) == snapshot("path must not be empty")
    assert problem({"path": "  "}) == snapshot("path must not be empty")
    assert problem({"path": 3}) == snapshot("path must be a text, not 3")
    assert problem({"path": "a" * 21}) == snapshot("path has 21 characters; at most 20 are taken")
    assert problem({"path": "a", "limit": 0}) == snapshot("limit must be from 1 to 9, not 0")
    assert problem({"path": "a", "limit": True}) == snapshot("limit must be a whole number, not True")
    assert problem({"path": "a", "limit": "9" * 50}) == snapshot(
        "limit must be a whole number, not '99999999999999999999999999999999999999999999999999'"
    )
    assert problem({"path": "a", "limit": float("nan")}) == snapshot("limit must be a whole number, not nan")
    assert problem({"path": "a", "mode": "quick"}) == snapshot("mode must be one of fast, slow, not 'quick'")
    assert problem({"path": "a", "deep": "yes"}) == snapshot("deep must be true or false, not 'yes'")
    assert problem({"path": "a", "limits": 3}).startswith("read has no argument 'limits'; did you mean limit? It takes")


@given(st.one_of(JSON, st.fixed_dictionaries({}, optional=dict.fromkeys(SCHEMA["properties"], JSON))))
def test_whatever_comes_is_right_or_refused(given: Any) -> None:
    try:
        found = checked("read", SCHEMA, given)
    except ToolError:
        return
    assert isinstance(found["path"], str)
    assert 0 < len(found["path"]) <= 20
    assert found["limit"] in range(1, 10)
    assert found["mode"] in {"fast", "slow", None}
    assert isinstance(found["deep"], bool)


def test_a_value_of_any_depth_is_refused_in_one_line() -> None:
    value: Any = 1
    for _ in range(100_000):
        value = [value]
    assert problem({"path": value}) == snapshot("path must be a text, not a list")


def test_no_secret_is_repeated() -> None:
    secret = "sk-proj-" + "Zq8vLr3TnW5xYb7KcM2dHf9J" * 3
    for wrong in ({"path": "a", "mode": secret}, {"path": "a", "limit": secret}, {secret: 1}):
        assert secret[10:18] not in problem(wrong)
