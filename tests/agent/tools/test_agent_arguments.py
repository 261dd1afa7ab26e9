"""A call that cannot be prepared is an answer that says what is right, never an exception."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from inline_snapshot import snapshot

from leporello.agent.tools import Action, Tool, Toolbox, ToolOutcome, Workspace, default_tools, simple_tool
from leporello.messages import ToolCall, tool_calls_of

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=30)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
    max_leaves=6,
)


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
        assert isinstance(answer, ToolOutcome)
        assert answer.failed
        assert told in answer.text


def test_an_unknown_tool_is_answered_with_the_known_ones(toolbox: Toolbox) -> None:
    answer = toolbox.prepare(_raw("rm\x1b[2J", "{}"))
    assert answer == ToolOutcome(
        text="Error: there is no tool 'rm␛[2J'. These exist: terminal, read_file, write_file, search_files", failed=True
    )


def test_the_schemas_are_always_the_same(toolbox: Toolbox) -> None:
    """The list stands at the beginning of every request: a change would cost the provider's cache."""
    assert [schema["function"]["name"] for schema in toolbox.schemas()] == snapshot(
        ["terminal", "read_file", "write_file", "search_files"]
    )
    assert toolbox.schemas() == toolbox.schemas()


@pytest.mark.slow
@given(name=st.sampled_from(["terminal", "read_file", "write_file", "search_files"]), given=JSON)
def test_no_arguments_raise(name: str, given: Any) -> None:
    box = Toolbox(default_tools(Workspace(Path.cwd()), environ={}), environ={})
    arguments = given if isinstance(given, dict) else {"path": given, "command": given, "pattern": given}
    box.prepare(ToolCall(id="c", name=name, arguments=arguments, raw="{}"))


def test_a_tool_that_cannot_prepare_a_call_is_an_answer_too() -> None:
    def prepare(path: str) -> Action:
        raise ValueError(f"nothing about {path}")

    tool = Tool(name="own", description="", parameters={"properties": {"path": {"type": "string"}}}, prepare=prepare)
    outcome = Toolbox([tool]).prepare(ToolCall(id="c", name="own", arguments={"path": "x"}, raw="{}"))
    assert outcome == ToolOutcome(text="Error: ValueError: nothing about x", failed=True)


def test_the_question_about_an_own_tool_shows_every_argument() -> None:
    parameters = {"type": "object", "properties": {"note": {"type": "string"}}}
    tool = simple_tool("own", "", lambda note: note, parameters, asks=True)
    action = tool.action({"note": "a" * 500 + "\u202eend"})
    assert action.detail == "note='" + "a" * 500 + r"\u202eend'"
