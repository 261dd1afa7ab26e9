"""`leporello serve`: what it says before it serves."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import httpx2
import pytest
from click.testing import CliRunner

from leporello.cli.serve import command
from leporello.gateway.keys import hashed

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


def test_a_new_key_is_shown_once_with_what_to_do(tmp_path: Path) -> None:
    said = CliRunner().invoke(command, ["--new-key", "ada"]).output
    (key,) = re.findall(r"lpr-\S+", said)
    assert f"leporello config set gateway.api_keys.ada {hashed(key)}" in said


def test_the_whole_world_is_not_served_without_keys(tmp_path: Path) -> None:
    environment = {**os.environ, "LEPORELLO_HOME": str(tmp_path)}
    arguments = [sys.executable, "-m", "leporello", "serve", "--host", "0.0.0.0", "--port", "0"]  # noqa: S104 - refused
    done = subprocess.run(arguments, capture_output=True, text=True, env=environment, check=False, timeout=60)
    assert done.returncode == 2
    assert "--new-key" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_taken_port_is_told(tmp_path: Path) -> None:
    import socket

    environment = {**os.environ, "LEPORELLO_HOME": str(tmp_path)}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        arguments = [sys.executable, "-m", "leporello", "serve", "--port", str(taken.getsockname()[1])]
        done = subprocess.run(arguments, capture_output=True, text=True, env=environment, check=False, timeout=60)
    assert done.returncode == 2
    assert done.stderr.endswith(": Address already in use. --port 0 takes any free port.\n")


def test_the_demonstration_needs_nothing(tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "LEPORELLO_HOME": str(tmp_path)}
    arguments = [sys.executable, "-m", "leporello", "serve", "--demo", "--port", "0"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[3]
        said = {"model": "echo", "messages": [{"role": "user", "content": "hello"}]}
        got = httpx2.post(f"{address}/v1/chat/completions", json=said, timeout=30).json()
        assert got["choices"][0]["message"]["content"] == "hello"
        got = httpx2.post(f"{address}/v1/sessions/room/messages", json={"content": "hi"}, timeout=30).json()
        assert got["content"] == "hi"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert list(tmp_path.iterdir()) == []
