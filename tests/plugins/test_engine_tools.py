"""The tools of engines: put into the list, and answered."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from leporello.compressor import ContextCompressor
from leporello.errors import PluginWarning
from leporello.plugins import dispatch, merge_tools

if TYPE_CHECKING:
    from leporello.messages.types import Message

BARE = {"name": "grep", "description": "Searches.", "parameters": {"type": "object", "properties": {}}}
WRAPPED = {"type": "function", "function": {"name": "expand", "parameters": {"type": "object", "properties": {}}}}
MINE = {"type": "function", "function": {"name": "mine", "parameters": {}}}


class Offering(ContextCompressor):
    """An engine with tools."""

    schemas: tuple[Any, ...] = ()

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        return list(self.schemas)

    def handle_tool_call(self, name: str, args: dict[str, Any], **kwargs: Any) -> str:
        if name == "fail":
            raise LookupError("no such page")
        return json.dumps({"name": name, "args": args, "messages": len(kwargs["messages"])})


def offering(*schemas: Any) -> Offering:
    engine = Offering()
    engine.schemas = schemas
    return engine


def test_bare_and_wrapped_schemas_stand_behind_the_callers_tools() -> None:
    tools = [MINE]
    merged, owned = merge_tools(tools, offering(BARE, WRAPPED))
    assert merged == [MINE, {"type": "function", "function": BARE}, WRAPPED]
    assert owned == {"grep", "expand"}
    assert tools == [MINE], "the caller's list stays as it was"


def test_without_tools_there_are_none() -> None:
    assert merge_tools(None, offering()) == ([], frozenset())


@pytest.mark.parametrize("nameless", [{"description": "?"}, {"name": ""}, {"name": 7}, {"function": {}}, "grep", None])
def test_a_nameless_tool_is_left_out_with_a_warning(nameless: Any) -> None:
    with pytest.warns(PluginWarning, match="a tool without a name"):
        merged, owned = merge_tools([MINE], offering(nameless, BARE))
    assert len(merged) == 2
    assert owned == {"grep"}


@pytest.mark.parametrize("taken", [MINE, {"name": "mine", "input_schema": {}}])
def test_a_name_that_is_taken_stays_with_its_owner(taken: dict[str, Any]) -> None:
    with pytest.warns(PluginWarning, match="'mine', but there is one of that name already"):
        merged, owned = merge_tools([taken], offering({"name": "mine"}))
    assert (merged, owned) == ([taken], frozenset())


def test_an_engine_cannot_offer_a_name_twice() -> None:
    with pytest.warns(PluginWarning):
        merged, _ = merge_tools([], offering(BARE, BARE))
    assert len(merged) == 1


def test_a_call_reaches_the_engine_with_the_live_messages() -> None:
    messages: list[Message] = [{"role": "user", "content": "hello"}]
    assert json.loads(dispatch(offering(), "grep", {"q": 1}, messages)) == {
        "name": "grep",
        "args": {"q": 1},
        "messages": 1,
    }


def test_an_exception_becomes_an_error_that_the_model_can_read() -> None:
    assert json.loads(dispatch(offering(), "fail", {}, [])) == {
        "error": "Tool 'fail' failed: LookupError: no such page"
    }


def test_an_engine_of_an_older_host_that_takes_no_messages() -> None:
    class Older(ContextCompressor):
        def handle_tool_call(self, name: str, args: dict[str, Any]) -> Any:  # type: ignore[override]
            return {"called": name, "with": args}

    assert json.loads(dispatch(Older(), "grep", {}, [])) == {"called": "grep", "with": {}}


def test_an_unknown_tool_is_an_error_json() -> None:
    assert json.loads(dispatch(ContextCompressor(), "nothing", {}, [])) == {"error": "Unknown tool: nothing"}
