"""Wrong arguments are answered with what is right; what a model plainly meant is taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from inline_snapshot import snapshot

from leporello.agent.tools import Action, Outcome, Tool, Toolbox, Workspace, default_tools, simple_tool
from leporello.agent.tools.arguments import checked
from leporello.errors import ToolError
from leporello.messages import ToolCall, tool_calls_of

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


def _raw(name: str, arguments: str) -> ToolCall:
    (call,) = tool_calls_of({"tool_calls": [{"id": "c", "function": {"name": name, "arguments": arguments}}]})
    return call


def test_arguments_that_are_no_json_are_told_so(toolbox: Toolbox) -> None:
    """They must not be taken for no arguments at all."""
    for raw, told in [
        ('{"path": "a', "are no JSON: Unterminated string"),
        ("[1]", "must be a JSON object"),
        ("null", "must be a JSON object"),
        ("[" * 100_000, "are no JSON"),
    ]:
        answer = toolbox.prepare(_raw("read_file", raw))
        assert isinstance(answer, Outcome)
        assert answer.failed
        assert told in answer.text


def test_an_unknown_tool_is_answered_with_the_known_ones(toolbox: Toolbox) -> None:
    answer = toolbox.prepare(_raw("rm\x1b[2J", "{}"))
    assert answer == Outcome(
        text="Error: there is no tool 'rm␛[2J'. These exist: terminal, read_file, write_file, search_files", failed=True
    )


def test_the_schemas_are_always_the_same(toolbox: Toolbox) -> None:
    """The list stands at the beginning of every request: a change would cost the provider's cache."""
    assert [schema["function"]["name"] for schema in toolbox.schemas()] == snapshot(
        ["terminal", "read_file", "write_file", "search_files"]
    )
    assert toolbox.schemas() == toolbox.schemas()


@given(name=st.sampled_from(["terminal", "read_file", "write_file", "search_files"]), given=JSON)
def test_no_arguments_raise(name: str, given: Any) -> None:
    box = Toolbox(default_tools(Workspace(Path.cwd()), environ={}), environ={})
    arguments = given if isinstance(given, dict) else {"path": given, "command": given, "pattern": given}
    box.prepare(ToolCall(id="c", name=name, arguments=arguments, raw="{}"))


def test_a_value_of_any_depth_is_refused_in_one_line() -> None:
    value: Any = 1
    for _ in range(100_000):
        value = [value]
    assert problem({"path": value}) == snapshot("path must be a text, not [[[[[[[...]]]]]]]")


def test_a_tool_that_cannot_prepare_a_call_is_an_answer_too() -> None:
    def prepare(path: str) -> Action:
        raise ValueError(f"nothing about {path}")

    tool = Tool(name="own", description="", parameters={"properties": {"path": {"type": "string"}}}, prepare=prepare)
    outcome = Toolbox([tool]).prepare(ToolCall(id="c", name="own", arguments={"path": "x"}, raw="{}"))
    assert outcome == Outcome(text="Error: ValueError: nothing about x", failed=True)


def test_whoever_is_asked_about_an_own_tool_sees_every_argument() -> None:
    parameters = {"type": "object", "properties": {"note": {"type": "string"}}}
    tool = simple_tool("own", "", lambda note: note, parameters, asks=True)
    action = tool.action({"note": "a" * 500 + "\u202eend"})
    assert action.detail == "note='" + "a" * 500 + r"\u202eend'"
