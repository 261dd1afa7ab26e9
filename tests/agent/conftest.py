"""A workspace in a temporary folder, and a way to call tools as the loop does."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path  # noqa: TC003 - pytest reads the annotations of fixtures
from threading import Event
from typing import Any

import pytest

from leporello.agent.tools import Outcome, Toolbox, Workspace, default_tools
from leporello.messages import ToolCall

KEY = "sk-proj-Zq8vLr3TnW5xYb7KcM2dHf9J"
ENVIRON = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "OPENAI_API_KEY": KEY, "LC_ALL": "C.UTF-8"}

Call = Callable[..., Outcome]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The workspace folder; its neighbour holds what nobody may see."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("the neighbour's secret\n")
    inside = tmp_path / "work"
    inside.mkdir()
    return inside


@pytest.fixture
def toolbox(root: Path) -> Toolbox:
    return Toolbox(default_tools(Workspace(root), environ=ENVIRON), environ=ENVIRON)


@pytest.fixture
def call(toolbox: Toolbox) -> Call:
    """Call a tool with everybody's consent."""

    def run(name: str, **arguments: Any) -> Outcome:
        raw = json.dumps(arguments)
        prepared = toolbox.prepare(ToolCall(id="c1", name=name, arguments=json.loads(raw), raw=raw))
        return prepared if isinstance(prepared, Outcome) else toolbox.do(prepared, Event())

    return run
