"""A gateway with several keys: each is served by a process of its own, and clients notice nothing of that."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anthropic
import httpx2
import openai
import pytest
from tests.gateway.process import Process, served

from leporello.gateway.keys import hashed
from leporello.gateway.metrics import Metrics, merged
from leporello.gateway.workers import Workers
from leporello.store import open_store
from leporello.testing.model_server import ModelServer

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

KEYS = {name: hashed(name) for name in ("ada", "bob", "cleo")}


@pytest.fixture
def upstream() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture
def gateway(tmp_path: Path, upstream: ModelServer) -> Iterator[Process]:
    """A gateway for three keys, with two processes for them."""
    one = {"base_url": upstream.anthropic_url, "api_key_env": "UPSTREAM_KEY"}
    upstreams = {"openai": {"base_url": upstream.openai_url, "api_key_env": "UPSTREAM_KEY"}, "anthropic": one}
    with served(tmp_path, upstream, api_keys=KEYS, processes=2, upstreams=upstreams) as process:
        yield process


def children(process: Process) -> list[int]:
    pid = process.process.pid
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()]


def said(gateway: Process, owner: str) -> list[list[str]]:
    store = open_store(gateway.store)
    try:
        talks = [info.key for info in store.conversations(owner=owner)]
        return [[str(row.message["content"]) for row in store.messages(key, owner=owner)] for key in talks]
    finally:
        store.close()


def ask(gateway: Process, key: str, text: str, **more: Any) -> httpx2.Response:
    body = {"model": "m", "messages": [{"role": "user", "content": text}], **more}
    headers = {"authorization": f"Bearer {key}"}
    return httpx2.post(f"{gateway.address}/v1/chat/completions", json=body, headers=headers, timeout=60)


class TestServing:
    def test_keys_have_processes_that_are_started_when_they_come(self, gateway: Process) -> None:
        assert children(gateway) == []
        assert httpx2.get(f"{gateway.address}/healthz").json() == {"status": "ok"}
        assert ask(gateway, "nobody", "hello").status_code == 401
        assert children(gateway) == []
        for key, processes in (("ada", 1), ("bob", 2), ("cleo", 2), ("ada", 2)):
            assert ask(gateway, key, f"hello from {key}").status_code == 200
            assert len(children(gateway)) == processes
        assert gateway.stop() == 0
        assert [len(said(gateway, key)) for key in KEYS] == [2, 1, 1]

    def test_official_clients_whole_and_streamed(self, gateway: Process) -> None:
        talk: list[Any] = []
        with openai.OpenAI(base_url=f"{gateway.address}/v1", api_key="ada", max_retries=0) as client:
            for number in range(6):
                talk.append({"role": "user", "content": f"question {number}"})
                if number % 2:
                    pieces = client.chat.completions.create(model="m", messages=talk, stream=True)
                    text = "".join(piece.choices[0].delta.content or "" for piece in pieces)
                else:
                    text = str(client.chat.completions.create(model="m", messages=talk).choices[0].message.content)
                talk.append({"role": "assistant", "content": text})
        with anthropic.Anthropic(base_url=gateway.address, api_key="bob", max_retries=0) as other:
            one: Any = {"role": "user", "content": "hello"}
            whole = other.messages.create(model="m", max_tokens=50, messages=[one])
            with other.messages.stream(model="m", max_tokens=50, messages=[one]) as stream:
                streamed = stream.get_final_message()
            assert whole.content[0].type == streamed.content[0].type == "text"
            with pytest.raises(anthropic.BadRequestError):
                other.messages.create(model="m", max_tokens=50, messages=["no message"])  # type: ignore[list-item]
        assert gateway.stop() == 0
        assert said(gateway, "ada") == [[message["content"] for message in talk]]
        assert said(gateway, "bob")[0][0] == "hello"

    def test_nobody_reads_or_deletes_what_is_another_s(self, gateway: Process) -> None:
        session = ask(gateway, "ada", "a secret of ada").headers["x-leporello-session"]
        for key, status in (("bob", 404), ("cleo", 404), ("ada", 200)):
            address = f"{gateway.address}/v1/sessions/{session}/export"
            assert httpx2.get(address, headers={"x-api-key": key}, timeout=60).status_code == status
        listed = httpx2.get(f"{gateway.address}/v1/sessions", headers={"x-api-key": "bob"}, timeout=60)
        assert listed.json()["sessions"] == []

    def test_errors_are_those_of_a_single_process(self, gateway: Process) -> None:
        headers = {"x-api-key": "ada"}
        for path, body, status in (
            ("/v1/chat/completions", b"{", 400),
            ("/v1/chat/completions", b"[]", 400),
            ("/v1/messages", b'{"messages": 3}', 400),
            ("/v1/nothing", b"{}", 404),
            ("/v1/sessions", b"{}", 405),
        ):
            got = httpx2.post(f"{gateway.address}{path}", content=body, headers=headers, timeout=60)
            assert got.status_code == status, got.text
            assert got.json()["error"]["message"]

    @pytest.mark.parametrize("announced", [True, False])
    def test_a_body_that_is_too_long_is_refused(self, gateway: Process, announced: bool) -> None:
        long = b"x" * 33_600_000
        content: Any = long if announced else (long[at : at + 1_000_000] for at in range(0, len(long), 1_000_000))
        address = f"{gateway.address}/v1/chat/completions"
        assert httpx2.post(address, content=content, headers={"x-api-key": "ada"}, timeout=60).status_code == 413

    def test_figures_are_of_all_processes(self, gateway: Process) -> None:
        for key in ("ada", "bob", "bob"):
            ask(gateway, key, "hello")
        text = httpx2.get(f"{gateway.address}/metrics", headers={"x-api-key": "ada"}, timeout=60).text
        assert 'leporello_requests_total{route="DropIn",status="200"} 3.0' in text
        assert "leporello_requests_running 1.0\n" in text
        for process in ("proxy", "0", "1"):
            assert f'leporello_event_loop_gap_seconds{{process="{process}"}}' in text


class TestEnding:
    def test_a_process_that_was_killed_is_started_again(self, gateway: Process) -> None:
        assert ask(gateway, "ada", "one").status_code == 200
        (first,) = children(gateway)
        os.kill(first, signal.SIGKILL)
        statuses = [ask(gateway, "ada", f"more {number}").status_code for number in range(4)]
        assert statuses[-1] == 200
        assert set(statuses) <= {200, 502}
        assert children(gateway) != [first]
        assert gateway.stop() == 0
        assert len(said(gateway, "ada")) == 1 + statuses.count(200)

    def test_processes_end_with_the_one_in_front(self, gateway: Process) -> None:
        ask(gateway, "ada", "one")
        ask(gateway, "bob", "two")
        started = children(gateway)
        gateway.kill()
        until = time.monotonic() + 30
        while any(Path(f"/proc/{pid}").exists() for pid in started) and time.monotonic() < until:
            time.sleep(0.05)
        assert not any(Path(f"/proc/{pid}").exists() for pid in started)
        assert said(gateway, "ada")[0][0] == "one"

    def test_a_client_that_leaves_ends_its_request(self, tmp_path: Path) -> None:
        slow = ModelServer([{"text": "words " * 400, "chunk_delay": 0.05}] * 4)
        with slow as upstream, served(tmp_path, upstream, api_keys=KEYS) as gateway:
            headers = {"authorization": "Bearer ada"}
            body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hello"}]}
            address = f"{gateway.address}/v1/chat/completions"
            with httpx2.stream("POST", address, json=body, headers=headers, timeout=60) as answer:
                next(answer.iter_raw())
            until, running = time.monotonic() + 20, ""
            while "leporello_requests_running 1.0\n" not in running and time.monotonic() < until:
                running = httpx2.get(f"{gateway.address}/metrics", headers=headers, timeout=60).text
                time.sleep(0.05)
            assert "leporello_requests_running 1.0\n" in running

    def test_one_process_serves_all_when_that_is_wished(self, tmp_path: Path, upstream: ModelServer) -> None:
        with served(tmp_path, upstream, api_keys=KEYS, processes=1) as gateway:
            assert ask(gateway, "ada", "one").status_code == 200
            assert children(gateway) == []


def test_a_store_that_cannot_be_read_is_told_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "store.db").write_bytes(b"no database at all, " * 300)
    (tmp_path / "config.yaml").write_text(json.dumps({"gateway": {"api_keys": KEYS}}), encoding="utf-8")
    command = ["serve", "--port", "0", "--store", str(tmp_path / "store.db"), "--config", str(tmp_path / "config.yaml")]
    done = subprocess.run(
        [sys.executable, "-m", "leporello", *command], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode != 0
    assert "store.db" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_key_stays_with_its_process_and_the_emptiest_takes_the_next() -> None:
    workers = Workers(2, [])
    first, second = workers.of("ada"), workers.of("bob")
    assert first is not second
    assert workers.of("cleo") is first
    assert workers.of("dora") is second
    assert [workers.of(key) for key in ("dora", "cleo", "bob", "ada")] == [second, first, second, first]
    assert workers.running == []


def test_figures_add_up_but_for_those_that_cannot() -> None:
    one, two = Metrics(), Metrics()
    for metrics, seconds in ((one, 0.25), (two, 0.5), (two, 7.0)):
        metrics.answered("DropIn", 200, seconds)
    gauges = {"requests_running": 2, "event_loop_gap_seconds": 0.02}
    lines = merged({"0": one.text(gauges), "1": two.text(gauges)}).splitlines()
    for line in (
        "leporello_requests_running 4.0",
        'leporello_event_loop_gap_seconds{process="0"} 0.02',
        'leporello_event_loop_gap_seconds{process="1"} 0.02',
        'leporello_requests_total{route="DropIn",status="200"} 3.0',
        'leporello_request_seconds_bucket{le="0.25"} 1.0',
        'leporello_request_seconds_bucket{le="+Inf"} 3.0',
        "leporello_request_seconds_sum 7.75",
    ):
        assert lines.count(line) == 1, json.dumps(lines, indent=1)
