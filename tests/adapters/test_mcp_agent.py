"""Claude Code, as people run it, asks our MCP server; the test of Hermes Agent has one more agent that does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.adapters.test_frameworks import FRAMEWORKS
from tests.fixtures.environments import environment

from leporello.testing.model_server import ModelServer, Step, Use

if TYPE_CHECKING:
    from pathlib import Path

    from leporello.testing.model_server import ReceivedRequest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_800)]  # an environment may have to be installed

TICKET = "PORT-2291"
SETTINGS = {
    "DISABLE_AUTOUPDATER": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_MCP_STARTUP_WAIT_MS": "120000",  # it does not wait for a server otherwise
    "ENABLE_TOOL_SEARCH": "false",
}


def model(request: ReceivedRequest) -> Step:
    """Ask the memory once, if there is one, and tell what it says."""
    names = [str(tool["name"]) for tool in map(_described, request.tools)]
    search = next((name for name in names if name.endswith("lcm_grep")), "")
    said = json.dumps(request.messages)
    if TICKET in said:
        return Step(text=f"It is {TICKET}.")
    if "booking ticket" in said or not search:
        return Step(text="I do not know.")
    return Step(tool_calls=[Use(name=search, arguments={"query": "booking ticket"})])


def _described(tool: dict[str, object]) -> dict[str, object]:
    inner = tool.get("function")
    return inner if isinstance(inner, dict) else tool


def asked(folder: Path, servers: dict[str, object]) -> str:
    """Return what Claude Code answers with these servers."""
    place = environment("claude-agent-sdk", *FRAMEWORKS["claude-agent-sdk"])
    claude = next(place.glob("lib/*/site-packages/claude_agent_sdk/_bundled/claude"))
    told = ("-p", "Which ticket has the booking?", "--model", "claude-sonnet-5")
    allowed = ("--strict-mcp-config", "--allowedTools", "mcp__memory__lcm_grep")
    with ModelServer(then=model) as provider:
        done = subprocess.run(
            [claude, *told, *allowed, "--mcp-config", json.dumps({"mcpServers": servers})],
            cwd=folder,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(folder),
                "ANTHROPIC_BASE_URL": provider.base_url,
                "ANTHROPIC_API_KEY": "sk-x",
                **SETTINGS,
            },
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3_000:]
    return done.stdout.strip()


def test_claude_code_finds_what_was_folded(folded: Path, tmp_path: Path) -> None:
    command = ["-m", "leporello", "mcp", "--session", "harbour", "--store", str(folded)]
    server = {"type": "stdio", "command": sys.executable, "args": command, "env": {"LEPORELLO_HOME": str(tmp_path)}}
    assert asked(tmp_path, {"memory": server}) == f"It is {TICKET}."


def test_without_the_server_it_does_not_know(tmp_path: Path) -> None:
    assert asked(tmp_path, {}) == "I do not know."
