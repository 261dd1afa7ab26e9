"""Hooks and tools of general plugins in the agent: called with what a turn knows, and never the end of one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.fixtures.plugins import Plugins

from leporello.agent import open_agent
from leporello.errors import PluginWarning
from leporello.messages import text_of
from leporello.testing.model_server import ModelServer, Step, Use

if TYPE_CHECKING:
    from pathlib import Path

    from leporello.agent import Agent

CALLS = """
import json, pathlib

LOG = pathlib.Path(__file__).parent / "calls.jsonl"


def noting(event, answer=None):
    def hook(**values):
        with LOG.open("a") as file:
            file.write(json.dumps([event, values]) + "\\n")
        return answer
    return hook


def tide(arguments, **more):
    return {"tide": "high", "at": arguments["harbour"]}


SCHEMA = {"name": "tide", "description": "The tide.", "parameters": {
    "type": "object", "properties": {"harbour": {"type": "string"}}, "required": ["harbour"]}}


def register(ctx):
    for event in ("on_session_start", "on_session_end", "post_llm_call", "post_tool_call"):
        ctx.register_hook(event, noting(event))
    ctx.register_hook("pre_llm_call", noting("pre_llm_call", {"context": "The wind is from the north."}))
    ctx.register_tool(name="tide", toolset="harbour", schema=SCHEMA, handler=tide)
"""
BLOCKS = """
    ctx.register_hook("pre_tool_call", lambda tool_name, args, **_: {"action": "block", "message": "no tools today"})
"""
FAILS = """
def register(ctx):
    ctx.register_hook("pre_llm_call", lambda: 1 / 0)
"""
QUOTES = """
def fail(user_message):
    raise ValueError(user_message)


def register(ctx):
    ctx.register_hook("pre_llm_call", fail)
"""
SAYS = """
def register(ctx):
    ctx.register_hook("kanban_task_created", print)
    ctx.register_tool(name="bare", handler=print)
    ctx.register_tool(name="high tide?", schema={"parameters": {}}, handler=print)
    ctx.register_skill("x", "y")
"""


@pytest.fixture
def server() -> Any:
    turn = [Step(tool_calls=[Use(name="tide", arguments={"harbour": "Sulina"})]), Step(text="It is high.")]
    with ModelServer([*turn, Step(text="Again.")]) as running:
        yield running


def agent(home: Path, server: ModelServer, code: str) -> Agent:
    Plugins(home).plugin("harbour", code)
    model = {"default": "m", "base_url": server.openai_url, "context_length": 50_000}
    return open_agent(
        "h", workspace=home, store=home / "h.db", config={"model": model, "plugins": {"enabled": ["harbour"]}}
    )


def test_hooks_are_called_and_the_tool_is_used(home: Path, server: ModelServer) -> None:
    with agent(home, server, CALLS) as opened:
        list(opened.ask("How is the tide?"))
        list(opened.ask("And now?"))
    log = (home / "plugins" / "harbour" / "calls.jsonl").read_text().splitlines()
    calls = [json.loads(line) for line in log]
    turn = ["pre_llm_call", "post_tool_call", "post_llm_call", "on_session_end"]
    assert [event for event, _ in calls] == ["on_session_start", *turn, turn[0], *turn[2:]]
    first, tool, answered, ended, second = (values for _, values in calls[1:6])
    assert (first["user_message"], first["is_first_turn"], first["session_id"]) == ("How is the tide?", True, "h")
    assert (second["is_first_turn"], len(second["conversation_history"])) == (False, 5)
    assert (tool["tool_name"], tool["args"]) == ("tide", {"harbour": "Sulina"})
    assert json.loads(tool["result"]) == {"tide": "high", "at": "Sulina"}
    assert (answered["assistant_response"], ended["completed"]) == ("It is high.", True)
    asked = text_of(server.requests[0].messages[-1])
    assert asked == "How is the tide?\n\nThe wind is from the north."
    assert "tide" in [tool["function"]["name"] for tool in server.requests[0].tools]


def test_a_hook_may_refuse_a_call(home: Path, server: ModelServer) -> None:
    with agent(home, server, CALLS + BLOCKS) as opened:
        list(opened.ask("How is the tide?"))
    assert "A plugin refused it: no tools today" in text_of(server.requests[1].messages[-1])


def test_a_hook_that_fails_is_told_and_the_turn_goes_on(home: Path, server: ModelServer) -> None:
    with agent(home, server, FAILS) as opened:
        with pytest.warns(PluginWarning, match=r"its hook pre_llm_call failed .* ZeroDivisionError"):
            list(opened.ask("How is the tide?"))
        list(opened.ask("And now?"))  # a second warning would be an error here
    assert text_of(server.requests[0].messages[-1]) == "How is the tide?"


def test_the_words_of_a_hook_that_fails_have_no_secret(home: Path, server: ModelServer) -> None:
    with agent(home, server, QUOTES) as opened, pytest.warns(PluginWarning) as told:
        list(opened.ask("Log in with PASSWORD=hunter2, please."))
    assert "ValueError: Log in with PASSWORD=[REDACTED:password], please." in str(told[0].message)


def test_what_is_never_called_is_said(home: Path, server: ModelServer) -> None:
    with pytest.warns(PluginWarning) as told:
        agent(home, server, SAYS).close()
    said = " | ".join(str(one.message) for one in told)
    assert "has a hook kanban_task_created, which is never called here: the events are on_session_end" in said
    assert "its tool bare has no schema with parameters: it is left out" in said
    assert "its tool high tide? has a name that providers refuse" in said
    assert "register_skill(), which does nothing here" in said


def test_nothing_of_a_plugin_that_is_not_enabled_runs(home: Path, server: ModelServer) -> None:
    Plugins(home).plugin("harbour", CALLS)
    model = {"default": "m", "base_url": server.openai_url, "context_length": 50_000}
    with open_agent("h", workspace=home, store=home / "h.db", config={"model": model}) as opened:
        list(opened.ask("How is the tide?"))
    assert not (home / "plugins" / "harbour" / "calls.jsonl").exists()
    assert "tide" not in [tool["function"]["name"] for tool in server.requests[0].tools]
