"""A plugin's engine behind the gateway is called exactly as in any other host."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import openai
import pytest

from leporello.testing.lifecycle import FIRES_AT, LOG, SAID, SCRIPT, RecordingEngine, expected_calls
from leporello.testing.model_server import ModelServer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.fixtures.gateway import Gateway

PLUGIN = f"""
import sys

from leporello.testing.lifecycle import RecordingEngine


class Engine(RecordingEngine):
    def __init__(self, context_length=100_000):
        super().__init__(context_length, fires_at={set(FIRES_AT)})
        sys.modules["gateway_story"].made.append(self)
"""
READ_FILE: Any = {"type": "function", "function": {"name": "read_file", "parameters": {"type": "object"}}}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[RecordingEngine]:
    """The engines that the plugin has made."""
    story = ModuleType("gateway_story")
    engines: list[RecordingEngine] = []
    story.__dict__["made"] = engines
    monkeypatch.setitem(sys.modules, "gateway_story", story)
    return engines


@pytest.fixture
def plugin(tmp_path: Path) -> dict[str, Any]:
    """A configuration that chooses the plugin."""
    folder = tmp_path / "engines" / "recording"
    folder.mkdir(parents=True)
    (folder / "plugin.yaml").write_text(
        "name: recording\ndescription: Notes calls.\nversion: 1.0.0\n", encoding="utf-8"
    )
    (folder / "__init__.py").write_text(PLUGIN, encoding="utf-8")
    return {"context": {"engine": "recording"}, "plugins": {"paths": [str(folder.parent)]}, "windows": {"m": 100_000}}


def test_the_recorded_conversation(
    made: list[RecordingEngine], plugin: dict[str, Any], start: Callable[..., Gateway]
) -> None:
    """The drop-in client plays it, with a tool of its own beside the engine's."""
    with ModelServer(SCRIPT) as upstream:
        gateway = start(upstream, plugin, tools=True)
        headers = {"X-Leporello-Session": "story"}
        with openai.OpenAI(base_url=f"{gateway.address}/v1", api_key="x", default_headers=headers) as client:
            talk: list[Any] = []
            for said in SAID:
                talk.append({"role": "user", "content": said})
                while talk[-1]["role"] != "assistant" or "tool_calls" in talk[-1]:
                    answer = client.chat.completions.create(model="m", messages=talk, tools=[READ_FILE])
                    talk.append(answer.choices[0].message.model_dump(exclude_none=True))
                    calls = talk[-1].get("tool_calls", [])
                    talk += [{"role": "tool", "tool_call_id": call["id"], "content": LOG} for call in calls]
        assert [message.get("content") for message in talk[-3:]] == ["It moved a container.", SAID[2], SCRIPT[-1]]
        gateway.stop()
    (engine,) = made
    assert engine.story() == [*expected_calls("story"), "close"]
    (start_call,) = [call for call in engine.calls if call.method == "on_session_start"]
    assert start_call.options["platform"] == "gateway"
    assert start_call.options["conversation_id"] == "story"


def test_two_conversations_have_an_engine_each(
    made: list[RecordingEngine], plugin: dict[str, Any], start: Callable[..., Gateway]
) -> None:
    with ModelServer() as upstream:
        gateway = start(upstream, plugin)
        gateway.say([], "I am Ada")
        gateway.say([], "I am Bob")
        gateway.stop()
    assert len(made) == 2
    assert [engine.methods().count("on_session_end") for engine in made] == [1, 1]
