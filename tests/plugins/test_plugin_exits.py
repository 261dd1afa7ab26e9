"""An exit of a plugin's own is a failure of the plugin, wherever its code runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from leporello.cli.chat.plugin_commands import call
from leporello.errors import PluginError
from leporello.plugins import Command, dispatch

if TYPE_CHECKING:
    from tests.fixtures.plugins import Plugins

EXITS = ["raise SystemExit(3)", "raise KeyboardInterrupt", "import sys; sys.exit('enough')"]
PLACES = {
    "import": "{}",
    "register": "def register(ctx):\n    {}",
    "construct": "def fail(self, context_length=0):\n    {}\nEngine.__init__ = fail",
    "update_model": "def fail(self, *args, **kwargs):\n    {}\nEngine.update_model = fail",
    "clone_for_agent": "def fail(self):\n    {}\nEngine.clone_for_agent = fail",
    "name": "def fail(self):\n    {}\nEngine.name = property(fail)",
}


def leave(text: str) -> None:
    exec(text)  # noqa: S102 - one of EXITS


@pytest.mark.parametrize("exit_", EXITS)
@pytest.mark.parametrize("place", PLACES)
def test_a_plugin_that_wants_to_leave_is_replaced_by_the_compressor(plugins: Plugins, place: str, exit_: str) -> None:
    plugins.engine("alpha", f"\n{PLACES[place].format(exit_)}\n")
    loaded = plugins.load("alpha")
    assert loaded.engine.name == "compressor"
    assert loaded.fell_back
    assert "HOME/plugins/context_engine/alpha/__init__.py, line" in loaded.said[0][1]
    with pytest.raises(PluginError):
        plugins.source("alpha").make()


@pytest.mark.parametrize("exit_", EXITS)
def test_a_tool_that_wants_to_leave_answers_with_an_error(plugins: Plugins, exit_: str) -> None:
    plugins.engine("alpha", f"\ndef fail(self, name, args, **kwargs):\n    {exit_}\nEngine.handle_tool_call = fail\n")
    answer: Any = json.loads(dispatch(plugins.load("alpha").engine, "find", {}, []))
    assert answer["error"].startswith("Tool 'find' failed: ")


@pytest.mark.parametrize("exit_", EXITS)
def test_a_command_that_wants_to_leave_is_a_text(exit_: str) -> None:
    command = Command(name="go", handler=lambda _: leave(exit_), description="", plugin="alpha")
    assert call(command, "").startswith("/go of the plugin 'alpha' failed: ")


@pytest.mark.parametrize("exit_", EXITS)
def test_a_command_that_wants_to_leave_later_is_a_text(exit_: str) -> None:
    async def later(_: str) -> None:
        leave(exit_)

    command = Command(name="go", handler=later, description="", plugin="alpha")
    assert call(command, "").startswith("/go of the plugin 'alpha' failed: ")
