"""What real clients do to their history between two requests, and how many conversations and branches that makes.

A branch begins where something else is said behind an earlier message; `ConversationInfo.branches` counts them. A
client that trims, clears, moves or rewrites what it sent before goes on in the same branch. Nobody joins a stranger's
conversation by sending the same words.

LEPORELLO_SOAK=1 has as many turns as a long day.
"""

from __future__ import annotations

import json
import os
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

import httpx2
import pytest
from tests.gateway.harbour import APIS, Messages, Model, assistant, long_question, made, question, rows, user

from leporello.gateway.answer_reader import IncomingAnswer
from leporello.messages import text_of
from leporello.session.answers import read_answer
from leporello.session.conversation import Conversation
from leporello.testing.model_server import ModelServer, anthropic_dialect, responses_dialect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tests.fixtures.gateway import Gateway, Wire

    from leporello.store import Store

pytestmark = pytest.mark.slow

SESSION = "x-leporello-session"
IS_SOAK = bool(os.environ.get("LEPORELLO_SOAK"))
TURNS = 200 if IS_SOAK else 12
LONG_TURNS = 200 if IS_SOAK else 60  # enough for several folds
STREAMED_TURNS = 1_000 if IS_SOAK else 12
NEVER_FOLDED = {"windows": {"m": 10_000_000}}  # the provider of these clients would hold the summary back
KEPT = 7  # messages of a history that is trimmed
REMINDER = "Reply with whole files only. Never leave code out."
CLEARED = "[Old tool result content cleared]"
FINISH = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"


@dataclass
class Client:
    """Sends histories to one gateway or to several in turn, and counts what is said."""

    gateways: list[Gateway]
    model: Model
    http: httpx2.Client
    api: str = "openai"
    turns: int = TURNS
    question: Callable[[int], str] = question
    said: int = 0
    _turn: Iterator[int] = field(default_factory=count)

    def ask(self, messages: Messages, new: int = 1) -> dict[str, Any]:
        """Send a history, of which some messages are new; returns the answer as a message."""
        self.model.expected.add(text_of(messages[-1]))
        gateway = self.gateways[next(self._turn) % len(self.gateways)]
        path, body = APIS[self.api]
        got = self.http.post(f"{gateway.address}{path}", json={"model": "m", **body(messages)})
        assert got.status_code == 200, got.text
        self.said += new + 1
        answer = read_answer(got.json()).message
        return {key: value for key, value in answer.items() if key in ("role", "content", "tool_calls")}

    def say(self, talk: Messages, text: str) -> None:
        """Add what the user says and the answer to a history."""
        talk.append(user(text))
        talk.append(self.ask(talk))


@contextmanager
def connected(
    start: Callable[..., Gateway], naming: str, gateways: int = 1, config: dict[str, Any] | None = None, **client: Any
) -> Iterator[Client]:
    """Connect a client to gateways on one store with a model behind them."""
    model = Model()
    with ModelServer(then=model) as upstream, http_client(naming) as http:
        yield Client([start(upstream, config) for _ in range(gateways)], model, http, **client)


def http_client(naming: str) -> httpx2.Client:
    return httpx2.Client(headers={SESSION: "harbour"} if naming == "named" else {}, timeout=30)


def linear(client: Client, turns: int = 0, system: Callable[[int], str] | None = None) -> Messages:
    """Send the history as it was, and longer each time, perhaps behind a system prompt for each turn."""
    talk: Messages = [{"role": "system", "content": ""}] if system else []
    for number in range(turns or client.turns):
        if system:
            talk[0]["content"] = system(number)
        client.say(talk, client.question(number))
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
    for number in range(client.turns):
        answer = client.ask([*talk, user(f"{client.question(number)}\n\n{REMINDER}")])
        talk += [user(client.question(number)), answer]


def trimmed(client: Client) -> Messages:
    """Send only the newest messages."""
    talk: Messages = []
    for number in range(client.turns):
        talk.append(user(client.question(number)))
        talk.append(client.ask(talk[-KEPT:]))
    return talk


def cleared(client: Client) -> None:
    """Clear the outputs of tools that are older than two turns."""
    talk: Messages = []
    for number in range(client.turns):
        client.say(talk, f"read log {number}")
        (call,) = talk[-1]["tool_calls"]
        output = "\n".join(f"container {number}-{line} was moved" for line in range(20))
        talk.append({"role": "tool", "tool_call_id": call["id"], "content": output})
        talk.append(client.ask(talk))
        for old in [message for message in talk if message["role"] == "tool"][:-2]:
            old["content"] = CLEARED


FILES = "These are the files:\n" + "print('harbour')\n" * 20


def moved(client: Client) -> None:
    """Put the same files in front of the newest message, wherever that is."""
    files = [user(FILES), assistant("Ok.")]
    talk: Messages = []
    client.said += len(files)
    for number in range(client.turns):
        answer = client.ask([*talk, *files, user(client.question(number))])
        talk += [user(client.question(number)), answer]


def noted(client: Client) -> None:
    """Keep a note of the system before the newest message, as it is now."""
    talk: Messages = []
    for number in range(client.turns):
        note = {"role": "system", "content": f"{client.turns - number} questions are left."}
        answer = client.ask([{"role": "system", "content": "Be brief."}, *talk, note, user(client.question(number))], 2)
        talk += [user(client.question(number)), answer]


def mapped(client: Client) -> None:
    """Begin with a map of the repository that changes with every turn."""
    talk: Messages = []
    client.said += 1
    for number in range(client.turns):
        overview = [user(repository(number)), assistant("Ok.")]
        answer = client.ask([*overview, *talk, user(client.question(number))], 2)
        talk += [user(client.question(number)), answer]


def repository(turn: int) -> str:
    """Return the map of the repository at a turn."""
    return "The repository:\n" + "\n".join(f"src/part_{part}.py" for part in range(turn + 5))


def dated(client: Client) -> None:
    """Write the time into the first message."""
    talk: Messages = []
    for number in range(client.turns):
        talk.append(user(client.question(number)))
        first = {**talk[0], "content": f"It is {8 + number // 60:02}:{number % 60:02}. {talk[0]['content']}"}
        talk.append(client.ask([first, *talk[1:]]))


def restarted(client: Client) -> Messages:
    """Come back with an empty list under the old name."""
    linear(client, client.turns // 2)
    talk: Messages = []
    for number in range(client.turns // 2, client.turns):
        client.say(talk, client.question(number))
    return talk


def respelled(rewrite: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[Client], None]:
    """Call tools, and send back what was said in another spelling."""

    def do(client: Client) -> None:
        talk: Messages = []
        for number in range(client.turns):
            image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{number}", "detail": "low"}}
            talk.append({"role": "user", "content": [{"type": "text", "text": f"read log {number}"}, image]})
            talk.append(client.ask(talk))
            talk[-1] = rewrite(talk[-1])
            (call,) = talk[-1]["tool_calls"]
            talk.append(rewrite({"role": "tool", "tool_call_id": call["id"], "content": f"container {number}"}))
            talk.append(rewrite(client.ask(talk)))
            talk[:-1] = map(rewrite, talk[:-1])

    return do


def with_other_ids(message: dict[str, Any]) -> dict[str, Any]:
    """Give calls names of one's own."""
    if message["role"] == "tool":
        return {**message, "tool_call_id": f"own_{message['tool_call_id'].removeprefix('own_')}"}
    calls = [{**call, "id": f"own_{call['id'].removeprefix('own_')}"} for call in message.get("tool_calls") or ()]
    return {**message, "tool_calls": calls} if calls else message


def with_newlines(message: dict[str, Any]) -> dict[str, Any]:
    """End every text with a new line."""
    return {**message, "content": f"{content}\n"} if isinstance(content := message.get("content"), str) else message


def with_other_arguments(message: dict[str, Any]) -> dict[str, Any]:
    """Write the arguments of calls anew."""
    calls = [
        {
            **call,
            "function": {
                **call["function"],
                "arguments": json.dumps(json.loads(call["function"]["arguments"]), indent=1),
            },
        }
        for call in message.get("tool_calls") or ()
    ]
    return {**message, "tool_calls": calls} if calls else message


def with_other_detail(message: dict[str, Any]) -> dict[str, Any]:
    """Ask for images in another detail."""
    parts = message["content"] if isinstance(message.get("content"), list) else []
    shown = [
        {**one, "image_url": {**one["image_url"], "detail": "high"}} if "image_url" in one else one for one in parts
    ]
    return {**message, "content": shown} if parts else message


def with_other_words(message: dict[str, Any]) -> dict[str, Any]:
    """Say something more each time: that is no other spelling."""
    return {**message, "content": f"{message['content']}!"} if message["role"] == "tool" else message


def greeted(client: Client) -> None:
    """Be many people who begin with the same word."""
    for number in range(client.turns):
        talk: Messages = []
        client.say(talk, "hi")
        client.say(talk, f"I am person {number}")


def exemplified(client: Client) -> None:
    """Begin every unrelated task with the same example of a dialogue."""
    example = [user("Where is container 1?"), assistant("At berth 1."), user("And 2?"), assistant("At berth 2.")]
    for number in range(client.turns):
        talk = list(example)
        client.said += len(example)
        client.say(talk, client.question(number))
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
    beside: Callable[[int], str] | None = None
    """What it has in its history beside the turns, at each of them."""


SHAPES = {
    "linear": Shape(do=linear),
    "regenerate twice": Shape(do=regenerated, branches=3),
    "edit the last question": Shape(do=edited, branches=2),
    "a side question": Shape(do=asked_aside, branches=2),
    "a reminder removed one turn later": Shape(do=reminded, rows=1.5),
    "head trimmed": Shape(do=trimmed),
    "old outputs cleared": Shape(do=cleared, rows=1.5),
    "a file block that moves": Shape(do=moved, rows=1.5, beside=lambda _: FILES),
    "a note that stays the newest": Shape(do=noted, rows=1.5),
    "a repository map that changes": Shape(do=mapped, rows=2.0, beside=repository),
    "the time in the first message": Shape(do=dated, rows=1.5),
    "calls under other names": Shape(do=respelled(with_other_ids)),
    "texts end with a new line": Shape(do=respelled(with_newlines)),
    "arguments written anew": Shape(do=respelled(with_other_arguments)),
    "images in another detail": Shape(do=respelled(with_other_detail)),
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
    """Yield every shape with and without a name, and without one in the other APIs too."""
    for name, shape in SHAPES.items():
        for naming, api in (("named", "openai"), *(("unnamed", api) for api in APIS)):
            if ONLY.get(name, naming) == naming:
                yield pytest.param(shape, naming, api, id=f"{name}, {naming}, {api}")


@pytest.mark.parametrize(("shape", "naming", "api"), list(cases()))
def test_what_a_client_makes(
    shape: Shape, naming: str, api: str, start: Callable[..., Gateway], tmp_path: Path
) -> None:
    with connected(start, naming, shape.gateways, api=api) as client:
        path = shape.do(client)
        gateway = client.gateways[0]
        assert made(gateway) == (shape.conversations, shape.branches)
        assert client.said <= rows(tmp_path) <= shape.rows * client.said
        if path is not None:
            (info,) = gateway.store.conversations()
            stored = [text_of(row.message) for row in gateway.store.messages(info.key)]
            assert stored == [text_of(message) for message in path]


def test_planted_another_spelling_that_is_another_word(start: Callable[..., Gateway], tmp_path: Path) -> None:
    shape = Shape(do=respelled(with_other_words))
    with pytest.raises(AssertionError):
        test_what_a_client_makes(shape, "unnamed", "openai", start, tmp_path)


Talk: TypeAlias = "Callable[..., AbstractContextManager[Client]]"
"""Connects a client of long questions, in a window in which they are folded."""


@pytest.fixture(params=["compressor", "lcm"])
def long_talk(request: pytest.FixtureRequest, start: Callable[..., Gateway]) -> Talk:
    """Connect clients through gateways with each engine."""
    config = {"context": {"engine": request.param}, "lcm": {"background": False}}
    return partial(connected, start, config=config, turns=LONG_TURNS, question=long_question)


def check_folds(shape: Shape, talk: Talk, folder: Path) -> None:
    """A history that the client changes is one conversation, folded no more often than one that only grows.

    What the client has in a request beside the turns is the system prompt of the one that only grows: it says as much.
    """
    with talk(naming="unnamed") as client:
        shape.do(client)
        store = client.gateways[0].store
        (info,) = store.conversations()
        assert info.branches == 1
        assert rows(folder) <= shape.rows * client.said
    with talk(naming="named") as client:
        linear(client, system=shape.beside)
    folded, of_linear = folds(store, info.key), folds(store, "harbour")
    assert of_linear > 1
    assert folded <= of_linear


def folds(store: Store, conversation: str) -> int:
    """Return how often a conversation was folded."""
    return sum(row.reason == "fold" for row in store.journal(conversation))


CHANGED = [name for name, shape in SHAPES.items() if shape.rows > 1 or name == "head trimmed"]


@pytest.mark.parametrize("name", CHANGED)
def test_a_changed_history_is_folded_no_more_often(name: str, long_talk: Talk, tmp_path: Path) -> None:
    check_folds(SHAPES[name], long_talk, tmp_path)


def test_planted_a_fold_at_every_turn(long_talk: Talk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def eager(client: Client) -> None:
        with monkeypatch.context() as planted:
            planted.setattr(Conversation, "_is_due", lambda *_: True)
            reminded(client)

    with pytest.raises(AssertionError, match="<="):
        check_folds(Shape(do=eager, rows=1.5), long_talk, tmp_path)


@dataclass(frozen=True, kw_only=True)
class Streamed:
    """An answer as a provider streams it: its text, the event behind which nothing is added to it, the last event.

    A client may take either of them for the end: `finished` and `ended` are words in them.
    """

    text: Callable[[str, str], list[bytes]]
    finish: bytes = b""
    end: bytes = b""
    finished: str = ""
    ended: str


def of_openai(_: str, text: str) -> list[bytes]:
    delta = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": text}}]}
    return [f"data: {json.dumps(delta)}\n\n".encode()]


def of_anthropic(name: str, text: str) -> list[bytes]:
    begun = {"id": f"msg_{name}", "type": "message", "role": "assistant", "content": [], "usage": {"input_tokens": 1}}
    return [
        anthropic_dialect.event("message_start", message=begun),
        anthropic_dialect.event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        anthropic_dialect.event("content_block_delta", index=0, delta={"type": "text_delta", "text": text}),
        anthropic_dialect.event("content_block_stop", index=0),
    ]


def of_responses(name: str, text: str) -> list[bytes]:
    said = {"type": "output_text", "text": text, "annotations": []}
    item = {"type": "message", "id": f"msg_{name}", "role": "assistant", "status": "completed", "content": [said]}
    response = {"id": f"resp_{name}", "object": "response", "status": "completed", "output": [item]}
    return list(responses_dialect.events(response))


STREAMED = {
    "openai": Streamed(text=of_openai, finish=FINISH, end=DONE, finished='"finish_reason"', ended="[DONE]"),
    "anthropic": Streamed(
        text=of_anthropic,
        finish=anthropic_dialect.event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 9}),
        end=anthropic_dialect.event("message_stop"),
        finished='"stop_reason"',
        ended='"message_stop"',
    ),
    "responses": Streamed(text=of_responses, ended='"response.completed"'),
}


def streamed(gateway: Gateway, wire: Wire, api: str, naming: str, *, early: bool) -> int:
    """Stream answers, and post the next turn as soon as the last event was seen, or the one before; returns the rows.

    The body of an answer ends when the next turn is under way; with `early` the last event, too, comes only then.
    """
    path, body = APIS[api]
    answer = STREAMED[api]
    talk: Messages = []
    wire.headers = {"content-type": "text/event-stream"}
    with http_client(naming) as http, ExitStack() as under_way:
        for number in range(STREAMED_TURNS):
            text = f"answer {number}: it stands at berth {number}, behind crane {7919 * number}."
            hold = threading.Event()
            end: list[bytes | threading.Event] = [hold, answer.end] if early else [answer.end, hold]
            wire.chunks = [chunk for chunk in (*answer.text(str(number), text), answer.finish, *end) if chunk]
            talk.append(user(question(number)))
            asked = {"model": "m", "stream": True, **body(talk)}
            before = under_way.pop_all()
            lines = under_way.enter_context(http.stream("POST", f"{gateway.address}{path}", json=asked)).iter_lines()
            under_way.callback(list, lines)
            under_way.callback(hold.set)
            before.close()
            while (answer.finished if early else answer.ended) not in next(lines):
                pass
            talk.append(assistant(text))
    return len(talk)


NAMED_APIS = [(api, naming) for api in APIS for naming in ("named", "unnamed")]


@pytest.mark.parametrize(("api", "naming"), NAMED_APIS)
def test_a_turn_that_is_posted_when_the_last_event_arrives(
    api: str, naming: str, start: Callable[..., Gateway], wire: Wire, tmp_path: Path
) -> None:
    gateway = start(wire, NEVER_FOLDED)
    said = streamed(gateway, wire, api, naming, early=False)
    assert made(gateway) == (1, 1)
    assert rows(tmp_path) == said


@pytest.mark.parametrize(("api", "naming"), [case for case in NAMED_APIS if STREAMED[case[0]].finished])
def test_a_turn_that_is_posted_before_the_last_event(
    api: str, naming: str, start: Callable[..., Gateway], wire: Wire, tmp_path: Path
) -> None:
    """What ends the answer was seen, and the provider is silent before its last event.

    In the Responses API nothing but the last event says that an answer is whole.
    """
    gateway = start(wire, NEVER_FOLDED)
    said = streamed(gateway, wire, api, naming, early=True)
    assert made(gateway) == (1, 1)
    assert rows(tmp_path) == said


def test_planted_an_answer_that_is_recorded_when_its_body_ends(
    start: Callable[..., Gateway], wire: Wire, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(IncomingAnswer, "is_finished", False)
    with pytest.raises(AssertionError):
        test_a_turn_that_is_posted_before_the_last_event("openai", "unnamed", start, wire, tmp_path)
