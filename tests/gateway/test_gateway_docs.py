"""The pages about the gateway are true: their commands work as printed, and their routes are those that are served."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from starlette.routing import Route

from leporello.config import Config
from leporello.config.model import GatewayLimits
from leporello.gateway.app import create_app
from leporello.store import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
HOW_TO = (ROOT / "docs" / "how-to" / "gateway.md").read_text(encoding="utf-8")
REFERENCE = (ROOT / "docs" / "reference" / "gateway.md").read_text(encoding="utf-8")
PRINTED = "http://127.0.0.1:8765"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


def shown(page: str) -> tuple[list[str], str]:
    """Return the command that a page starts the demonstration with, and the line that it says it prints."""
    (block,) = [block for block in blocks(page, "console") if "--demo" in block]
    command, line = block.splitlines()
    return shlex.split(command.removeprefix("$ "), comments=True), line


@contextmanager
def demonstration(page: str, home: Path) -> Iterator[None]:
    """Serve as the page says, on its port; on another only if somebody has that one, and then curl is led there."""
    command, line = shown(page)
    with ExitStack() as stack:
        address = stack.enter_context(_serving(command, home))
        if not address:
            address = stack.enter_context(_serving([*command, "--port", "0"], home))
        assert line.replace(PRINTED, address).split()[3] == address
        there = address.removeprefix("http://")
        rules = [
            "silent",
            "show-error",
            "fail-with-body",
            'write-out = "\\n"',
            f'connect-to = "127.0.0.1:8765:{there}"',
        ]
        (home / ".curlrc").write_text("\n".join(rules), encoding="utf-8")
        yield


@contextmanager
def _serving(command: list[str], home: Path) -> Iterator[str]:
    """Run a server and yield its address, "" when it could not have the port."""
    assert command[0] == "leporello"
    started = [sys.executable, "-m", *command]
    environment = {"LEPORELLO_HOME": str(home), "PATH": os.environ["PATH"]}
    with subprocess.Popen(
        started, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        ready = process.stdout.readline().split()
        try:
            assert ready or "Address already in use" in process.stderr.read()
            yield ready[3] if ready else ""
        finally:
            process.terminate()


def curl(script: str, home: Path) -> list[str]:
    """Run commands as they are printed; returns what each of them wrote."""
    environment = {"PATH": os.environ["PATH"], "CURL_HOME": str(home)}
    done = subprocess.run(
        ["bash", "-ec", script], capture_output=True, text=True, check=False, timeout=60, env=environment
    )
    assert done.returncode == 0, (script, done.stdout, done.stderr)
    return done.stdout.split("\n")


def said(answer: str) -> Any:
    return json.loads(answer)["choices"][0]["message"]["content"]


def test_the_commands_of_the_readme_work_as_printed(tmp_path: Path) -> None:
    as_client, as_agent = [block for block in blocks(README, "sh") if block.startswith("curl")]
    with demonstration(README, tmp_path):
        first, *events = curl(as_client, tmp_path)
        answer, listing, *exported = curl(as_agent, tmp_path)
    assert said(first) == "Hello, gateway!"
    assert "event: message_stop" in events
    assert "".join(re.findall(r'"text_delta", ?"text": ?"([^"]*)"', "".join(events))) == "Hello again!"
    assert json.loads(answer)["content"] == "My name is Ada."
    assert "room-1" in [one["id"] for one in json.loads(listing)["sessions"]]
    assert sum("My name is Ada." in line for line in exported) == 2


def test_the_commands_of_the_how_to_work_as_printed(tmp_path: Path) -> None:
    with demonstration(HOW_TO, tmp_path):
        one, streamed, response, agent, named = (curl(block, tmp_path) for block in blocks(HOW_TO, "sh"))
    assert said(one[0]) == "Hello, gateway!"
    assert "event: message_stop" in streamed
    assert json.loads(response[0])["output"][0]["content"][0]["text"] == "Hello, gateway!"
    assert json.loads(agent[0])["content"] == "My name is Ada."
    assert json.loads(agent[-2])["messages"] == 5
    assert said(named[0]) == "Hello!"


def test_a_command_that_does_not_work_would_be_noticed(tmp_path: Path) -> None:
    """The planted defect: a page with a path that is not served."""
    broken = README.replace("/v1/sessions/room-1/export", "/v1/sessions/room-1/all")
    with demonstration(broken, tmp_path), pytest.raises(AssertionError):
        curl(blocks(broken, "sh")[1], tmp_path)


def test_the_yaml_is_a_configuration(tmp_path: Path) -> None:
    loaded = []
    for block in blocks(HOW_TO, "yaml"):
        (tmp_path / "config.yaml").write_text(block, encoding="utf-8")
        loaded.append(Config.load(tmp_path / "config.yaml").gateway)
    provider, clients, limits = loaded
    assert clients.upstreams.openai.pass_client_key is clients.upstreams.anthropic.pass_client_key is True
    assert provider.upstreams.openai.api_key_env == "MY_SERVER_KEY"
    assert limits.limits == GatewayLimits()  # the page shows the defaults


def test_every_route_is_in_the_reference() -> None:
    app = create_app(Config.from_mapping({}), open_store(":memory:"))
    served = {route.path.replace(":path", "") for route in app.routes if isinstance(route, Route)}
    named = set(re.findall(r"`(?:GET|POST|DELETE) (/[^`?]*)", REFERENCE))
    assert named == served
