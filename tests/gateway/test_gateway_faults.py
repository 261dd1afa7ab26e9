"""A real process, killed, stopped and starved: every acknowledged message is there afterwards, once."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx2
import openai
import pytest

from leporello.store import open_store
from leporello.testing.model_server import Failure, ModelServer, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from leporello.testing.model_server import Request

SOAK = bool(os.environ.get("LEPORELLO_SOAK"))
KILLS = 50 if SOAK else 9
WINDOW = 16_000


class Process:
    """`leporello serve` in a process of its own."""

    def __init__(self, folder: Path, upstream: ModelServer, *, most_bytes: int | None = None, **gateway: Any) -> None:
        self.store = folder / "store.db"
        one = {"base_url": upstream.openai_url, "api_key_env": "UPSTREAM_KEY"}
        settings = {"windows": {"m": WINDOW}, "gateway": {"upstreams": {"openai": one}, **gateway}}
        config = folder / "gateway.yaml"
        config.write_text(json.dumps(settings), encoding="utf-8")  # JSON is YAML
        command = ["serve", "--port", "0", "--config", str(config), "--store", str(self.store)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "leporello", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=None if most_bytes is None else lambda: _starve(most_bytes),  # noqa: PLW1509 - no threads there
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("leporello gateway on http://127.0.0.1:"), self.process.communicate()[1]
        self.address = line.split()[3]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def close(self) -> None:
        if self.process.poll() is None:
            self.kill()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()

    def ask(self, talk: list[Any], on_chunk: Callable[[], None] | None = None) -> str:
        """Ask through the official client; `on_chunk` is called when the first piece of the answer is there."""
        with openai.OpenAI(base_url=f"{self.address}/v1", api_key="any", max_retries=0, timeout=60) as client:
            if on_chunk is None:
                return str(client.chat.completions.create(model="m", messages=talk).choices[0].message.content)
            text = ""
            for chunk in client.chat.completions.create(model="m", messages=talk, stream=True):
                on_chunk()
                text += chunk.choices[0].delta.content or ""
            return text

    def post(self, talk: list[Any]) -> httpx2.Response:
        """Ask without a client's help."""
        body = {"model": "m", "messages": talk}
        return httpx2.post(f"{self.address}/v1/chat/completions", json=body, timeout=60)


def _starve(most_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))


@contextmanager
def served(folder: Path, upstream: ModelServer, **options: Any) -> Iterator[Process]:
    process = Process(folder, upstream, **options)
    try:
        yield process
    finally:
        process.close()


def question(number: int) -> str:
    return f"question {number}: " + "some words to read " * 60


def check_kept(path: Path, talk: list[Any]) -> None:
    """Everything that was acknowledged is stored, once and in order; nothing else is."""
    store = open_store(path)
    try:
        (info,) = store.conversations()
        assert [row.message["content"] for row in store.messages(info.key)] == [said["content"] for said in talk]
        assert store.check_chain(info.key) == []
    finally:
        store.close()


class Assassin:
    """Answers as a model, and kills the gateway when it is told to: at a turn, or while it folds."""

    def __init__(self) -> None:
        self.victim: Process | None = None
        self.moment = ""

    def __call__(self, request: Request) -> Step:
        is_fold = not str(request.messages[-1]["content"]).startswith("question")
        if self.victim is not None and self.moment == ("fold" if is_fold else "turn"):
            self.strike()
        return Step(text="an empty summary helps nobody" if is_fold else f"answer to {request.messages[-1]['content']}")

    def strike(self) -> None:
        if self.victim is not None:
            self.victim.kill()
            self.victim = None


@pytest.mark.slow
def test_killed_in_turns_streams_and_folds(tmp_path: Path) -> None:
    assassin = Assassin()
    talk: list[Any] = []
    kills = 0
    with ModelServer(window=WINDOW, then=assassin) as upstream:
        while kills < KILLS:
            assassin.moment = ("turn", "stream", "fold")[kills % 3]
            with served(tmp_path, upstream) as gateway:
                while gateway.process.poll() is None:
                    if not talk or talk[-1]["role"] == "assistant":
                        talk.append({"role": "user", "content": question(len(talk) // 2)})
                        assassin.victim = gateway  # the first request after a start is the repeated one, and lives
                    strike = assassin.strike if assassin.moment == "stream" else None
                    try:
                        text = gateway.ask(talk, strike)
                    except (openai.APIError, httpx2.HTTPError):
                        gateway.process.wait(30)  # it was killed, and nothing else went wrong
                        continue
                    talk.append({"role": "assistant", "content": text})
            kills += 1
        with served(tmp_path, upstream) as gateway:
            if talk[-1]["role"] == "user":
                talk.append({"role": "assistant", "content": gateway.ask(talk)})
    check_kept(tmp_path / "store.db", talk)


def test_a_store_that_lost_a_message_would_be_noticed(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store.db")
    store.append("a", [{"role": "user", "content": "one"}])
    store.close()
    check_kept(tmp_path / "store.db", [{"role": "user", "content": "one"}])
    for wrong in (["one", "two"], [], ["one", "one"]):
        with pytest.raises(AssertionError):
            check_kept(tmp_path / "store.db", [{"role": "user", "content": text} for text in wrong])


def test_told_to_stop_it_finishes_what_runs(tmp_path: Path) -> None:
    """A turn is under way when the signal comes: the client gets all of it, and it is stored."""
    asked, go_on = threading.Event(), threading.Event()

    def slow(request: Request) -> str:
        asked.set()
        go_on.wait(30)
        return "the whole answer"

    talk: list[Any] = [{"role": "user", "content": "question"}]
    with ModelServer([slow]) as upstream, served(tmp_path, upstream) as gateway:
        answers: list[str] = []
        asking = threading.Thread(target=lambda: answers.append(gateway.ask(talk)))
        asking.start()
        assert asked.wait(30)
        gateway.process.send_signal(signal.SIGTERM)
        go_on.set()
        asking.join(30)
        assert answers == ["the whole answer"]
        assert gateway.process.wait(60) == 0
    check_kept(tmp_path / "store.db", [*talk, {"role": "assistant", "content": "the whole answer"}])


@pytest.mark.parametrize(
    "failure", [Failure.SERVER_ERROR, Failure.OVERLOADED, Failure.CLOSED_BEFORE_ANSWER, Failure.CLOSED_IN_ANSWER]
)
def test_a_provider_that_fails_costs_no_message(failure: Failure, tmp_path: Path) -> None:
    talk: list[Any] = []
    with ModelServer() as upstream, served(tmp_path, upstream) as gateway:
        for number in range(6):
            talk.append({"role": "user", "content": question(number)})
            upstream.fail(failure)
            for stream in (False, True):
                with pytest.raises((openai.APIError, httpx2.HTTPError)):
                    gateway.ask(talk, (lambda: None) if stream else None)
                upstream.fail(failure)
            upstream.heal()
            talk.append({"role": "assistant", "content": gateway.ask(talk)})
        assert gateway.stop() == 0
    check_kept(tmp_path / "store.db", talk)


def test_a_slow_provider_is_given_up(tmp_path: Path) -> None:
    talk: list[Any] = [{"role": "user", "content": "hello"}]
    limits = {"seconds": 0.5}
    with ModelServer() as upstream, served(tmp_path, upstream, limits=limits) as gateway:
        upstream.fail(Failure.SLOW_START, seconds=30)
        with pytest.raises(openai.InternalServerError) as caught:
            gateway.ask(talk)
        assert caught.value.status_code == 504
        talk.append({"role": "assistant", "content": gateway.ask(talk)})


def test_a_full_disk_acknowledges_nothing_that_it_does_not_keep(tmp_path: Path) -> None:
    talk: list[Any] = []
    with ModelServer() as upstream:
        with served(tmp_path, upstream, most_bytes=700_000) as gateway:
            while True:
                talk.append({"role": "user", "content": f"{len(talk)} " + os.urandom(4000).hex()})
                got = gateway.post(talk)
                if got.status_code != 200:
                    break
                talk.append(got.json()["choices"][0]["message"])
                assert len(talk) < 200
            assert got.status_code == 503
            gateway.kill()
        with served(tmp_path, upstream) as gateway:
            talk.append({"role": "assistant", "content": gateway.ask(talk)})
    check_kept(tmp_path / "store.db", talk)
