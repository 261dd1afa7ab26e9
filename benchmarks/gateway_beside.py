"""The gateway beside LiteLLM's proxy, on the same work in one run: requests per second, added latency, memory.

Conversations of several turns, each request with the whole history, go to the model server directly, through our
gateway, which stores everything, and through LiteLLM's proxy, which stores nothing; in rounds, so that whatever else
the machine does falls on all alike. Latency is measured with one client alone: up to the answer, and up to the first
byte of a streamed one. LiteLLM takes part where it is installed (`benchmarks.peers`). `--checkout PATH` adds the
gateway of another working tree.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import aiohttp
import httpx2

from benchmarks.gateway import Running, gateway_settings, started
from benchmarks.peers import OFFLINE, python_of

if TYPE_CHECKING:
    from collections.abc import Iterator

PATH = "/v1/chat/completions"
_START_SECONDS = 120
_LOOK_SECONDS = 1.0
_IDLE_SHARE = 0.05  # of the processor


@dataclass
class Subject:
    """What is measured: where it is, its process, and what was seen of it."""

    address: str
    running: Running
    requests: int = 0
    seconds: float = 0.0
    rates: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    answers: list[float] = field(default_factory=list)
    first_bytes: list[float] = field(default_factory=list)
    cpu: float = 0.0
    megabytes: float = 0.0


def main(argv: list[str] | None = None) -> int:
    options = size(argv)
    subjects = measure(options)
    _report(options, subjects)
    return 1 if any(subject.errors for subject in subjects.values()) else 0


def size(argv: list[str] | None) -> argparse.Namespace:
    """Read how large the load shall be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="of load, for each in each round")
    parser.add_argument("--conversations", type=int, default=20, help="how many are held at the same time")
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--words", type=int, default=40, help="how long a message is")
    parser.add_argument("--latencies", type=int, default=100, help="requests of one client, in each round")
    parser.add_argument("--checkout", type=Path, help="another working tree of ours")
    return parser.parse_args(argv)


def measure(options: argparse.Namespace) -> dict[str, Subject]:
    """Run everything; returns what was seen by name."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        model = stack.enter_context(started(["-m", "leporello.testing.model_server"]))
        address = model.line.split()[3]
        subjects = {"direct": Subject(address, model)}
        subjects["leporello"] = stack.enter_context(gateway(folder / "ours", address))
        if options.checkout is not None:
            source = str((options.checkout / "src").resolve())
            subjects["checkout"] = stack.enter_context(gateway(folder / "checkout", address, PYTHONPATH=source))
        if python := python_of("litellm"):
            subjects["litellm"] = stack.enter_context(litellm(folder, python, address))
        asyncio.run(_rounds(options, subjects))
        return subjects


@contextmanager
def gateway(folder: Path, upstream: str, **environment: str) -> Iterator[Subject]:
    """Run a gateway on a store of its own."""
    folder.mkdir()
    config = folder / "config.yaml"
    config.write_text(json.dumps(gateway_settings(upstream)), encoding="utf-8")
    command = ["-m", "leporello", "serve", "--port", "0", "--config", str(config), "--store", str(folder / "a.db")]
    with started(command, {"LEPORELLO_HOME": str(folder), **environment}) as running:
        yield Subject(running.line.split()[3], running)


@contextmanager
def litellm(folder: Path, python: Path, upstream: str) -> Iterator[Subject]:
    """Run LiteLLM's proxy, in one process."""
    config = folder / "litellm.yaml"
    route = {"model": "openai/m", "api_base": f"{upstream}/v1", "api_key": "benchmark"}
    keyless = {"dangerously_permit_weak_or_unset_master_key": True}  # as ours: it serves this machine only
    settings = {"model_list": [{"model_name": "m", "litellm_params": route}], "general_settings": keyless}
    config.write_text(json.dumps(settings), encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [str(python.parent / "litellm"), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
    quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "text": True}
    process = subprocess.Popen(command, env={**os.environ, **OFFLINE}, cwd=folder, **quiet)
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_for(f"{address}/health/liveliness")
        yield Subject(address, Running(process, ""))
    finally:
        process.kill()
        process.wait()


def _wait_for(address: str) -> None:
    until = time.monotonic() + _START_SECONDS
    while True:
        try:
            httpx2.get(address, timeout=5).raise_for_status()
        except httpx2.HTTPError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)
        else:
            return


async def _rounds(options: argparse.Namespace, subjects: dict[str, Subject]) -> None:
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=30)
    headers = {"authorization": "Bearer benchmark"}
    async with aiohttp.ClientSession(connector=connector, headers=headers) as client:
        for subject in subjects.values():
            await _load(options, client, subject, f"warm {id(subject)}", seconds=1.0, counts=False)
            await _settled(subject.running)
        for number in range(options.rounds):
            for name, subject in subjects.items():
                await _load(options, client, subject, f"{name} {number}", seconds=options.seconds)
            await _latencies(options, client, subjects, number)
        for subject in subjects.values():
            subject.megabytes = subject.running.megabytes()


async def _settled(running: Running) -> None:
    """Wait until a process has loaded what it loads in the background."""
    before = -1.0
    while (now := running.cpu_seconds()) - before > _IDLE_SHARE * _LOOK_SECONDS:
        before = now
        await asyncio.sleep(_LOOK_SECONDS)


async def _load(
    options: argparse.Namespace,
    client: aiohttp.ClientSession,
    subject: Subject,
    label: str,
    *,
    seconds: float,
    counts: bool = True,
) -> None:
    """Hold conversations for a while, as many at once as there are clients."""
    begun, before = time.monotonic(), subject.running.cpu_seconds()
    until = begun + seconds
    asked = 0

    async def hold(number: int) -> None:
        nonlocal asked
        held = 0
        while time.monotonic() < until:
            talk: list[dict[str, Any]] = []
            for turn in range(options.turns):
                if time.monotonic() >= until:
                    return
                words = " ".join(f"{label}-{number}-{held}-{turn}-{word}" for word in range(options.words))
                talk.append({"role": "user", "content": words})
                async with client.post(subject.address + PATH, json={"model": "m", "messages": talk}) as got:
                    body = await got.json()
                if got.status != 200:
                    subject.errors.append(str(body)[:200])
                    return
                talk.append({"role": "assistant", "content": body["choices"][0]["message"]["content"]})
                asked += 1
            held += 1

    await asyncio.gather(*map(hold, range(options.conversations)))
    if counts:
        taken = time.monotonic() - begun
        subject.requests += asked
        subject.seconds += taken
        subject.rates.append(asked / taken)
        subject.cpu += subject.running.cpu_seconds() - before


async def _latencies(
    options: argparse.Namespace, client: aiohttp.ClientSession, subjects: dict[str, Subject], number: int
) -> None:
    """Ask one after the other, each request to all of them in turn, plain and streamed."""
    talks: dict[str, list[dict[str, Any]]] = {}
    for ask in range(options.latencies):
        for name, subject in subjects.items():
            if ask % options.turns == 0:
                talks[name] = []
            talk = talks[name]
            talk.append({"role": "user", "content": f"{number} {ask} " + "where does it stand? " * 8})
            body = {"model": "m", "messages": talk}
            begun = time.perf_counter()
            async with client.post(subject.address + PATH, json=body) as got:
                answer = await got.json()
            subject.answers.append(time.perf_counter() - begun)
            talk.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
            aside = {"model": "m", "messages": [{"role": "user", "content": f"{name} {number} {ask}"}], "stream": True}
            begun = time.perf_counter()
            async with client.post(subject.address + PATH, json=aside) as got:
                await got.content.readany()
                subject.first_bytes.append(time.perf_counter() - begun)
                await got.read()


def _report(options: argparse.Namespace, subjects: dict[str, Subject]) -> None:
    direct, ours = subjects["direct"], subjects["leporello"]
    print(f"{options.conversations} conversations at once, {options.rounds} rounds of {options.seconds:g} s each")
    print("| | requests/s | rounds | of ours | processor, ms | added, ms | added to first byte, ms | MB |")
    print("|---|---|---|---|---|---|---|---|")
    for name, one in subjects.items():
        rate, own = one.requests / one.seconds, ours.requests / ours.seconds
        rounds = " ".join(f"{each:.0f}" for each in one.rates)
        added = [
            (median(own) - median(without)) * 1000
            for own, without in ((one.answers, direct.answers), (one.first_bytes, direct.first_bytes))
        ]
        cpu = 1000 * one.cpu / max(1, one.requests)
        print(
            f"| {name} | {rate:.0f} | {rounds} | {rate / own:.2f} | {cpu:.1f} | {added[0]:.1f} | {added[1]:.1f}"
            f" | {one.megabytes:.0f} |"
        )
    if "litellm" not in subjects:
        print("litellm: not installed")
    errors = {name: one.errors[:2] for name, one in subjects.items() if one.errors}
    print(f"errors: {errors or 'none'}")


if __name__ == "__main__":
    sys.exit(main())
