"""Three keys on one gateway, one of them hostile: what the other two notice.

Several processes: a provider that answers everything at once, `leporello serve` with one for each key, a hostile
client, and this one with two clients that talk. The hostile one sends every body of `benchmarks.gateway_bodies` in
turn, several at a time, floods with short requests, leaves in the middle, and asks for lists and exports. It comes and
goes, so that what the others see with and without it is measured in the same run. At the end the store is compared with
what they sent. A process that only sleeps tells for how long the machine itself ran nobody.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import httpx2

from benchmarks.gateway import Running, _p99, started
from benchmarks.gateway_bodies import OPENAI, bodies
from leporello.gateway.keys import hashed
from leporello.gateway.lag import Lag
from leporello.store import open_store

HOSTILE = "mallory"
TALKING = ("ada", "bob")
TURNS = 6
ROLES = ("measure", "provider", "hostile", "idle")


@dataclass
class Seen:
    """What the two keys saw while they were alone, and while the third was there."""

    alone: list[float] = field(default_factory=list)
    together: list[float] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    talks: list[tuple[str, str, list[str]]] = field(default_factory=list)
    """Key, conversation and texts."""
    memory: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    """The longest gap of the event loop in each phase with the third, in seconds."""
    machine_gaps: list[float] = field(default_factory=list)
    """The same of a process that only sleeps: in such a gap the machine ran nobody."""
    hostile: dict[str, int] = field(default_factory=dict)
    """How often the third got which status."""

    @property
    def ratio(self) -> float:
        """How much longer one request in a hundred takes when the third is there."""
        return _p99(self.together) / _p99(self.alone)

    @property
    def own_gap(self) -> float:
        """The longest gap of the event loop less what a process that only sleeps saw in the same phase, in seconds."""
        return max(gap - machine for gap, machine in zip(self.gaps, self.machine_gaps, strict=True))


def main(argv: list[str] | None = None) -> int:
    options = size(argv)
    if options.role == "provider":
        asyncio.run(_provide())
        return 0
    if options.role == "hostile":
        asyncio.run(_attack(options))
        return 0
    if options.role == "idle":
        asyncio.run(_idle())
        return 0
    seen, lost = measure(options)
    _report(seen, lost)
    return 1 if lost or set(seen.statuses) != {200} else 0


def size(argv: list[str] | None) -> argparse.Namespace:
    """Read how long it shall take, and how long the bodies are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the hostile key is there, in all")
    parser.add_argument("--phase", type=float, default=15.0, help="how long it stays at a time; it is away as long")
    parser.add_argument("--bytes", type=int, default=31 * 1024 * 1024, help="how long its bodies are")
    parser.add_argument("--role", choices=ROLES, default="measure", help=argparse.SUPPRESS)
    parser.add_argument("--address", default="", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def measure(options: argparse.Namespace) -> tuple[Seen, list[str]]:
    """Run it; returns what the two keys saw, and what of theirs is not in the store afterwards."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        provider = stack.enter_context(started(["-m", "benchmarks.gateway_tenants", "--role", "provider"], {}))
        config = folder / "config.yaml"
        config.write_text(json.dumps(_settings(provider.line.strip())), encoding="utf-8")
        command = ["-m", "leporello", "serve", "--port", "0", "--config", str(config), "--store", str(folder / "a.db")]
        gateway = stack.enter_context(started(command, {"LEPORELLO_HOME": str(folder)}))
        seen = asyncio.run(_phases(options, gateway))
        gateway.process.send_signal(signal.SIGTERM)
        gateway.process.wait(300)
        return seen, missing(folder / "a.db", seen.talks)


def missing(path: Path, talks: list[tuple[str, str, list[str]]]) -> list[str]:
    """Return the conversations that are not in the store as they were held."""
    store = open_store(path)
    try:
        return [
            f"{owner}/{name}"
            for owner, name, texts in talks
            if [str(row.message["content"]) for row in store.messages(name, owner=owner)] != texts
        ]
    finally:
        store.close()


def _settings(address: str) -> dict[str, Any]:
    upstreams = {
        "openai": {"base_url": f"{address}/v1", "api_key_env": "GATEWAY_BENCHMARK_KEY"},
        "anthropic": {"base_url": address, "api_key_env": "GATEWAY_BENCHMARK_KEY"},
    }
    keys = {name: hashed(name) for name in (HOSTILE, *TALKING)}
    return {"windows": {"m": 16_000}, "gateway": {"upstreams": upstreams, "api_keys": keys}}


async def _phases(options: argparse.Namespace, gateway: Running) -> Seen:
    seen = Seen()
    address = gateway.line.split()[3]
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=2)
    async with httpx2.AsyncClient(limits=limits, timeout=120, base_url=address) as client:
        await _talk(client, options.phase / 3, seen, [])  # the first requests find cold caches
        watching = asyncio.ensure_future(_watch(gateway, seen))
        idle = await _started("--role", "idle")
        for number in range(max(1, round(options.seconds / options.phase))):
            await _talk(client, options.phase, seen, seen.alone)
            attack = await _attacker(options, address, number)
            await _talk(client, options.phase, seen, seen.together)
            attack.send_signal(signal.SIGTERM)
            statuses, _ = await attack.communicate()
            for status, count in json.loads(statuses or b"{}").items():
                seen.hostile[status] = seen.hostile.get(status, 0) + count
            seen.gaps.append(await _settled(client))
            seen.machine_gaps.append(await _asked(idle))
        watching.cancel()
        await idle.communicate(b"")
    return seen


async def _attacker(options: argparse.Namespace, address: str, number: int) -> asyncio.subprocess.Process:
    """Start the hostile client, and wait until its bodies are made."""
    role = ("--role", "hostile", "--address", address, "--seed", str(number), "--bytes", str(options.bytes))
    return await _started(*role, before=("nice",))


async def _started(*role: str, before: tuple[str, ...] = ()) -> asyncio.subprocess.Process:
    """Start a process of this benchmark, and wait until it is ready."""
    command = (*before, sys.executable, "-m", "benchmarks.gateway_tenants", *role)
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    return process


async def _asked(idle: asyncio.subprocess.Process) -> float:
    """Ask the process that only sleeps for its longest gap in the last minute."""
    assert idle.stdin is not None
    assert idle.stdout is not None
    idle.stdin.write(b"\n")
    return float(await idle.stdout.readline())


async def _settled(client: httpx2.AsyncClient) -> float:
    """Wait until nothing of the hostile key runs; returns the longest gap in the last minute, its own process aside."""
    while True:
        answer = await client.get("/metrics", headers={"x-api-key": TALKING[0]})
        figures = dict(line.rsplit(" ", 1) for line in answer.text.splitlines() if not line.startswith("#"))
        if float(figures["leporello_requests_running"]) == 1:  # this one
            gaps = {name: float(value) for name, value in figures.items() if "event_loop_gap" in name}
            return max(gap for name, gap in gaps.items() if f'"{len(TALKING)}"' not in name)  # the last to be started
        await asyncio.sleep(0.2)


async def _watch(gateway: Running, seen: Seen) -> None:
    while True:
        seen.memory.append(gateway.megabytes())
        await asyncio.sleep(0.5)


async def _talk(client: httpx2.AsyncClient, seconds: float, seen: Seen, times: list[float]) -> None:
    until = time.monotonic() + seconds
    await asyncio.gather(*(_talker(client, owner, until, seen, times) for owner in TALKING))


async def _talker(client: httpx2.AsyncClient, owner: str, until: float, seen: Seen, times: list[float]) -> None:
    """Hold one conversation after the other."""
    headers = {"authorization": f"Bearer {owner}"}
    while time.monotonic() < until:
        talk: list[dict[str, Any]] = []
        name = ""
        for turn in range(TURNS):
            talk.append({"role": "user", "content": f"turn {turn} of {owner} at {time.monotonic()}: " + "word " * 30})
            start = time.perf_counter()
            answer = await client.post(OPENAI, json={"model": "m", "messages": talk}, headers=headers)
            times.append(time.perf_counter() - start)
            seen.statuses.append(answer.status_code)
            if answer.status_code != httpx2.codes.OK:
                return
            name = answer.headers["x-leporello-session"]
            talk.append({"role": "assistant", "content": answer.json()["choices"][0]["message"]["content"]})
        seen.talks.append((owner, name, [message["content"] for message in talk]))


def _report(seen: Seen, lost: list[str]) -> None:
    print(f"{'':12}{'alone':>10}{'with it':>10}{'ratio':>8}")
    for label, of in (("p50, ms", median), ("p99, ms", _p99)):
        alone, together = of(seen.alone) * 1000, of(seen.together) * 1000
        print(f"{label:12}{alone:>10.1f}{together:>10.1f}{together / alone:>8.2f}")
    print(f"{'requests':12}{len(seen.alone):>10}{len(seen.together):>10}")
    print(f"answers of the two keys that are not 200: {sum(status != httpx2.codes.OK for status in seen.statuses)}")
    print(f"conversations of theirs: {len(seen.talks)}; lost or changed: {len(lost)} {lost[:3]}")
    print(f"memory, MB: {seen.memory[0]:.0f} at the start, {max(seen.memory):.0f} at most")
    print(f"longest gap of the event loop, ms: {max(seen.gaps) * 1000:.0f}")
    print(f"longest gap of a process that only sleeps, ms: {max(seen.machine_gaps) * 1000:.0f}")
    print(f"the first less the second in the same phase, at most, ms: {seen.own_gap * 1000:.0f}")
    print(f"what the hostile key got: {dict(sorted(seen.hostile.items()))}")


async def _attack(options: argparse.Namespace) -> None:
    """Send everything, in any order, until told to stop."""
    made = list(bodies(options.bytes).values()) + list(bodies(options.bytes // 64).values())
    random.Random(options.seed).shuffle(made)
    statuses: dict[str, int] = {}
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    print("ready", flush=True)
    headers = {"authorization": f"Bearer {HOSTILE}", "content-type": "application/json"}
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx2.AsyncClient(timeout=600, base_url=options.address, headers=headers, limits=limits) as client:
        work = [_send(client, made[n::4], statuses) for n in range(4)]
        work += [_flood(client, n, statuses) for n in range(24)]
        work += [_leave(client, made, statuses), _read(client, statuses)]
        tasks = [asyncio.ensure_future(one) for one in work]
        await over.wait()
        while running := [task for task in tasks if not task.done()]:  # a time limit that ends just then hides the end
            for task in running:
                task.cancel()
            await asyncio.wait(running, timeout=1)
    print(json.dumps(statuses), flush=True)


async def _idle() -> None:
    """Sleep; print the longest gap of the last minute for every line that is read."""
    lag = Lag()
    watching = asyncio.ensure_future(lag.watch())
    print("ready", flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        print(lag.longest, flush=True)
    watching.cancel()


async def _send(client: httpx2.AsyncClient, made: list[tuple[str, bytes]], statuses: dict[str, int]) -> None:
    while True:
        for path, body in made:
            await _count(client.post(path, content=body), statuses)


async def _flood(client: httpx2.AsyncClient, number: int, statuses: dict[str, int]) -> None:
    turn = 0
    while True:
        turn += 1
        body = {"model": "m", "messages": [{"role": "user", "content": f"{number} {turn}"}]}
        await _count(client.post(OPENAI, json=body), statuses)


async def _leave(client: httpx2.AsyncClient, made: list[tuple[str, bytes]], statuses: dict[str, int]) -> None:
    """Leave before the answer comes."""
    while True:
        for path, body in made:
            try:
                await asyncio.wait_for(_count(client.post(path, content=body), statuses), 0.5)
            except TimeoutError:
                statuses["left"] = statuses.get("left", 0) + 1


async def _read(client: httpx2.AsyncClient, statuses: dict[str, int]) -> None:
    """Ask for lists and exports of what it has stored."""
    while True:
        listed = await client.get("/v1/sessions", params={"limit": 1000})
        names = [one["id"] for one in listed.json().get("sessions", [])] if listed.is_success else []
        for name in names[:5]:
            await _count(client.get(f"/v1/sessions/{name}/export"), statuses)
        await asyncio.sleep(0.05)


async def _count(request: Any, statuses: dict[str, int]) -> None:
    try:
        status = str((await request).status_code)
    except httpx2.HTTPError as error:
        status = type(error).__name__
    statuses[status] = statuses.get(status, 0) + 1


async def _provide() -> None:
    """Answer every request at once, without reading it."""
    usage = {"prompt_tokens": 10, "completion_tokens": 1, "total_tokens": 11}
    choice = {"index": 0, "message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}
    openai = {"id": "x", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}
    said = [{"type": "text", "text": "yes"}]
    anthropic = {"id": "x", "type": "message", "role": "assistant", "model": "m", "content": said, "usage": {}}
    answers = {True: json.dumps(openai).encode(), False: json.dumps(anthropic | {"stop_reason": "end_turn"}).encode()}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lines = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n") if b": " in line)
                left = int(lines.get(b"content-length", b"0"))
                while left:
                    left -= len(await reader.read(min(left, 1 << 20)) or b"x" * left)
                answer = answers[b"completions" in head.split(b"\r\n")[0]]
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n")
                writer.write(b"content-length: %d\r\n\r\n" % len(answer) + answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 20)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    sys.exit(main())
