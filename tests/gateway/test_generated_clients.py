"""Clients that do anything to their histories, in any order: none gets a word of another, and nothing is lost.

They ask again, edit, ask aside, fail, repeat ids of calls, and change what they sent before, each in its way, while
gateways on one store come and go. After every request

- its conversation, and what the provider got, has no word of another client;
- what the provider got is valid, and ends with what the client said last;
- the window of a branch that was never folded shows its path;

and at the end everything that was said is stored, and every check of the store is clean.
"""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import ExitStack
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from starlette.requests import Request
from tests.gateway.harbour import Messages, assistant, user

from leporello.config import Config
from leporello.gateway import client_sessions, recognition
from leporello.gateway.client_connection import ClientConnection
from leporello.gateway.client_session import ClientSession
from leporello.gateway.dialects import OPENAI
from leporello.gateway.drop_in import DropIn
from leporello.gateway.recognition import Recognised
from leporello.gateway.state import State
from leporello.lcm import verify
from leporello.messages import role_of, text_of, violations
from leporello.session import conversation
from leporello.store import KnownPlace, open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from leporello.store import Store

pytestmark = pytest.mark.slow

SOAK = bool(os.environ.get("LEPORELLO_SOAK"))
OWN_WORDS = ("reminded", "moved", "trimmed")
"""Who changes what was said may make it what another said: these clients say nothing that others say too."""
STYLES = ("plain", "reminded", "moved", "noted", "cleared", "trimmed", "new lines", "one id")
SHORT = ("Done.", "Yes.", "Hello! How can I help?")
FILES = "print('harbour')\n" * 20
KEPT = 7


class Answered:
    """A reply of the provider."""

    with_client_key = is_stream = False
    headers: dict[str, str] = {}  # noqa: RUF012 - nobody changes them

    def __init__(self, status: int, message: Any) -> None:
        self.status, self.is_success = status, status == 200
        self._body = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode()

    def passed_back(self) -> list[tuple[bytes, bytes]]:
        return []

    async def read(self) -> bytes:
        return self._body

    peek = read

    async def error_inside(self, _: Any) -> None:
        return None

    async def aclose(self) -> None:
        return None


class World:
    """Gateways on one store, and a provider that answers as it is told, without a network."""

    def __init__(self, engine: str, window: int, gateways: int) -> None:
        upstream = {"base_url": "http://127.0.0.1:9/v1", "api_key_env": "UPSTREAM_KEY"}
        self._config = Config.from_mapping(
            {
                "windows": {"m": window},
                "context": {"engine": engine},
                "lcm": {"background": False},
                "gateway": {"upstreams": {"openai": upstream}},
            }
        )
        self.store = open_store(":memory:")
        self._loop = asyncio.new_event_loop()
        self._stack = ExitStack()
        self.states: list[State] = []
        self._ends: list[Any] = []
        for _ in range(gateways):
            self._start(len(self.states))
        self.sent: Messages = []
        self.reply = Answered(200, assistant("Yes."))

    def _start(self, at: int) -> None:
        state = State(self._config, self.store, engine_options={"llm": None}, purges=False)
        opened = state.open()
        self._loop.run_until_complete(opened.__aenter__())
        state.upstreams["openai"].send = self._send  # type: ignore[method-assign, assignment]
        self.states[at:] = [state, *self.states[at + 1 :]]
        self._ends[at:] = [opened, *self._ends[at + 1 :]]

    def restart(self, at: int) -> None:
        """End one gateway, and start another one."""
        self._loop.run_until_complete(self._ends[at].__aexit__(None, None, None))
        self._start(at)

    async def _send(self, _: str, content: bytes, *__: Any) -> Answered:
        self.sent = json.loads(content)["messages"]
        return self.reply

    def ask(self, at: int, messages: Messages, reply: Answered) -> str:
        """Send a history to one of the gateways; returns the name of its conversation."""
        self.reply = reply
        heads: list[Any] = []

        async def send(message: Any) -> None:
            heads.append(message)

        async def receive() -> Any:
            return {"type": "http.disconnect"}

        client = ClientConnection(receive, send)
        request = Request({"type": "http", "method": "POST", "path": "/", "headers": [], "query_string": b""})
        body = {"model": "m", "messages": messages}
        drop_in, content = DropIn(self.states[at], OPENAI), json.dumps(body).encode()
        asked = drop_in.parsed(json.loads(content), request, content, "")
        self._loop.run_until_complete(drop_in._exchange(asked, client, ""))
        assert heads[0]["status"] == reply.status
        name: bytes = dict(heads[0]["headers"])[b"x-leporello-session"]
        return name.decode()

    def close(self) -> None:
        for end in self._ends:
            self._loop.run_until_complete(end.__aexit__(None, None, None))
        self._loop.close()
        self.store.close()


class Client:
    """What one client has of its conversation, and how it sends that."""

    def __init__(self, number: int, style: str) -> None:
        self.mark, self.style = f"<{number}>", style
        self.history: Messages = []
        self.said: set[str] = set()

    def sent(self, history: Messages) -> Messages:
        """Return a history as this client sends it."""
        shown = [dict(message) for message in history]
        newest = max((at for at, message in enumerate(shown) if message["role"] == "user"), default=0)
        if self.style == "reminded":
            shown[newest]["content"] += "\n\nBe brief."
        elif self.style == "moved":
            shown[newest:newest] = [user(f"{self.mark} {FILES}"), assistant("Ok.")]
        elif self.style == "noted":
            shown.insert(newest, {"role": "system", "content": f"{len(shown)} messages"})
        elif self.style == "cleared":
            for message in [one for one in shown if one["role"] == "tool"][:-1]:
                message["content"] = "[cleared]"
        elif self.style == "trimmed":
            users = [at for at in range(len(shown)) if shown[at]["role"] == "user" and len(shown) - at <= KEPT]
            shown = shown[users[0] :] if users else shown
        elif self.style == "new lines":
            shown = [{**one, "content": f"{one['content']}\n"} if one["content"] else one for one in shown]
        elif self.style == "one id":
            shown = [with_one_id(message) for message in shown]
        return shown


def with_one_id(message: Any) -> Any:
    """Name every call alike, whatever the provider named it."""
    if message["role"] == "tool":
        return {**message, "tool_call_id": "call_1"}
    calls = [{**call, "id": "call_1"} for call in message.get("tool_calls", ())]
    return {**message, "tool_calls": calls} if calls else message


class Clients(RuleBasedStateMachine):
    """Some clients, and what is checked after each of their requests."""

    @initialize(
        styles=st.lists(st.sampled_from(STYLES), min_size=1, max_size=3),
        engine=st.sampled_from(["compressor", "lcm"]),
        window=st.sampled_from([4_000, 1_000_000]),
        gateways=st.integers(1, 2),
    )
    def begin(self, styles: list[str], engine: str, window: int, gateways: int) -> None:
        self.world = World(engine, window, gateways)
        self.clients = [Client(number, style) for number, style in enumerate(styles)]
        self.numbers = count(1)

    def _client(self, share: float) -> Client:
        return self.clients[int(share * (len(self.clients) - 1))]

    def _ask(self, client: Client, history: Messages, kind: str, gateway: float, *, fails: bool = False) -> Any:
        """Send a history; returns the answer."""
        number = next(self.numbers)
        answer: Any = assistant(f"{client.mark} answer {number} " + f"{number} " * 60)
        if kind == "short":
            answer = assistant(SHORT[number % len(SHORT)])
        elif kind.startswith("call"):
            function = {"name": "read", "arguments": json.dumps({"path": f"file {number}"})}
            id_ = "call_1" if kind == "call again" else f"call_{number}"
            answer = {"role": "assistant", "content": None}
            answer["tool_calls"] = [{"id": id_, "type": "function", "function": function}]
        messages = client.sent(history)
        at = int(gateway * (len(self.world.states) - 1))
        name = self.world.ask(at, messages, Answered(500 if fails else 200, answer))
        client.said.update(text_of(one).strip() for one in history if text_of(one) != "[cleared]")
        if not fails:
            client.said.add(text_of(answer).strip())
        stored = "".join(text_of(row.message) for row in self.world.store.messages(name, superseded=True))
        assert not [one.mark for one in self.clients if one is not client and one.mark in stored]
        self._check_sent(client, messages)
        self._check_windows(at, name)
        return answer

    def _check_sent(self, client: Client, messages: Messages) -> None:
        sent = self.world.sent
        others = [one.mark for one in self.clients if one is not client]
        assert not [mark for mark in others if mark in json.dumps(sent)]
        assert sent == messages or violations(sent, "openai") == []  # its own bytes are its own affair
        newest = max((at for at, one in enumerate(messages) if one["role"] == "assistant"), default=-1)
        unread = [text_of(one) for one in messages[newest + 1 :] if one["role"] != "system"]
        assert [text_of(one) for one in sent if role_of(one) != "system"][-len(unread) :] == unread

    def _check_windows(self, at: int, name: str) -> None:
        clients = self.world.states[at].clients
        for key in clients.pool:
            held = clients.pool.get(key)
            if key[1] != name or held is None or held._session is None:
                continue
            opened = held._session._conversation
            branch = opened.branch
            is_newest = opened.persistence.tip == branch.store.newest(name, **branch.here)
            if is_newest and not opened.accounts.conversation.compactions:
                said = opened.window.entries[opened.window.systems() :]
                shown = [source.id for entry in said for source in entry.sources]
                assert shown == [row.id for row in branch.messages()]

    # what clients do

    SHARE = st.floats(0, 1)
    ANSWERS = st.sampled_from(["long", "long", "short", "call", "call again"])

    @rule(who=SHARE, kind=ANSWERS, words=st.sampled_from([1, 20, 200]), gateway=SHARE, common=st.booleans())
    def say(self, who: float, kind: str, words: int, gateway: float, common: bool) -> None:
        """Go on: with a result if one is waited for, else with a question, perhaps with one that all ask."""
        client = self._client(who)
        history = client.history
        number = next(self.numbers)
        text = f"{client.mark} says {number}: " + f"word{number} " * words
        if history and (calls := history[-1].get("tool_calls")):
            history.append({"role": "tool", "tool_call_id": calls[0]["id"], "content": text.strip()})
        else:
            common = common and client.style not in OWN_WORDS
            history.append(user("go on" if common else text.strip()))
        history.append(self._ask(client, history, kind, gateway))

    @rule(who=SHARE, kind=ANSWERS, gateway=SHARE)
    def ask_again(self, who: float, kind: str, gateway: float) -> None:
        """Have the last answer made anew."""
        client = self._client(who)
        if client.history:
            client.history[-1] = self._ask(client, client.history[:-1], kind, gateway)

    @rule(who=SHARE, back=st.integers(1, 3), gateway=SHARE)
    def edit(self, who: float, back: int, gateway: float) -> None:
        """Ask an earlier question in other words, and forget what followed."""
        client = self._client(who)
        users = [at for at, message in enumerate(client.history) if message["role"] == "user"]
        if users:
            del client.history[users[-min(back, len(users))] :]
            self.say(who, "long", 20, gateway, common=False)

    @rule(who=SHARE, gateway=SHARE)
    def ask_aside(self, who: float, gateway: float) -> None:
        """Ask for a title, and forget the answer."""
        client = self._client(who)
        if client.history and not client.history[-1].get("tool_calls"):
            self._ask(client, [*client.history, user("Suggest a title.")], "short", gateway)

    @rule(who=SHARE, gateway=SHARE)
    def fail(self, who: float, gateway: float) -> None:
        """Get no answer, and forget the question."""
        client = self._client(who)
        if not (client.history and client.history[-1].get("tool_calls")):
            question = user(f"{client.mark} fails {next(self.numbers)}")
            self._ask(client, [*client.history, question], "long", gateway, fails=True)

    @precondition(lambda self: hasattr(self, "world"))
    @rule(gateway=SHARE)
    def restart(self, gateway: float) -> None:
        """End a gateway, and start it again."""
        self.world.restart(int(gateway * (len(self.world.states) - 1)))

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        try:
            store = self.world.store
            names = [info.key for info in store.conversations()]
            stored = "\n".join(text_of(row.message) for name in names for row in store.messages(name, superseded=True))
            assert [text for client in self.clients for text in client.said if text not in stored] == []
            assert [finding for name in names for finding in verify(store, name)] == []
            assert store.check_file() == []
        finally:
            self.world.close()


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPSTREAM_KEY", "a key")


EXAMPLES = 400 if SOAK else 12
QUICK = settings(stateful_step_count=30, deadline=None, database=None, phases=[Phase.generate])
"""Without shrinking, which takes minutes: the steps of a failure are printed."""


def test_whatever_clients_do_their_conversations_are_their_own_and_whole() -> None:
    run_state_machine_as_test(Clients, settings=settings(QUICK, max_examples=EXAMPLES))


def talk_with_repeated_ids(clients: Clients) -> None:
    """Call tools again and again under one id, each time through the other gateway."""
    clients.begin(["plain"], "compressor", 1_000_000, 2)
    for number in range(5):
        clients.say(0, "call again", 1, number % 2, common=False)


def talk_in_turn(clients: Clients) -> None:
    """Be two clients who speak in turn."""
    clients.begin(["plain", "moved"], "compressor", 1_000_000, 1)
    for number in range(4):
        clients.say(number % 2, "long", 1, 0, common=False)


def talk_alike(clients: Clients) -> None:
    """Be two clients who say the same, are answered alike, ask for a title, and then go on in their own words."""
    clients.begin(["plain", "plain"], "compressor", 1_000_000, 1)
    for who in range(2):
        clients.say(who, "short", 1, 0, common=True)
        clients.ask_aside(who, 0)
    for who in range(2):
        clients.say(who, "long", 1, 0, common=False)


def newest_place(_: Store, __: Any, places: Any, count: int, *___: Any, **____: Any) -> Recognised:
    """Go on in the conversation of the newest place of a history, whoever else has it."""
    return Recognised(places=places, count=count, rewritten=True)


def newest_conversation(store: Store, *_: Any, **__: Any) -> Recognised:
    """Find the conversation that was used last, whoever asks."""
    found = [(info.key, store.newest(info.key)) for info in store.conversations()]
    places = [KnownPlace(hash=b"", conversation=key, branch=1, id=id_, is_tip=True) for key, id_ in found if id_]
    return Recognised(places=places[:1])


FORGETFUL = [
    (conversation, "renamed_calls", lambda _: {}),
    (ClientSession, "_with_own_ids", lambda _, new, __: new),
]
"""Only the process that stored a call finds its result."""


@pytest.mark.parametrize(
    ("talk", "defects"),
    [
        (talk_with_repeated_ids, FORGETFUL),
        (talk_in_turn, [(client_sessions, "recognise", newest_conversation)]),
        (talk_alike, [(recognition, "_by_prefix", newest_place)]),
    ],
)
def test_planted_defects_are_caught(
    talk: Callable[[Clients], None], defects: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = Clients()
    talk(clients)
    clients.teardown()
    for module, name, defect in defects:
        monkeypatch.setattr(module, name, defect)
    careless = Clients()
    with pytest.raises(AssertionError):
        talk(careless)
    careless.world.close()
