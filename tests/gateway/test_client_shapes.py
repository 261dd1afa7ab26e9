"""What real clients do to their history between two requests, and how many conversations and branches that makes.

A branch begins where something else is said behind an earlier message; `ConversationInfo.branches` counts them. A
client that trims, clears, moves or rewrites what it sent before goes on in the same branch. Nobody joins a stranger's
conversation by sending the same words.

LEPORELLO_SOAK=1 has as many turns as a long day.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from leporello.messages import text_of
from leporello.testing.model_server import ModelServer, Step, Use

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.fixtures.gateway import Gateway, Wire

    from leporello.testing.model_server import Request

pytestmark = pytest.mark.slow

Messages = list[dict[str, Any]]
PATH = "/v1/chat/completions"
SESSION = "x-leporello-session"
IS_SOAK = bool(os.environ.get("LEPORELLO_SOAK"))
TURNS = 200 if IS_SOAK else 12
FOLDED_TURNS = 36
KEPT = 7  # messages of a history that is trimmed
REMINDER = "Reply with whole files only. Never leave code out."
CLEARED = "[Old tool result content cleared]"
FINISH = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"
GREETING = "Hello! How can I help you today?"


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def question(number: int) -> str:
    return f"question {number}: where does container {7919 * number % 9973} stand?"


def long_question(number: int) -> str:
    return f"{question(number)} " + " ".join(f"container {100 * number + at} stands at berth {at}" for at in range(48))


class Model:
    """A provider that greets everybody alike, calls a tool when told to read, and never answers twice the same."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self.expected: set[str] = set()
        """The newest messages of what clients send; whatever else is asked is asked for a summary."""
        self.summaries = 0
        self.sent: list[Messages] = []

    def __call__(self, request: Request) -> Step:
        number, newest = next(self._numbers), request.messages[-1]
        text = text_of(newest)
        if text not in self.expected:
            self.summaries += 1
            return Step(text=f"## Goal\nThe harbour is put in order.\n\n## Progress\n- {number} containers were found.")
        self.sent.append(request.messages)
        if text == "hi":
            return Step(text=GREETING)
        if text.startswith("read") and newest["role"] == "user":
            return Step(tool_calls=[Use(name="read_file", arguments={"path": f"log/{number}.txt"})])
        cranes = " ".join(f"crane {100 * number + crane}" for crane in range(5))
        return Step(text=f"answer {number}: it stands at berth {number % 12}, and free are {cranes}.")


@dataclass
class Client:
    """Sends histories to one gateway or to several in turn, and counts what is said."""

    gateways: list[Gateway]
    model: Model
    http: httpx2.Client
    said: int = 0
    _turn: Iterator[int] = field(default_factory=count)

    def ask(self, messages: Messages, new: int = 1) -> dict[str, Any]:
        """Send a history of which so many messages are new; returns the answer as a message."""
        self.model.expected.add(text_of(messages[-1]))
        gateway = self.gateways[next(self._turn) % len(self.gateways)]
        got = self.http.post(f"{gateway.address}{PATH}", json={"model": "m", "messages": messages})
        assert got.status_code == 200, got.text
        self.said += new + 1
        answer = got.json()["choices"][0]["message"]
        return {key: value for key, value in answer.items() if key in ("role", "content", "tool_calls")}

    def say(self, talk: Messages, text: str) -> None:
        """Add what the user says and the answer to a history."""
        talk.append(user(text))
        talk.append(self.ask(talk))


@contextmanager
def connected(
    start: Callable[..., Gateway], naming: str, gateways: int = 1, config: dict[str, Any] | None = None
) -> Iterator[Client]:
    """Connect a client to gateways on one store with a model behind them."""
    model = Model()
    with ModelServer(then=model) as upstream, http_client(naming) as http:
        yield Client([start(upstream, config) for _ in range(gateways)], model, http)


def http_client(naming: str) -> httpx2.Client:
    return httpx2.Client(headers={SESSION: "harbour"} if naming == "named" else {}, timeout=30)


def linear(client: Client, turns: int = TURNS, ask: Callable[[int], str] = question) -> Messages:
    """Send the history as it was, and longer each time."""
    talk: Messages = []
    for number in range(turns):
        client.say(talk, ask(number))
    return talk


def regenerated(client: Client) -> Messages:
    """Have the last answer made anew, twice."""
    talk = linear(client)
    for _ in range(2):
        talk[-1] = client.ask(talk[:-1], new=0)
    client.say(talk, "and the next one?")
    return talk


def edited(client: Client) -> Messages:
    """Ask the last question in other words."""
    talk = linear(client)[:-2]
    client.say(talk, "in other words: which berth is free?")
    client.say(talk, "and the next one?")
    return talk


def asked_aside(client: Client) -> Messages:
    """Ask for a title with the whole history, and go on without it."""
    talk = linear(client)
    client.ask([*talk, user("Suggest a title for this conversation.")])
    client.say(talk, "and the next one?")
    return talk


def reminded(client: Client) -> None:
    """Put a reminder into the newest message, and take it out one turn later, as aider does."""
    talk: Messages = []
    for number in range(TURNS):
        answer = client.ask([*talk, user(f"{question(number)}\n\n{REMINDER}")])
        talk += [user(question(number)), answer]


def trimmed(client: Client) -> Messages:
    """Send only the newest messages."""
    talk: Messages = []
    for number in range(TURNS):
        talk.append(user(question(number)))
        talk.append(client.ask(talk[-KEPT:]))
    return talk


def cleared(client: Client) -> None:
    """Clear the outputs of tools that are older than two turns."""
    talk: Messages = []
    for number in range(TURNS):
        client.say(talk, f"read log {number}")
        (call,) = talk[-1]["tool_calls"]
        output = "\n".join(f"container {number}-{line} was moved" for line in range(20))
        talk.append({"role": "tool", "tool_call_id": call["id"], "content": output})
        talk.append(client.ask(talk))
        for old in [message for message in talk if message["role"] == "tool"][:-2]:
            old["content"] = CLEARED


def moved(client: Client) -> None:
    """Put the same files in front of the newest message, wherever that is."""
    files = [user("These are the files:\n" + "print('harbour')\n" * 20), assistant("Ok.")]
    talk: Messages = []
    client.said += len(files)
    for number in range(TURNS):
        answer = client.ask([*talk, *files, user(question(number))])
        talk += [user(question(number)), answer]


def mapped(client: Client) -> None:
    """Begin with a map of the repository that changes with every turn."""
    talk: Messages = []
    client.said += 1
    for number in range(TURNS):
        overview = "\n".join(f"src/part_{part}.py" for part in range(number + 5))
        answer = client.ask([user(f"The repository:\n{overview}"), assistant("Ok."), *talk, user(question(number))], 2)
        talk += [user(question(number)), answer]


def dated(client: Client) -> None:
    """Write the time into the first message."""
    talk: Messages = []
    for number in range(TURNS):
        talk.append(user(question(number)))
        first = {**talk[0], "content": f"It is {8 + number // 60:02}:{number % 60:02}. {talk[0]['content']}"}
        talk.append(client.ask([first, *talk[1:]]))


def restarted(client: Client) -> Messages:
    """Come back with an empty list under the old name."""
    linear(client, TURNS // 2)
    talk: Messages = []
    for number in range(TURNS // 2, TURNS):
        client.say(talk, question(number))
    return talk


def greeted(client: Client) -> None:
    """Be many people who begin with the same word."""
    for number in range(TURNS):
        talk: Messages = []
        client.say(talk, "hi")
        client.say(talk, f"I am person {number}")


def exemplified(client: Client) -> None:
    """Begin every unrelated task with the same example of a dialogue."""
    example = [user("Where is container 1?"), assistant("At berth 1."), user("And 2?"), assistant("At berth 2.")]
    for number in range(TURNS):
        talk = list(example)
        client.said += len(example)
        client.say(talk, question(number))
        client.say(talk, "and the next one?")


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What a client does, what it makes, and how many rows at most are stored for each message that was said.

    What `do` returns is the path of the head; nothing where a client sends more than is said.
    """

    do: Callable[[Client], Messages | None]
    conversations: int = 1
    branches: int = 1
    rows: float = 1.0
    gateways: int = 1


SHAPES = {
    "linear": Shape(do=linear),
    "regenerate twice": Shape(do=regenerated, branches=3),
    "edit the last question": Shape(do=edited, branches=2),
    "a side question": Shape(do=asked_aside, branches=2),
    "a reminder removed one turn later": Shape(do=reminded, rows=1.5),
    "head trimmed": Shape(do=trimmed),
    "old outputs cleared": Shape(do=cleared, rows=1.5),
    "a file block that moves": Shape(do=moved, rows=2.0),
    "a repository map that changes": Shape(do=mapped, rows=2.0),
    "the time in the first message": Shape(do=dated, rows=1.5),
    "two gateways in turn": Shape(do=linear, gateways=2),
    "back with an empty list": Shape(do=restarted, branches=2),
    "many people who say hi": Shape(do=greeted, conversations=TURNS, branches=TURNS),
    "one example before every task": Shape(do=exemplified, conversations=TURNS, branches=TURNS),
}
ONLY = {
    "back with an empty list": "named",
    "many people who say hi": "unnamed",
    "one example before every task": "unnamed",
}


def cases() -> Iterator[Any]:
    """Yield every shape with and without a name."""
    for name, shape in SHAPES.items():
        for naming in ("unnamed", "named"):
            if ONLY.get(name, naming) == naming:
                yield pytest.param(shape, naming, id=f"{name}, {naming}")


def rows(folder: Path) -> int:
    """Return how many messages are stored, whatever became of them."""
    with closing(sqlite3.connect(folder / "store.db")) as connection:
        found: int = connection.execute("SELECT count(*) FROM messages").fetchone()[0]
    return found


def made(gateway: Gateway) -> tuple[int, int]:
    """Return how many conversations there are, and how many branches they have."""
    infos = list(gateway.store.conversations())
    return len(infos), sum(getattr(info, "branches", 1) for info in infos)


@pytest.mark.parametrize(("shape", "naming"), list(cases()))
def test_what_a_client_makes(shape: Shape, naming: str, start: Callable[..., Gateway], tmp_path: Path) -> None:
    with connected(start, naming, shape.gateways) as client:
        path = shape.do(client)
        gateway = client.gateways[0]
        assert made(gateway) == (shape.conversations, shape.branches)
        assert client.said <= rows(tmp_path) <= shape.rows * client.said
        if path is not None:
            (info,) = gateway.store.conversations()
            assert gateway.texts(info.key) == [text_of(message) for message in path]


def streamed(gateway: Gateway, wire: Wire, naming: str, tail: Callable[[threading.Event], list[Any]], seen: str) -> int:
    """Stream answers, and post the next turn as soon as something was seen of the last; returns what was said.

    An answer ends when the next turn is under way.
    """
    talk: Messages = []
    wire.headers = {"content-type": "text/event-stream"}
    with http_client(naming) as http, ExitStack() as under_way:
        for number in range(TURNS):
            text = f"answer {number}: it stands at berth {number}, behind crane {7919 * number}."
            delta = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": text}}]}
            hold = threading.Event()
            wire.chunks = [f"data: {json.dumps(delta)}\n\n".encode(), FINISH, *tail(hold)]
            talk.append(user(question(number)))
            body = {"model": "m", "messages": talk, "stream": True}
            before = under_way.pop_all()
            lines = under_way.enter_context(http.stream("POST", f"{gateway.address}{PATH}", json=body)).iter_lines()
            under_way.callback(list, lines)
            under_way.callback(hold.set)
            before.close()
            while seen not in next(lines):
                pass
            talk.append(assistant(text))
    return len(talk)


@pytest.mark.parametrize("naming", ["unnamed", "named"])
def test_a_turn_that_is_posted_when_the_last_event_arrives(
    naming: str, start: Callable[..., Gateway], wire: Wire, tmp_path: Path
) -> None:
    gateway = start(wire)
    said = streamed(gateway, wire, naming, lambda hold: [DONE, hold], seen="[DONE]")
    assert made(gateway) == (1, 1)
    assert rows(tmp_path) == said


def test_a_turn_that_is_posted_before_the_last_event(start: Callable[..., Gateway], wire: Wire) -> None:
    """The answer that it follows is not recorded yet; the name says which conversation it is."""
    gateway = start(wire)
    streamed(gateway, wire, "named", lambda hold: [hold, DONE], seen='"finish_reason"')
    assert made(gateway)[0] == 1


@pytest.fixture(params=["compressor", "lcm"])
def engine(request: pytest.FixtureRequest) -> dict[str, Any]:
    """A configuration with each engine."""
    return {"context": {"engine": request.param}, "lcm": {"background": False}}


def test_a_long_conversation_is_folded_and_then_there_is_room(
    engine: dict[str, Any], start: Callable[..., Gateway]
) -> None:
    """The base of the next one: as many turns as it adds need no fold."""
    with connected(start, "unnamed", config=engine) as client:
        talk = linear(client, FOLDED_TURNS, long_question)
        summaries = client.model.summaries
        assert summaries
        for number in range(4):
            client.say(talk, long_question(number))
        assert client.model.summaries == summaries


@pytest.mark.parametrize("naming", ["unnamed", "named"])
def test_forks_need_no_summary_and_leave_the_prefix(
    naming: str, engine: dict[str, Any], start: Callable[..., Gateway], tmp_path: Path
) -> None:
    with connected(start, naming, config=engine) as client:
        model, talk = client.model, linear(client, FOLDED_TURNS, long_question)
        summaries, window = model.summaries, [*model.sent[-1], talk[-1]]
        for _ in range(2):
            talk[-1] = client.ask(talk[:-1], new=0)
            assert model.sent[-1] == window[:-1]
        del talk[-2:]
        client.say(talk, "in other words: which berth is free?")
        assert model.sent[-1][:-1] == window[:-2]
        window = [*model.sent[-1], talk[-1]]
        client.ask([*talk, user("Suggest a title for this conversation.")])
        assert model.sent[-1][:-1] == window
        client.say(talk, "and the next one?")
        assert model.sent[-1][:-1] == window
        assert model.summaries == summaries
        assert made(client.gateways[0]) == (1, 5)
        assert rows(tmp_path) == client.said
