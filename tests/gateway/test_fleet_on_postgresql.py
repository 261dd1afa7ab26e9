"""Several gateways and workers on one database, killed one after the other, and the database restarted.

Clients do what clients do when a gateway goes away: they send the same request again, to the next one.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from threading import Semaphore
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from tests.fixtures.databases import SOAK

from leporello.gateway.server import bound
from leporello.lcm import verify
from leporello.store import FOLD
from leporello.store.postgres import PostgresStore
from leporello.testing.model_server import ModelServer, Step

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.fixtures.cluster import Cluster

    from leporello.testing.model_server import ReceivedRequest

pytestmark = pytest.mark.slow

GATEWAYS, WORKERS = (3, 2) if SOAK else (2, 1)
CONVERSATIONS, TURNS, CLIENTS = (300, 9, 12) if SOAK else (6, 9, 3)
KILLS = 60 if SOAK else 3
LONGEST_SECONDS = 120.0
SUMMARY = "## Goal\nRead the harbour's papers.\n\n## Progress\n### Done\n- Read one of them."
FILLER = "and then some words about ships, cargo and weather " * 60


def answers(request: ReceivedRequest) -> Step:
    last = str(request.messages[-1]["content"])
    return Step(text=f"answer to {last[:20]}: {FILLER}" if last.startswith("question") else SUMMARY)


class Started:
    """A process of `leporello` that is started again when it was killed."""

    def __init__(self, *arguments: str) -> None:
        self._command = [sys.executable, "-m", "leporello", *arguments]
        self.kills = 0
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith("leporello ")

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=30)
        self.kills += 1

    def stop(self) -> int:
        self.process.terminate()
        self.process.communicate(timeout=90)
        return self.process.returncode


class Fleet:
    """Gateways and workers on one database."""

    def __init__(self, folder: Path, database: Cluster, upstream: ModelServer) -> None:
        config = folder / "config.yaml"
        openai = {"base_url": upstream.openai_url, "api_key_env": "UPSTREAM_KEY"}
        settings = {
            "context": {"engine": "lcm"},
            "lcm": {"background": "workers", "threshold": 0.4, "leaf_tokens": 1_000},
            "windows": {"m": 16_000},
            "gateway": {"upstreams": {"openai": openai}},
        }
        config.write_text(json.dumps(settings), encoding="utf-8")
        self.url = database.url
        common = ["--config", str(config), "--store", self.url]
        ports = [_free_port() for _ in range(GATEWAYS)]
        self.addresses = [f"http://127.0.0.1:{port}" for port in ports]
        with ThreadPoolExecutor(GATEWAYS + WORKERS) as pool:
            gateways = [pool.submit(Started, "serve", "--port", str(port), *common) for port in ports]
            workers = [pool.submit(Started, "worker", *common) for _ in range(WORKERS)]
            self.gateways = [each.result() for each in gateways]
            self.workers = [each.result() for each in workers]

    @property
    def processes(self) -> list[Started]:
        return [*self.gateways, *self.workers]

    def stop(self) -> None:
        for each in self.processes:
            each.stop()


def _free_port() -> int:
    with bound("127.0.0.1", 0) as listener:
        return int(listener.getsockname()[1])


class Client:
    """Goes through its conversation, and asks the next gateway when one does not answer."""

    def __init__(self, number: int, addresses: list[str], answered: Semaphore) -> None:
        self._addresses = addresses
        self._answered = answered
        self._next = number
        self.number = number
        self.history: list[dict[str, Any]] = []
        self.conversation = ""
        self.failures = 0

    def talk(self) -> None:
        for turn in range(TURNS):
            question = {"role": "user", "content": f"question {turn} of {self.number}: {FILLER}"}
            answer = self._asked([*self.history, question])
            self.history += [question, {"role": "assistant", "content": answer}]
            self._answered.release()

    def _asked(self, messages: list[dict[str, Any]]) -> str:
        deadline = time.monotonic() + LONGEST_SECONDS
        while True:
            self._next += 1
            address = self._addresses[self._next % len(self._addresses)]
            try:
                got = httpx2.post(
                    f"{address}/v1/chat/completions", json={"model": "m", "messages": messages}, timeout=60
                )
            except httpx2.TransportError:
                got = None
            if got is not None and got.status_code == 200:
                self.conversation = got.headers["x-leporello-session"]
                return str(got.json()["choices"][0]["message"]["content"])
            if got is not None and got.status_code < 500:
                raise AssertionError(got.text)
            self.failures += 1
            if time.monotonic() > deadline:
                raise AssertionError(f"no answer for {LONGEST_SECONDS} s: {got and got.text}")
            threading.Event().wait(0.1)


@pytest.fixture
def database(clusters: type[Cluster]) -> Cluster:
    return clusters().start()


@pytest.fixture
def fleet(tmp_path: Path, database: Cluster) -> Iterator[Fleet]:
    with ExitStack() as stack:
        upstream = stack.enter_context(ModelServer(then=answers))
        found = Fleet(tmp_path, database, upstream)
        stack.callback(found.stop)
        yield found


def problems(store: PostgresStore, client: Client) -> list[str]:
    """Return what is wrong with a conversation: everything acknowledged is on its path, once, in order, folded once."""
    found = [row.message["content"] for row in store.messages(client.conversation)]
    said = [message["content"] for message in client.history]
    wrong = (
        [] if found == said else [f"{client.conversation}: {len(found)} messages on the path, {len(said)} were said"]
    )
    wrong += map(str, [*verify(store, client.conversation), *store.check_chain(client.conversation)])
    nodes = [*store.nodes(client.conversation), *store.prepared_nodes(client.conversation)]
    by_model = [node for node in nodes if node.made_by == "model" and "replaces" not in node.meta]
    twice = Counter((node.covers, node.children) for node in by_model)
    return wrong + [f"{client.conversation}: {count} times {what}" for what, count in twice.items() if count > 1]


def _worked(store: PostgresStore, names: list[str]) -> bool:
    """Wait until a worker has written a node: the conversations have ended, so no fold overtakes what is left to do."""
    deadline = time.monotonic() + LONGEST_SECONDS
    while time.monotonic() < deadline:
        nodes = (node for name in names for node in (*store.nodes(name), *store.prepared_nodes(name)))
        if any(node.made_by == "model" for node in nodes):
            return True
        threading.Event().wait(0.2)
    return False


def test_nothing_is_lost_while_processes_are_killed_and_the_database_is_restarted(
    fleet: Fleet, database: Cluster
) -> None:
    answered = Semaphore(0)
    clients = [Client(number, fleet.addresses, answered) for number in range(CONVERSATIONS)]
    chance = random.Random(7)
    with ThreadPoolExecutor(CLIENTS) as pool:
        talks = [pool.submit(client.talk) for client in clients]
        for killed in range(KILLS):
            for _ in range(CONVERSATIONS * TURNS // (KILLS + 1)):
                assert answered.acquire(timeout=LONGEST_SECONDS)
            if killed == 1:
                database.stop()
                database.start()
            victim = fleet.workers[0] if killed == 0 else chance.choice(fleet.processes)
            victim.kill()
            victim.start()
        for talk in talks:
            talk.result()
    with closing(PostgresStore(fleet.url)) as store:
        assert [problem for client in clients for problem in problems(store, client)] == []
        assert store.check_index() == store.check_file() == []
        names = [client.conversation for client in clients]
        folds = [row for name in names for row in store.journal(name) if row.reason == FOLD]
        assert folds
        assert _worked(store, names), "no worker wrote anything"
        # the planted defect: a message that is lost
        with store._db.plain() as connection:
            connection.execute(b"DELETE FROM leporello.messages WHERE seq = 3")
        assert all(problems(store, client) for client in clients)
    print(f"{KILLS} killed, {sum(client.failures for client in clients)} requests sent again, {len(folds)} folds")
