"""The gateway under load, from other processes: what it adds to a request, what it loses, how it grows.

Three processes: the model server, `leporello serve`, and this one with the clients. Each client holds conversations of
several turns and sends its whole history each time; every turn is also sent to the model server directly, right before,
so that both are measured in the same run. At the end the store is compared with what was sent.

Memory grows while the caches fill, and the conversations that are held ready; the second half of a run of some minutes
shows what it does then. Conversations that are longer than the window (`--turns 60 --words 120`) are folded meanwhile.
With `--dialects openai anthropic responses` the clients speak different APIs. With `--kills 50` the gateway is killed
so often while they speak, and started again: a client whose answer did not come asks again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import linear_regression, median
from typing import TYPE_CHECKING, Any

import httpx2

from leporello.messages import text_of
from leporello.store import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WINDOW = 16_000
_TURN = 2  # messages
_MOST_SECONDS = 300  # in which a gateway that was killed is there again
_STARTING = 0.05  # seconds until a client asks a gateway again that is not there


@dataclass(frozen=True, kw_only=True)
class Api:
    """How one API is asked, and where the text of its answer stands."""

    path: str
    history: str
    text: Callable[[Any], str]
    more: dict[str, Any] = field(default_factory=dict)


APIS = {
    "openai": Api(
        path="/v1/chat/completions", history="messages", text=lambda body: body["choices"][0]["message"]["content"]
    ),
    "anthropic": Api(
        path="/v1/messages", history="messages", text=lambda body: body["content"][0]["text"], more={"max_tokens": 900}
    ),
    "responses": Api(path="/v1/responses", history="input", text=lambda body: body["output"][0]["content"][0]["text"]),
}


@dataclass
class Load:
    """What the clients saw."""

    direct: list[float] = field(default_factory=list)
    through: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    talks: list[tuple[str, list[str]]] = field(default_factory=list)
    memory: list[tuple[float, float]] = field(default_factory=list)
    """When, in seconds, and how many MB the gateway had then."""
    kills: int = 0
    repeated: int = 0
    """How many requests were asked again."""
    cpu: tuple[float, float] = (0.0, 0.0)
    """Seconds of the processor, of the gateway and of the model server for the same requests."""


def main(argv: list[str] | None = None) -> int:
    options = size(argv)
    load, wrong = measure(options)
    _report(options, load, wrong)
    return 1 if wrong or load.errors else 0


def measure(options: argparse.Namespace) -> tuple[Load, list[str]]:
    """Run the load; returns what the clients saw, and what is wrong in the store afterwards."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        model = stack.enter_context(started(["-m", "leporello.testing.model_server"]))
        address = model.line.split()[3]
        config = folder / "config.yaml"
        config.write_text(json.dumps(gateway_settings(address)), encoding="utf-8")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = str(free.getsockname()[1])
        command = ["-m", "leporello", "serve", "--port", port, "--config", str(config), "--store", str(folder / "a.db")]
        gateway = Gateway(command, {"LEPORELLO_HOME": str(folder)})
        stack.callback(gateway.close)
        before = gateway.running.cpu_seconds(), model.cpu_seconds()
        load = asyncio.run(_load(options, address, gateway))
        if not options.kills:
            load.cpu = gateway.running.cpu_seconds() - before[0], (model.cpu_seconds() - before[1]) / 2
        gateway.running.process.send_signal(signal.SIGTERM)
        gateway.running.process.wait(120)
        return load, compare(folder / "a.db", load.talks, killed=bool(options.kills))


class Gateway:
    """A gateway on one port that can be killed and started again."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._command = command
        self._environment = environment
        self._stack = ExitStack()
        self.start()

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        self.running = self._stack.enter_context(started(self._command, self._environment))
        self.address = self.running.line.split()[3]

    def close(self) -> None:
        """End it, as a kill does."""
        self._stack.close()


def size(argv: list[str] | None) -> argparse.Namespace:
    """Read how large the load shall be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--conversations", type=int, default=20, help="how many are held at the same time")
    parser.add_argument("--seconds", type=float, default=15.0, help="how long new ones are begun")
    parser.add_argument("--turns", type=int, default=8, help="how long each is")
    parser.add_argument("--words", type=int, default=40, help="how long a message is")
    parser.add_argument("--dialects", nargs="*", choices=APIS, default=["openai"], help="which APIs the clients speak")
    parser.add_argument("--kills", type=int, default=0, help="how often the gateway is killed meanwhile")
    return parser.parse_args(argv)


def gateway_settings(address: str, window: int = WINDOW) -> dict[str, Any]:
    """Return a configuration of a gateway to a model server."""
    key = {"api_key_env": "GATEWAY_BENCHMARK_KEY"}
    upstreams = {"openai": {"base_url": f"{address}/v1", **key}, "anthropic": {"base_url": address, **key}}
    return {"windows": {"m": window}, "gateway": {"upstreams": upstreams, "limits": {"concurrency": 10_000}}}


@dataclass
class Running:
    """A process and the first line it printed."""

    process: subprocess.Popen[str]
    line: str

    def cpu_seconds(self) -> float:
        """Return how much of the processor it has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def megabytes(self) -> float:
        """Return how much memory it and its children have."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
        return sum(map(_megabytes, (str(pid), *children)))


def _megabytes(pid: str) -> float:
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:  # a child that has ended
        return 0.0
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")), 0) / 1024


@contextmanager
def started(arguments: list[str], environment: dict[str, str] | None = None) -> Iterator[Running]:
    """Run a Python program in a process of its own, which has printed that it is ready."""
    given = {**os.environ, "GATEWAY_BENCHMARK_KEY": "benchmark", **(environment or {})}
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True, env=given)
    try:
        assert process.stdout is not None
        yield Running(process, process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


async def _load(options: argparse.Namespace, direct: str, gateway: Gateway) -> Load:
    load = Load()
    until = time.monotonic() + options.seconds
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=2)
    async with httpx2.AsyncClient(limits=limits, timeout=120, headers={"authorization": "Bearer x"}) as client:
        watching = asyncio.ensure_future(_watch(gateway, load))
        killing = asyncio.ensure_future(_kill(options, gateway, load))

        def is_over() -> bool:
            return time.monotonic() >= until and killing.done()

        clients = (
            _client(options, client, number, direct, gateway, is_over, load) for number in range(options.conversations)
        )
        await asyncio.gather(*clients)
        watching.cancel()
        await killing
    return load


async def _watch(gateway: Gateway, load: Load) -> None:
    begun = time.monotonic()
    while True:
        load.memory.append((time.monotonic() - begun, gateway.running.megabytes()))
        await asyncio.sleep(1)


async def _kill(options: argparse.Namespace, gateway: Gateway, load: Load) -> None:
    """Kill the gateway at moments that chance decides, and start it again."""
    chance = random.Random(7)
    for _ in range(options.kills):
        await asyncio.sleep(chance.uniform(0.5, 1.5) * options.seconds / options.kills)
        gateway.close()
        load.kills += 1
        await asyncio.to_thread(gateway.start)


async def _client(
    options: argparse.Namespace,
    client: httpx2.AsyncClient,
    number: int,
    direct: str,
    gateway: Gateway,
    is_over: Callable[[], bool],
    load: Load,
) -> None:
    """Hold one conversation after the other."""
    api, held = APIS[options.dialects[number % len(options.dialects)]], 0
    while not is_over():
        talk: list[dict[str, Any]] = []
        name = ""
        for turn in range(options.turns):
            words = " ".join(f"w{number}-{held}-{turn}-{word}" for word in range(options.words))
            talk.append({"role": "user", "content": words})
            body = {"model": "m", api.history: talk, **api.more}
            try:
                if not options.kills:
                    await _ask(client, f"{direct}{api.path}", body, load.direct)
                answer = await _ask_again(options, client, f"{gateway.address}{api.path}", body, load)
            except (httpx2.HTTPError, ValueError) as error:
                load.errors.append(f"{error!r} of {getattr(error, '_request', None)}")
                return
            name = answer.headers["x-leporello-session"]
            talk.append({"role": "assistant", "content": api.text(answer.json())})
        load.talks.append((name, [str(message["content"]) for message in talk]))
        held += 1


async def _ask_again(
    options: argparse.Namespace, client: httpx2.AsyncClient, url: str, body: Any, load: Load
) -> httpx2.Response:
    """Ask until an answer comes, if the gateway is killed now and then."""
    until = time.monotonic() + _MOST_SECONDS
    while True:
        try:
            return await _ask(client, url, body, load.through)
        except httpx2.TransportError:
            if not options.kills or time.monotonic() > until:
                raise
            load.repeated += 1
            await asyncio.sleep(_STARTING)


async def _ask(client: httpx2.AsyncClient, url: str, body: Any, times: list[float]) -> httpx2.Response:
    start = time.perf_counter()
    answer = await client.post(url, json=body)
    times.append(time.perf_counter() - start)
    answer.raise_for_status()
    return answer


def compare(path: Path, talks: list[tuple[str, list[str]]], *, killed: bool = False) -> list[str]:
    """Return what the store has not, has twice, or has in another place.

    After a kill a first request may stand alone, or with an answer that its client never got, or not even that is
    stored of its conversation: it has no name to be recognised by when it is asked again.
    """
    store = open_store(path)
    try:
        known = {info.key for info in store.conversations()}
        wrong = [f"{name}: not the one that was sent" for name, talk in talks if _texts(store, name) != talk]
        extra = known - {name for name, _ in talks}
        first = {talk[0] for _, talk in talks}
        extra -= {
            name
            for name in extra
            if killed and len(told := _texts(store, name)) <= _TURN and first.issuperset(told[:1])
        }
        return wrong + [f"{name}: nobody sent it" for name in extra]
    finally:
        store.close()


def _texts(store: Any, name: str) -> list[str]:
    return [text_of(row.message) for row in store.messages(name)]


def _report(options: argparse.Namespace, load: Load, wrong: list[str]) -> None:
    print(f"{options.conversations} conversations at once, {len(load.talks)} of {options.turns} turns held")
    print(f"errors: {len(load.errors)} {load.errors[:3]}; lost, doubled or moved: {len(wrong)} {wrong[:3]}")
    if options.kills:
        print(f"killed {load.kills} times; {len(load.through)} answers, {load.repeated} requests asked again")
        return
    print(f"{'':24}{'direct':>10}{'gateway':>10}{'ratio':>8}")
    for label, of in (("p50, ms", median), ("p99, ms", _p99)):
        direct, through = of(load.direct) * 1000, of(load.through) * 1000
        print(f"{label:24}{direct:>10.1f}{through:>10.1f}{through / direct:>8.2f}")
    added = [one - other for one, other in zip(load.through, load.direct, strict=False)]
    print(f"{'added p99 / direct p99':24}{_p99(added) / _p99(load.direct):>28.2f}")
    gateway, model = (1000 * seconds / len(load.through) for seconds in load.cpu)
    print(f"{'processor, ms':24}{model:>10.1f}{gateway:>10.1f}{gateway / model:>8.2f}")
    print(f"memory, MB: {' '.join(f'{level:.0f}' for level in curve(load.memory))}, in eighths of the run")
    print(f"growth in the second half: {growth(load.memory):+.1%}")


def curve(memory: list[tuple[float, float]], parts: int = 8) -> list[float]:
    """Return the level in each part of a run."""
    bounds = [len(memory) * part // parts for part in range(parts + 1)]
    return [median(level for _, level in memory[a:b]) for a, b in pairwise(bounds) if a < b]


def growth(memory: list[tuple[float, float]]) -> float:
    """Return by how much memory grew in the second half of a run, along the line that fits it best."""
    half = memory[len(memory) // 2 :]
    times, levels = [at for at, _ in half], [level for _, level in half]
    slope, start = linear_regression(times, levels)
    return slope * (times[-1] - times[0]) / (start + slope * times[0])


def _p99(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.99)]


if __name__ == "__main__":
    sys.exit(main())
