"""A real process, killed, stopped and starved: every acknowledged message is there afterwards, once."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any

import httpx2
import openai
import pytest
from tests.gateway.process import WINDOW, Process, served

from leporello.store import open_store
from leporello.testing.model_server import Failure, ModelServer, Step

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.fixtures.gateway import Wire

    from leporello.testing.model_server import ReceivedRequest

pytestmark = pytest.mark.slow

SOAK = bool(os.environ.get("LEPORELLO_SOAK"))
KILLS = 50 if SOAK else 9
HALF_A_STREAM = 'data: {"id": "1", "choices": [{"index": 0, "delta": {"role": "assistant", "content": "Half an"}}]}\n\n'
PROVIDER = r"""
import sys, time
from http.server import BaseHTTPRequestHandler, HTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"%x\r\n%b\r\n" % (len(sys.argv[1]), sys.argv[1].encode()))
        time.sleep(600)

    def log_message(self, *args):
        pass

server = HTTPServer(("127.0.0.1", 0), Handler)
print(f"provider on http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
"""
"""A provider that says half of its answer, and then nothing until it is killed."""


def question(number: int) -> str:
    return f"question {number}: " + "some words to read " * 60


def check_kept(path: Path, talk: list[Any]) -> None:
    """Everything that was acknowledged is stored, once and in order; nothing else is.

    A first request that was never answered may stand alone: nobody knows whose it was when it comes again.
    """
    store = open_store(path)
    try:
        infos = list(store.conversations())
        info = max(infos, key=lambda one: one.messages)
        others = {row.message["content"] for one in infos if one is not info for row in store.messages(one.key)}
        assert others <= {said["content"] for said in talk[:1]}
        assert [row.message["content"] for row in store.messages(info.key)] == [said["content"] for said in talk]
        assert store.check_chain(info.key) == []
    finally:
        store.close()


class Assassin:
    """Answers as a model, and kills the gateway when it is told to: at a turn, or while it folds."""

    def __init__(self) -> None:
        self.victim: Process | None = None
        self.moment = ""

    def __call__(self, request: ReceivedRequest) -> Step:
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

    def slow(request: ReceivedRequest) -> str:
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


def test_a_provider_that_is_silent_in_the_middle_is_given_up(tmp_path: Path, wire: Wire) -> None:
    talk: list[Any] = [{"role": "user", "content": question(0)}]
    wire.headers = {"content-type": "text/event-stream"}
    wire.chunks = [HALF_A_STREAM.encode(), threading.Event()]
    with served(tmp_path, wire.openai_url, limits={"seconds": 0.5}) as gateway:
        with pytest.raises((openai.APIError, httpx2.HTTPError)):
            gateway.ask(talk, lambda: None)
        assert wire.left.wait(30)
        gateway.stop()
    with ModelServer() as upstream, served(tmp_path, upstream) as gateway:
        talk.append({"role": "assistant", "content": gateway.ask(talk)})
    check_kept(tmp_path / "store.db", talk)


@contextmanager
def provider(*command: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run a provider in a process of its own; returns it and its port."""
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        yield process, int(re.findall(r":(\d+)", line)[0])
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_provider_that_is_killed_and_comes_back(tmp_path: Path) -> None:
    """In the middle of a stream, then down for a while: the client learns it each time, and nothing is lost."""
    talk: list[Any] = [{"role": "user", "content": question(0)}]
    with ExitStack() as stack:
        dying, port = stack.enter_context(provider("-c", PROVIDER, HALF_A_STREAM))
        gateway = stack.enter_context(served(tmp_path, f"http://127.0.0.1:{port}/v1"))
        with pytest.raises((openai.APIError, httpx2.HTTPError)):
            gateway.ask(talk, dying.kill)
        dying.wait()
        for _ in range(2):
            got = gateway.post(talk)
            assert (got.status_code, got.headers["retry-after"]) == (502, "5")
            assert got.json()["error"]["message"] == "the provider cannot be reached."
        stack.enter_context(provider("-m", "leporello.testing.model_server", "--port", str(port)))
        for number in range(1, 3):
            talk.append({"role": "assistant", "content": gateway.ask(talk)})
            talk.append({"role": "user", "content": question(number)})
        talk.append({"role": "assistant", "content": gateway.ask(talk)})
        assert gateway.stop() == 0
    check_kept(tmp_path / "store.db", talk)


def stored(path: Path, key: str) -> list[Any]:
    """Return what the store has of a conversation, seen from another process."""
    with closing(open_store(path)) as store:
        return [row.message["content"] for row in store.messages(key)]


def check_acknowledged(path: Path, key: str, talk: list[Any]) -> None:
    """Everything that was acknowledged is stored, once and in order; a message without an answer may be, too."""
    kept, said = stored(path, key), [one["content"] for one in talk]
    assert kept in (said, said[:-1])


def says(number: int) -> str:
    return f"{number} " + os.urandom(4000).hex()


@pytest.mark.parametrize("stream", [False, True])
def test_a_full_disk_acknowledges_nothing_that_it_does_not_keep(stream: bool, tmp_path: Path) -> None:
    """Again and again: the disk is full, the client learns it, room is made (or it is killed), the talk goes on."""
    talk: list[Any] = []
    problems: list[Exception] = []
    on_chunk = (lambda: None) if stream else None
    with ModelServer() as upstream:
        for life in range(3):
            with served(tmp_path, upstream) as gateway:
                for fill in range(1 + 3 * life, 4 + 3 * life):
                    gateway.room_on_disk(300_000 * fill)
                    while len(problems) < fill:
                        assert len(talk) < 600
                        if not talk or talk[-1]["role"] == "assistant":
                            talk.append({"role": "user", "content": says(len(talk))})
                        try:
                            talk.append({"role": "assistant", "content": gateway.ask(talk, on_chunk)})
                        except (openai.APIError, httpx2.HTTPError) as error:
                            problems.append(error)
                    check_acknowledged(tmp_path / "store.db", conversation(tmp_path), talk)
                gateway.kill()
        with served(tmp_path, upstream) as gateway:
            talk.append({"role": "assistant", "content": gateway.ask(talk)})
    refused = [problem for problem in problems if isinstance(problem, openai.APIStatusError)]
    assert refused or stream  # a stream may only have broken off, before its end
    assert {problem.status_code for problem in refused} <= {503}
    assert all("cannot be stored at the moment" in problem.message for problem in refused)
    check_kept(tmp_path / "store.db", talk)


def conversation(folder: Path) -> str:
    with closing(open_store(folder / "store.db")) as store:
        return next(store.conversations()).key


def test_a_full_disk_under_the_agent(tmp_path: Path) -> None:
    """A client of the agent API is told, too; what was said again after room was made is there once."""
    said: list[Any] = []
    with ModelServer() as upstream, served(tmp_path, upstream) as gateway:
        address = f"{gateway.address}/v1/sessions/room/messages"
        for fill in range(1, 5):
            gateway.room_on_disk(600_000 * fill)
            while True:
                assert len(said) < 400
                text = says(len(said))
                got = httpx2.post(address, json={"content": text}, timeout=60)
                if got.status_code != 200:
                    break
                said += [text, got.json()["content"]]
            assert (got.status_code, got.headers["retry-after"]) == (503, "5")
            assert "cannot be stored at the moment" in got.json()["error"]["message"]
            assert stored(tmp_path / "store.db", "room") in (said, [*said, text])
            gateway.room_on_disk()
            got = httpx2.post(address, json={"content": text}, timeout=60)
            assert got.status_code == 200
            said += [text, got.json()["content"]]
        assert gateway.stop() == 0
    assert stored(tmp_path / "store.db", "room") == said


def test_an_answer_that_was_passed_on_and_not_kept_would_be_noticed(tmp_path: Path) -> None:
    with closing(open_store(tmp_path / "store.db")) as store:
        store.append("a", [{"role": "user", "content": "one"}])
    said = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "yes"}, {"content": "two"}]
    check_acknowledged(tmp_path / "store.db", "a", said[:1])
    for wrong in (said, said[1:]):
        with pytest.raises(AssertionError):
            check_acknowledged(tmp_path / "store.db", "a", wrong)
