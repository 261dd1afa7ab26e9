"""Clients that do not simply send a longer history each time: they trim it, rewrite it, or send it twice."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any, cast

import httpx2
import pytest
from tests.gateway.harbour import APIS

from leporello.gateway.keys import hashed
from leporello.messages import Message, text_of, to_anthropic, to_responses
from leporello.testing.model_server import Failure, ModelServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.gateway import Gateway, Wire

pytestmark = pytest.mark.slow

Messages = list[dict[str, Any]]
SESSION = "x-leporello-session"


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def answered(gateway: Gateway, sent: Messages, headers: dict[str, str] | None = None) -> tuple[str, str]:
    """Send a history; returns the conversation it went on with, and the answer."""
    got = gateway.chat(sent, headers)
    assert got.status_code == 200, got.text
    return got.headers[SESSION], got.json()["choices"][0]["message"]["content"]


class Trimming:
    """A client that keeps only the newest messages of its history."""

    def __init__(self, gateway: Gateway, kept: int, headers: dict[str, str] | None = None) -> None:
        self.gateway, self.kept, self.headers = gateway, kept, headers
        self.said: Messages = []
        self.sent: list[Messages] = []

    def say(self, text: str) -> str:
        """Say something; returns the conversation it went on with."""
        self.said.append(user(text))
        self.sent.append(self.said[-self.kept :])
        name, answer = answered(self.gateway, self.sent[-1], self.headers)
        self.said.append(assistant(answer))
        return name

    def texts(self) -> list[str]:
        return [message["content"] for message in self.said]


class TestAClientThatTrimsItsHistory:
    def test_stays_in_its_conversation(self, gateway: Gateway, upstream: ModelServer) -> None:
        """Every message is stored once, and the provider gets what the client sent: nothing had to be folded."""
        client = Trimming(gateway, kept=7)
        names = {client.say(f"question {number}") for number in range(20)}
        (name,) = names
        assert gateway.texts(name) == client.texts()
        assert [request.messages for request in upstream.requests] == client.sent

    def test_stays_in_the_one_it_names(self, gateway: Gateway) -> None:
        client = Trimming(gateway, kept=3, headers={SESSION: "support"})
        assert {client.say(f"question {number}") for number in range(10)} == {"support"}
        assert gateway.texts("support") == client.texts()

    def test_is_folded_when_what_it_keeps_is_too_long(self, start: Callable[..., Gateway]) -> None:
        with ModelServer(window=16_000) as narrow:
            gateway = start(narrow)
            client = Trimming(gateway, kept=41)
            names = {client.say(f"question {number} " + "word " * 500) for number in range(40)}
            assert len(names) == 1
            assert gateway.texts(*names) == client.texts()

    def test_goes_on_after_a_restart(self, start: Callable[..., Gateway], upstream: ModelServer) -> None:
        client = Trimming(start(upstream), kept=7)
        before = {client.say(f"question {number}") for number in range(8)}
        client.gateway.stop()
        client.gateway = start(upstream)
        assert {client.say(f"and {number}") for number in range(8)} == before
        assert client.gateway.texts(*before) == client.texts()

    def test_may_try_again(self, gateway: Gateway, upstream: ModelServer) -> None:
        client = Trimming(gateway, kept=7)
        (name,) = {client.say(f"question {number}") for number in range(8)}
        upstream.fail(Failure.SERVER_ERROR)
        again = [*client.said, user("once")][-7:]
        assert gateway.chat(again).status_code == 500
        assert client.say("once") == name
        assert gateway.texts(name) == client.texts()

    def test_may_try_again_after_a_kill(self, start: Callable[..., Gateway], upstream: ModelServer) -> None:
        """The message was stored and its answer never came."""
        client = Trimming(start(upstream), kept=7)
        (name,) = {client.say(f"question {number}") for number in range(8)}
        upstream.fail(Failure.SERVER_ERROR)
        assert client.gateway.chat([*client.said, user("once")][-7:]).status_code == 500
        client.gateway.stop()
        client.gateway = start(upstream)
        assert client.say("once") == name
        assert client.gateway.texts(name) == client.texts()

    def test_may_send_everything_again(self, gateway: Gateway) -> None:
        """A history that grows from where it was cut is recognised by that."""
        client = Trimming(gateway, kept=7)
        (name,) = {client.say(f"question {number}") for number in range(8)}
        client.kept = 9
        assert client.say("more") == name
        client.kept = 11
        assert client.say("and more") == name
        assert gateway.texts(name) == client.texts()

    def test_is_not_mistaken_for_another_with_the_same_end(self, gateway: Gateway) -> None:
        """Two conversations end alike; whose the rest is, nobody can know: it is a third."""
        clients = [Trimming(gateway, kept=5) for _ in range(2)]
        for client, name in zip(clients, ["Ada", "Bob"], strict=True):
            client.kept = 99
            for text in (f"I am {name}", "hi", "how are you?", "fine"):
                client.say(text)
        names = {info.key for info in gateway.store.conversations()}
        clients[0].kept = 5
        assert clients[0].say("who am I?") not in names
        for name in names:
            assert "who am I?" not in gateway.texts(name)

    def test_goes_on_with_the_newest_branch_of_the_name_it_gives(self, gateway: Gateway) -> None:
        named = {SESSION: "support"}
        for beginning in ("left", "right"):
            client = Trimming(gateway, kept=99, headers=named)
            for text in (beginning, "hi", "how are you?"):
                client.say(text)
        client.kept = 3
        assert {client.say(f"more {number}") for number in range(4)} == {"support"}
        assert gateway.texts("support") == client.texts()

    def test_is_not_recognised_by_a_greeting(self, gateway: Gateway) -> None:
        """Another user's conversation may end with the few words that this one begins with."""
        talk: Messages = []
        gateway.say(talk, "I am Ada")
        name = gateway.say(talk, "hi")
        assert answered(gateway, [user("hi"), assistant("hi"), user("who am I?")])[0] != name
        assert "who am I?" not in gateway.texts(name)

    def test_is_not_recognised_when_it_says_something_else(self, gateway: Gateway) -> None:
        """One that writes a summary of its own is another one: what it says now was never said before."""
        client = Trimming(gateway, kept=99)
        (name,) = {client.say(f"question {number}") for number in range(8)}
        summary = [user("We talked about questions."), assistant("I see.")]
        assert answered(gateway, [*summary, *client.said[-6:], user("go on")])[0] != name
        assert gateway.texts(name) == client.texts()

    def test_is_never_found_with_another_key(self, start: Callable[..., Gateway], upstream: ModelServer) -> None:
        gateway = start(upstream, api_keys={name: hashed(f"key-of-{name}") for name in ("ada", "bob")})
        client = Trimming(gateway, kept=7, headers={"x-api-key": "key-of-ada"})
        (name,) = {client.say(f"question {number}") for number in range(8)}
        theirs = answered(gateway, [*client.said[-6:], user("go on")], {"x-api-key": "key-of-bob"})[0]
        assert theirs != name
        assert "go on" not in gateway.texts(name, "ada")
        named = {"x-api-key": "key-of-bob", SESSION: name}
        answered(gateway, [*client.said[-6:], user("go on")], named)
        assert "go on" not in gateway.texts(name, "ada")

    def test_gets_a_branch_of_a_busy_one(self, start: Callable[..., Gateway], wire: Wire) -> None:
        gateway = start(wire)
        done = b'data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
        wire.headers, wire.chunks = {"content-type": "text/event-stream"}, [done]
        said: Messages = []
        for number in range(6):
            said.append(user(f"question {number}"))
            name = gateway.chat(said, stream=True).headers[SESSION]
            said.append(assistant("x"))
        wire.chunks = [(hold := threading.Event()), done]
        body = {"model": "m", "messages": [*said, user("first")], "stream": True}
        with httpx2.stream("POST", f"{gateway.address}/v1/chat/completions", json=body, timeout=20) as first:
            wire.chunks = [done]
            assert gateway.chat([*said[-6:], user("second")], stream=True).headers[SESSION] == name
            hold.set()
            first.read()
        assert first.headers[SESSION] == name
        told = [message["content"] for message in said]
        for branch, text in ((1, "first"), (2, "second")):
            rows = gateway.store.messages(name, branch=branch)
            assert [row.message["content"] for row in rows] == [*told, text, "x"]


class TestASystemPromptWithAClock:
    def test_is_one_conversation_and_the_provider_gets_each(self, gateway: Gateway, upstream: ModelServer) -> None:
        said: Messages = []
        names = set()
        for number in range(12):
            said.append(user(f"question {number}"))
            name, answer = answered(gateway, [system(f"It is {number} o'clock."), *said])
            said.append(assistant(answer))
            names.add(name)
        assert len(names) == 1
        assert gateway.texts(*names) == [message["content"] for message in said]
        clocks = [request.messages[0]["content"] for request in upstream.requests]
        assert clocks == [f"It is {number} o'clock." for number in range(12)]

    def test_is_the_newest_one_when_it_is_folded(self, start: Callable[..., Gateway]) -> None:
        with ModelServer(window=16_000) as narrow:
            gateway = start(narrow)
            said: Messages = []
            for number in range(30):
                said.append(user(f"question {number} " + "word " * 400))
                _, answer = answered(gateway, [system(f"It is {number} o'clock."), *said])
                said.append(assistant(answer))
            asked = [request for request in narrow.requests if "o'clock" in str(request.messages[0]["content"])]
            assert "It is 29 o'clock." in str(asked[-1].messages[0]["content"])
            assert "It is 28 o'clock." not in json.dumps(asked[-1].messages)
            assert len(asked[-1].messages) < len(said)


ANSWER = b'{"choices":[{"index":0,"message":{"role":"assistant","content":"%b"},"finish_reason":"stop"}]}'


class TestASystemMessageInTheMiddle:
    def test_is_one_conversation_before_and_after_a_restart(self, start: Callable[..., Gateway], wire: Wire) -> None:
        gateway = start(wire)
        wire.chunks = [ANSWER % b"yes"]
        said: Messages = [user("one")]
        name, answer = answered(gateway, said)
        said += [assistant(answer), system("be brief from now on"), user("two")]
        assert answered(gateway, said)[0] == name
        said += [assistant(answer), user("three")]
        gateway.stop()
        again = start(wire)
        assert answered(again, said)[0] == name
        assert again.texts(name) == [*(message["content"] for message in said), "yes"]

    def test_is_stored_once_when_the_client_asks_again(self, start: Callable[..., Gateway], wire: Wire) -> None:
        gateway = start(wire)
        said: Messages = [user("one"), system("be brief"), system("be kind")]
        for number in range(3):
            wire.chunks = [ANSWER % b"yes %d" % number]
            name, answer = answered(gateway, said)
        said += [assistant(answer), user("two")]
        assert answered(gateway, said)[0] == name
        assert gateway.texts(name) == ["one", "be brief", "be kind", "yes 2", "two", "yes 2"]

    @pytest.mark.parametrize("dialect", ["openai", "anthropic"])
    def test_stays_at_its_place_when_the_conversation_is_folded(
        self, dialect: str, start: Callable[..., Gateway]
    ) -> None:
        with ModelServer(window=16_000) as narrow:
            gateway = start(narrow)
            said: Messages = []
            for number in range(24):
                said += [user(f"question-{number} " + "word " * 900), system(f"notice-{number}")]
                if dialect == "anthropic":
                    body = {"model": "m", "max_tokens": 100, "system": "be brief", "messages": said}
                    got = gateway.post("/v1/messages", body)
                    answer = got.json()["content"][0]["text"]
                else:
                    got = gateway.chat([system("be brief"), *said])
                    answer = got.json()["choices"][0]["message"]["content"]
                assert got.status_code == 200, got.text
                said.append(assistant(answer))
            sent = [request.body for request in narrow.requests if "notice-23" in json.dumps(request.body)][-1]
        messages = [one for one in sent["messages"] if "CONTEXT COMPACTION" not in json.dumps(one)]
        assert 9 < len(messages) < len(said) - 10
        assert "notice" not in json.dumps(sent.get("system", messages[0]))
        questions = [at for at, one in enumerate(messages) if "question-" in json.dumps(one)]
        for at in questions:
            asked = json.dumps(messages[at]).partition("question-")[2].partition(" ")[0]
            assert messages[at + 1]["role"] == "system"
            assert f'notice-{asked}"' in json.dumps(messages[at + 1])


def of_provider(api: str, answer: Message) -> bytes:
    """Return the body with which a provider gives an answer."""
    body: dict[str, Any]
    if api == "openai":
        body = {"choices": [{"index": 0, "message": answer, "finish_reason": "stop"}]}
    elif api == "anthropic":
        parted = [{"type": "text", "text": text_of(answer)}] if text_of(answer) else ""
        asked: list[Message] = [{"role": "user", "content": "?"}, cast("Message", {**answer, "content": parted})]
        body = {"type": "message", **to_anthropic(asked)[0]["messages"][1]}
    else:
        body = {"object": "response", "status": "completed", "output": to_responses([answer])["input"]}
    return json.dumps(body).encode()


IDS = {"id", "tool_call_id", "tool_use_id"}


def without_ids(value: Any) -> Any:
    """Leave out the ids, but for those that link outputs with calls in the Responses API: they are required."""
    if isinstance(value, list):
        return [without_ids(one) for one in value]
    if isinstance(value, dict):
        return {key: without_ids(one) for key, one in value.items() if key not in IDS}
    return value


def every_id(value: Any) -> Any:
    """Leave everything as it is."""
    return value


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("sent", [every_id, without_ids])
def test_every_call_may_have_the_same_id_or_none(
    sent: Callable[[Any], Any], api: str, start: Callable[..., Gateway], wire: Wire
) -> None:
    check_ids(sent, api, start, wire)


def test_ids_that_tell_histories_apart_are_caught(
    start: Callable[..., Gateway], wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: the id of a call goes into the hash."""
    monkeypatch.setattr("leporello.gateway.history.spoken", lambda message: json.dumps(message, sort_keys=True))
    with pytest.raises(AssertionError):
        check_ids(without_ids, "openai", start, wire)


def check_ids(sent: Callable[[Any], Any], api: str, start: Callable[..., Gateway], wire: Wire) -> None:
    """Some providers and clients name every call `call_1`, some drop the names: it is one conversation all the same."""
    gateway = start(wire)
    path, body = APIS[api]
    said: list[Message] = []
    names = set()
    for number in range(6):
        function = {"name": "look", "arguments": json.dumps({"at": number})}
        calls = [{"id": "call_1", "type": "function", "function": function}]
        call = cast("Message", {"role": "assistant", "content": "", "tool_calls": calls})
        said.append({"role": "user", "content": f"question {number}"})
        answers: list[Message] = [call, {"role": "assistant", "content": f"It stands at berth {number}."}]
        for answer in answers:
            if answer is not call:
                said.append({"role": "tool", "tool_call_id": "call_1", "content": f"berth {number}"})
            wire.chunks = [of_provider(api, answer)]
            names.add(gateway.post(path, {"model": "m", **sent(body(said))}).headers[SESSION])
            said.append(answer)
    assert len(names) == 1
    name = names.pop()
    rows = list(gateway.store.messages(name))
    assert [row.role for row in rows] == [one["role"] for one in said]
    assert [text_of(row.message) for row in rows if row.role == "tool"] == [f"berth {number}" for number in range(6)]
    assert len(gateway.store.branches(name)) == 1


class TestTheSameRequestTwice:
    @pytest.mark.parametrize("begun", [True, False])
    def test_at_once_is_answered_twice_and_both_go_on(
        self, begun: bool, gateway: Gateway, upstream: ModelServer
    ) -> None:
        """Whichever answer the client keeps, its next request finds a conversation, and nothing is doubled in it."""
        said: Messages = []
        if begun:
            gateway.say(said, "hi")
        said.append(user("both at once"))
        asked, hold = threading.Event(), threading.Event()

        def slow(request: Any) -> str:
            asked.set()
            hold.wait(20)
            return "A"

        upstream.script(slow, "B", "C", "C")
        answers: list[tuple[str, str]] = []
        first = threading.Thread(target=lambda: answers.append(answered(gateway, said)))
        first.start()
        assert asked.wait(20)
        answers.append(answered(gateway, said))
        hold.set()
        first.join()
        assert {answer for _, answer in answers} == {"A", "B"}
        for name, answer in answers:
            assert answered(gateway, [*said, assistant(answer), user("go on")]) == (name, "C")
            assert gateway.texts(name) == [*(one["content"] for one in said), answer, "go on", "C"]
