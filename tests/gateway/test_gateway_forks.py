"""Asking again, editing a question and asking aside, by the official clients, in a conversation that is folded.

Each is a branch: nothing is copied, no summary is made for it, and the provider has the conversation up to the fork in
its cache. A client of two gateways in turn is served as by one.
"""

from __future__ import annotations

import re
from contextlib import ExitStack, closing
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias
from unittest.mock import ANY

import anthropic
import openai
import pytest
from tests.gateway.harbour import Messages, Model, assistant, long_question, question, rows, user
from tests.gateway.process import served

from leporello.caching import CachePolicy
from leporello.gateway.client_sessions import HeldSession
from leporello.gateway.recognition import Recognised
from leporello.messages import text_of
from leporello.session import saved_branch
from leporello.store import open_store
from leporello.store.sqlite import SQLiteStore
from leporello.testing.model_server import ModelServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tests.fixtures.gateway import Gateway

    from leporello.store import Store

pytestmark = pytest.mark.slow

TURNS = 36
NEW_TOKENS = 200
"""At most this many are not read from the cache: what is new, and the step of tokens in which a cache counts."""

MINUTES = re.compile(r"\[(node n\d+) · [^·]+")
"""The beginning of a block."""

Ask: TypeAlias = "Callable[[Messages], tuple[str, int, int]]"
"""Sends a history; returns the answer, and how many tokens of how many the provider had in its cache."""


def by_openai(address: str, headers: dict[str, str], closing: ExitStack) -> Ask:
    client = closing.enter_context(
        openai.OpenAI(base_url=f"{address}/v1", api_key="any", max_retries=0, default_headers=headers)
    )

    def ask(messages: Messages) -> tuple[str, int, int]:
        got = client.chat.completions.create(model="m", messages=messages)  # type: ignore[arg-type]
        assert got.usage is not None
        assert got.usage.prompt_tokens_details is not None
        cached = got.usage.prompt_tokens_details.cached_tokens or 0
        return got.choices[0].message.content or "", cached, got.usage.prompt_tokens

    return ask


def by_anthropic(address: str, headers: dict[str, str], closing: ExitStack) -> Ask:
    client = closing.enter_context(
        anthropic.Anthropic(base_url=address, api_key="any", max_retries=0, default_headers=headers)
    )

    def ask(messages: Messages) -> tuple[str, int, int]:
        mark = {"type": "text", "text": messages[-1]["content"], "cache_control": {"type": "ephemeral"}}
        marked = [*messages[:-1], {**messages[-1], "content": [mark]}]
        got = client.messages.create(model="m", max_tokens=500, messages=marked)  # type: ignore[arg-type]
        used, cached = got.usage, got.usage.cache_read_input_tokens or 0
        (block,) = got.content
        assert block.type == "text"
        return block.text, cached, used.input_tokens + cached + (used.cache_creation_input_tokens or 0)

    return ask


def by_responses(address: str, headers: dict[str, str], closing: ExitStack) -> Ask:
    client = closing.enter_context(
        openai.OpenAI(base_url=f"{address}/v1", api_key="any", max_retries=0, default_headers=headers)
    )

    def ask(messages: Messages) -> tuple[str, int, int]:
        got = client.responses.create(model="m", input=messages)  # type: ignore[arg-type]
        assert got.usage is not None
        return got.output_text, got.usage.input_tokens_details.cached_tokens, got.usage.input_tokens

    return ask


class Talk:
    """One client in one conversation."""

    def __init__(self, asks: list[Ask], model: Model) -> None:
        self.asks, self.model = asks, model
        self.history: Messages = []
        self.said = self.requests = 0
        self.paid = 0
        """How many tokens of the newest request the provider did not have in its cache."""

    def answer(self, messages: Messages, new: int = 1) -> str:
        """Send a history; `new` of its messages are new."""
        self.model.expected.add(text_of(messages[-1]))
        ask = self.asks[self.requests % len(self.asks)]
        text, cached, tokens = ask(messages)
        self.paid = tokens - cached
        self.requests += 1
        self.said += new + 1
        return text

    def go_on(self, turns: int) -> None:
        """Ask this many long questions."""
        for number in range(turns):
            self.say(long_question(number))

    def say(self, text: str) -> None:
        """Say something, and take the answer."""
        self.history.append(user(text))
        self.history.append(assistant(self.answer(self.history)))

    @property
    def sent(self) -> list[tuple[str, str]]:
        """What the provider got with the newest request."""
        return spoken(self.model.sent[-1])

    @property
    def window(self) -> list[tuple[str, str]]:
        """What the provider would get next, without what is said next."""
        return [*self.sent, *spoken(self.history[-1:])]


def spoken(messages: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    return [(message["role"], text_of(message)) for message in messages]


@pytest.fixture(params=["compressor", "lcm"])
def engine(request: pytest.FixtureRequest) -> dict[str, Any]:
    """A configuration with each engine."""
    return {"context": {"engine": request.param}, "lcm": {"background": False}}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """The store of the gateway, seen from beside it."""
    with closing(open_store(tmp_path / "store.db")) as beside:
        yield beside


@pytest.fixture(params=["openai", "anthropic", "responses"])
def talk(
    request: pytest.FixtureRequest, engine: dict[str, Any], start: Callable[..., Gateway]
) -> Iterator[Callable[..., Talk]]:
    """Begin a conversation of an official client, through one gateway or through several in turn."""
    connect = {"openai": by_openai, "anthropic": by_anthropic, "responses": by_responses}[request.param]
    with ExitStack() as stack:

        def begin(naming: str, gateways: int = 1) -> Talk:
            model = Model()
            upstream = stack.enter_context(ModelServer(then=model))
            headers = {"x-leporello-session": "harbour"} if naming == "named" else {}
            addresses = [start(upstream, engine).address for _ in range(gateways)]
            return Talk([connect(address, headers, stack) for address in addresses], model)

        yield begin


def check_forks(talk: Talk) -> None:
    """Ask twice again, edit the question, ask aside, and go on; each from what the provider has in its cache."""
    summaries, window = talk.model.summaries, talk.window
    assert summaries
    for _ in range(2):
        talk.history[-1] = assistant(talk.answer(talk.history[:-1], new=0))
        assert talk.sent == window[:-1]
        assert talk.paid <= NEW_TOKENS
    del talk.history[-2:]
    talk.say("in other words: which berth is free?")
    assert talk.sent[:-1] == window[:-2]
    assert talk.paid <= NEW_TOKENS
    window = talk.window
    talk.answer([*talk.history, user("Suggest a title for this conversation.")])
    assert talk.sent[:-1] == window
    assert talk.paid <= NEW_TOKENS
    talk.say("and the next one?")
    assert talk.sent[:-1] == window
    assert talk.paid <= NEW_TOKENS
    assert talk.model.summaries == summaries


@pytest.mark.parametrize("naming", ["unnamed", "named"])
def test_forks_need_no_summary_and_leave_the_prefix(
    naming: str, talk: Callable[..., Talk], store: Store, tmp_path: Path
) -> None:
    client = talk(naming)
    client.go_on(TURNS)
    check_forks(client)
    check_stored(client, store, tmp_path)


def check_stored(talk: Talk, store: Store, folder: Path) -> None:
    """One conversation, a branch for each fork, and a row for each message that was said."""
    assert rows(folder) == talk.said
    (info,) = store.conversations()
    assert info.branches == 5


@pytest.mark.parametrize("talk", ["openai"], indirect=True)
def test_forks_that_are_copied_are_caught(
    talk: Callable[..., Talk], store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: what stands before a fork is written once more."""
    fork = SQLiteStore.fork

    def copying(self: SQLiteStore, conversation: str, **where: Any) -> int:
        branch = fork(self, conversation, **where)
        shared = [row.message for row in self.messages(conversation, branch=branch)]
        self.append(conversation, shared, branch=fork(self, conversation, **where))
        return branch

    client = talk("unnamed")
    client.go_on(TURNS)
    monkeypatch.setattr(SQLiteStore, "fork", copying)
    check_forks(client)
    with pytest.raises(AssertionError):
        check_stored(client, store, tmp_path)


@pytest.mark.parametrize("talk", ["anthropic"], indirect=True)
def test_marks_of_the_client_that_are_lost_in_a_fold_are_caught(
    talk: Callable[..., Talk], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: a provider that nobody knows to take marks gets none, although the client sends them."""
    monkeypatch.setattr(CachePolicy, "with_marks_of", lambda self, *_, **__: self)
    client = talk("unnamed")
    client.go_on(TURNS)
    with pytest.raises(AssertionError):
        check_forks(client)


@pytest.mark.parametrize("talk", ["openai"], indirect=True)
def test_forks_that_fold_anew_are_caught(talk: Callable[..., Talk], monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: whatever is said behind an earlier message is a conversation of its own."""
    client = talk("unnamed")
    client.go_on(TURNS)
    monkeypatch.setattr("leporello.gateway.client_sessions.recognise", lambda *_, **__: Recognised())
    with pytest.raises(AssertionError):
        check_forks(client)


@pytest.mark.parametrize("talk", ["openai"], indirect=True)
@pytest.mark.parametrize("naming", ["unnamed", "named"])
def test_two_processes_in_turn_store_once_and_fold_once(
    naming: str, engine: dict[str, Any], talk: Callable[..., Talk], tmp_path: Path
) -> None:
    """The provider sees what it sees of a client that stays with one."""
    alone = talk(naming)
    alone.go_on(TURNS)
    model = Model()
    headers = {"x-leporello-session": "harbour"} if naming == "named" else {}
    (folder := tmp_path / "two").mkdir()
    with ExitStack() as stack:
        upstream = stack.enter_context(ModelServer(then=model))
        processes = [stack.enter_context(served(folder, upstream, settings=engine)) for _ in range(2)]
        client = Talk([by_openai(process.address, headers, stack) for process in processes], model)
        client.go_on(TURNS)
    check_as_alone(client, alone)
    assert rows(folder) == client.said
    with closing(open_store(folder / "store.db")) as shared:
        (info,) = shared.conversations()
    assert info.branches == 1


def check_as_alone(client: Talk, alone: Talk) -> None:
    """The provider got the same requests, at whatever minute."""
    assert client.model.summaries == alone.model.summaries
    assert timeless(client.model.sent) == timeless(alone.model.sent)


def timeless(requests: Sequence[Sequence[Mapping[str, Any]]]) -> list[list[tuple[str, str]]]:
    """Return what was said in requests; the blocks of nodes without the minutes in which their messages were said."""
    return [[(role, MINUTES.sub("[\\1", text)) for role, text in spoken(messages)] for messages in requests]


@pytest.mark.parametrize("talk", ["openai"], indirect=True)
def test_a_gateway_that_trusts_what_it_holds_is_caught(
    talk: Callable[..., Talk], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: what another process went on with, and folded, is taken for what this one knows."""
    alone, client = talk("unnamed"), talk("unnamed", gateways=2)
    alone.go_on(TURNS)
    monkeypatch.setattr(HeldSession, "tip", property(lambda _: ANY))
    client.go_on(TURNS)
    with pytest.raises(AssertionError):
        check_as_alone(client, alone)


def test_a_note_behind_the_fork_is_where_the_client_has_it(
    start: Callable[..., Gateway], upstream: ModelServer
) -> None:
    """Claude Code asks for its compaction in the message before its newest note: the note must not be there twice."""
    gateway = start(upstream, {"context": {"engine": "lcm"}}, tools=True)  # a request is written anew with them
    tool = {"type": "function", "function": {"name": "shell", "parameters": {"type": "object", "properties": {}}}}
    headers = {"x-claude-code-session-id": "s-1"}
    note = {"role": "system", "content": "14,926,535 tokens are left."}
    call = {"id": "call_1", "type": "function", "function": {"name": "shell", "arguments": "{}"}}
    talk: Messages = [user("read the log"), {"role": "assistant", "content": "", "tool_calls": [call]}]
    result = {"role": "tool", "tool_call_id": "call_1", "content": "the log"}
    for messages in ([*talk, result, note], [*talk, result, user("summarise all this"), note]):
        assert gateway.chat(messages, headers, tools=[tool]).status_code == 200
        sent = [message for message in upstream.requests[-1].messages if message["content"] == note["content"]]
        assert sent == [note]
        assert upstream.requests[-1].messages[-1] == note


@pytest.fixture
def long_talk(start: Callable[..., Gateway]) -> Iterator[tuple[Gateway, ModelServer, Messages]]:
    """A conversation that was folded several times."""
    numbers = count(1)
    with ModelServer(window=16_000, then=lambda _: f"answer {next(numbers)}. " + "Yes. " * 40) as server:
        gateway = start(server)
        talk: Messages = []
        for number in range(28):
            gateway.say(talk, f"{question(number)} " + "some words to read " * 200)
        yield gateway, server, talk


def test_who_goes_back_sees_what_was_said_in_its_order(
    long_talk: tuple[Gateway, ModelServer, Messages],
) -> None:
    """The beginning of an old turn may be folded, and its end not."""
    gateway, server, talk = long_talk
    for length in range(len(talk) - 2, 20, -2):
        assert gateway.chat([*talk[:length], user("and now?")]).status_code == 200
        said = [text_of(message) for message in talk[:length]]
        sent = [text_of(message) for message in server.requests[-1].messages]
        shown = [said.index(text) for text in sent if text in said]
        assert shown == sorted(set(shown))
        assert sent[-1] == "and now?"
    (info,) = gateway.store.conversations()
    assert info.branches == 1 + len(range(len(talk) - 2, 20, -2))


def test_planted_a_beginning_behind_its_end(
    long_talk: tuple[Gateway, ModelServer, Messages], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved_branch, "_first_of", lambda *_: None)
    with pytest.raises(AssertionError):
        test_who_goes_back_sees_what_was_said_in_its_order(long_talk)
