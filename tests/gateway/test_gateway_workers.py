"""`leporello serve --workers N`: processes beside the gateway write the summaries, and one that dies is replaced."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from leporello.lcm import verify
from leporello.store.sqlite import SQLiteStore
from leporello.testing.model_server import ModelServer, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leporello.testing.model_server import ReceivedRequest

pytestmark = pytest.mark.slow

LONGEST_SECONDS = 60.0
FILLER = "and then some words about ships, cargo and weather " * 60
SUMMARY = "## Goal\nRead the harbour's papers.\n\n## Progress\n### Done\n- Read one of them."


def answers(request: ReceivedRequest) -> Step:
    last = str(request.messages[-1]["content"])
    return Step(text=f"answer to {last[:12]}: {FILLER}" if last.startswith("question") else SUMMARY)


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    with ModelServer(then=answers) as upstream:
        settings = {
            "context": {"engine": "lcm"},
            "lcm": {"threshold": 0.6, "leaf_tokens": 1_000},
            "windows": {"m": 16_000},
            "gateway": {"upstreams": {"openai": {"base_url": upstream.openai_url, "api_key_env": "UPSTREAM_KEY"}}},
        }
        config = tmp_path / "config.yaml"
        config.write_text(json.dumps(settings), encoding="utf-8")
        command = ["serve", "--workers", "1", "--port", "0", "--config", str(config), "--store", str(tmp_path / "s.db")]
        process = subprocess.Popen(
            [sys.executable, "-m", "leporello", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        yield process, process.stdout.readline().split()[3]
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=30)


def children(process: subprocess.Popen[str]) -> list[int]:
    """Return the processes that any thread of another one started."""
    threads = Path(f"/proc/{process.pid}/task").iterdir()
    return [int(pid) for thread in threads for pid in (thread / "children").read_text(encoding="utf-8").split()]


def wait_for(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONGEST_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        threading.Event().wait(0.05)


def test_a_worker_writes_what_the_gateway_leaves_and_is_replaced_when_it_dies(
    gateway: tuple[subprocess.Popen[str], str], tmp_path: Path
) -> None:
    process, address = gateway
    wait_for(lambda: len(children(process)) == 1)
    (first,) = children(process)
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: len(children(process)) == 1 and children(process) != [first])
    history: list[dict[str, Any]] = []
    name = ""
    with SQLiteStore(tmp_path / "s.db") as store:
        for turn in range(8):  # to between the soft threshold and the threshold
            history.append({"role": "user", "content": f"question {turn}: {FILLER}"})
            got = httpx2.post(f"{address}/v1/chat/completions", json={"model": "m", "messages": history}, timeout=60)
            assert got.status_code == 200, got.text
            name = got.headers["x-leporello-session"]
            history.append({"role": "assistant", "content": got.json()["choices"][0]["message"]["content"]})
        wait_for(lambda: any(node.made_by == "model" for node in store.prepared_nodes(name)))
        assert verify(store, name) == []
    (second,) = children(process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    wait_for(lambda: not Path(f"/proc/{second}").exists())
