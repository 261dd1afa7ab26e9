"""`leporello doctor` finds what leads agents to a gateway that is gone."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from leporello.cli import leftovers as room
from leporello.cli.leftovers import leftovers

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.cli import Leporello


@pytest.fixture
def dead() -> str:
    """Return an address of this machine where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


def test_a_variable_that_leads_nowhere(dead: str, tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "ANTHROPIC_BASE_URL": dead, "OPENAI_BASE_URL": "https://api.example.com/v1"}
    assert [one.subject for one in leftovers(environ, tmp_path)] == ["ANTHROPIC_BASE_URL"]


def test_one_that_leads_somewhere_is_none(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        environ = {"HOME": str(tmp_path), "OPENAI_BASE_URL": f"http://127.0.0.1:{server.getsockname()[1]}/v1"}
        assert list(leftovers(environ, tmp_path)) == []


def test_settings_of_agents(dead: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text(json.dumps({"env": {"ANTHROPIC_BASE_URL": dead}}))
    (tmp_path / ".codex" / "config.toml").write_text(f'openai_base_url = "{dead}/v1"\n')
    (tmp_path / "opencode.json").write_text(json.dumps({"provider": {"openai": {"options": {"baseURL": dead}}}}))
    (tmp_path / ".aider.conf.yml").write_text(f"openai-api-base: {dead}\n")
    found = [one.detail.split(",")[0] for one in leftovers({"HOME": str(tmp_path)}, tmp_path)]
    assert found == [
        f"leads claude to {dead}",
        f"leads codex to {dead}/v1",
        f"leads opencode to {dead}",
        f"leads aider to {dead}",
    ]


def test_who_looks_is_none_itself(dead: str, tmp_path: Path) -> None:
    for number in (os.getpid(), os.getpid() + 1):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "environ").write_bytes(f"LEPORELLO_WRAP={dead}\0".encode())
        (tmp_path / str(number) / "comm").write_text("sh\n")
    found = [one.subject for one in leftovers({"HOME": str(tmp_path)}, tmp_path)]
    assert found == [f"process {os.getpid() + 1}"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
@pytest.mark.slow
def test_a_program_that_outlived_its_gateway(dead: str, leporello: Leporello, monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["sleep", "60"], env={"LEPORELLO_WRAP": dead, "PATH": "/usr/bin:/bin"}) as program:
        try:
            told = leporello("doctor").out
            monkeypatch.setattr(room, "MARK", "ANOTHER_MARK")
            unmarked = leporello("doctor").out
        finally:
            program.kill()
    assert f"! process {program.pid}: sleep was started by `leporello wrap`" in told
    assert f"process {program.pid}" not in unmarked
