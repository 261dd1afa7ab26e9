"""Which conversation a request goes on with, when a client says nothing but its history."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from leporello.gateway.keys import hashed
from leporello.testing.model_server import Failure, ModelServer, Step, Use

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.gateway import Gateway, Wire

pytestmark = pytest.mark.slow

Messages = list[dict[str, Any]]
SESSION = "x-leporello-session"
KEYS = {"ada": hashed("key-of-ada"), "bob": hashed("key-of-bob")}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def test_a_growing_history_is_one_conversation(gateway: Gateway) -> None:
    talk: Messages = [{"role": "system", "content": "be brief"}]
    names = {gateway.say(talk, f"question {number}") for number in range(5)}
    (name,) = names
    assert gateway.texts(name) == [message["content"] for message in talk[1:]]


def test_two_who_begin_with_hi_stay_two(gateway: Gateway) -> None:
    one: Messages = []
    other: Messages = []
    first, second = gateway.say(one, "hi"), gateway.say(other, "hi")
    assert one == other
    assert first != second
    homes = {gateway.say(one, "my name is Ada"), gateway.say(other, "my name is Bob")}
    assert homes == {first, second}
    assert gateway.say(one, "who am I?") != gateway.say(other, "who am I?")
    for name in homes:
        assert len({"my name is Ada", "my name is Bob"} & set(gateway.texts(name))) == 1


def test_a_request_without_an_answer_is_a_new_conversation(gateway: Gateway) -> None:
    assert gateway.say([], "hi") != gateway.say([], "hi")


def test_the_system_prompt_may_change(gateway: Gateway) -> None:
    talk: Messages = [{"role": "system", "content": "it is Monday"}]
    name = gateway.say(talk, "hi")
    talk[0] = {"role": "system", "content": "it is Tuesday"}
    assert gateway.say(talk, "and now?") == name


def paths(gateway: Gateway, name: str) -> list[list[str]]:
    """Return what was said on each branch of a conversation."""
    branches = [branch.id for branch in gateway.store.branches(name)]
    return [[str(row.message["content"]) for row in gateway.store.messages(name, branch=id_)] for id_ in branches]


def texts(talk: Messages) -> list[str]:
    return [message["content"] for message in talk]


class TestAnEdit:
    def test_is_a_branch_and_the_first_stays(self, gateway: Gateway) -> None:
        talk: Messages = []
        gateway.say(talk, "hi")
        name = gateway.say(talk, "what is 1 + 1?")
        edited = [*talk[:2]]
        assert gateway.say(edited, "what is 2 + 2?") == name
        assert paths(gateway, name) == [texts(talk), texts(edited)]
        assert gateway.store.head(name) == 2

    def test_of_an_answer_is_a_conversation_of_its_own(self, gateway: Gateway) -> None:
        """Nothing in it was answered here: another user may send it."""
        talk: Messages = []
        name = gateway.say(talk, "hi")
        talk[1] = {"role": "assistant", "content": "I never said that"}
        assert gateway.say(talk, "go on") != name

    def test_both_branches_go_on(self, gateway: Gateway) -> None:
        talk: Messages = []
        name = gateway.say(talk, "hi")
        other = list(talk)
        for text in ("left", "on"):
            assert gateway.say(talk, text) == name
            assert gateway.say(other, f"not {text}") == name
        assert paths(gateway, name) == [texts(talk), texts(other)]
        assert gateway.store.head(name) == 2
        gateway.say(talk, "I changed my mind")
        assert gateway.store.head(name) == 1


class TestARetry:
    def test_of_the_first_request_is_not_another_conversation(self, gateway: Gateway, upstream: ModelServer) -> None:
        upstream.fail(Failure.SERVER_ERROR, times=2)
        for _ in range(2):
            assert gateway.chat([user("hi")]).status_code == 500
        name = gateway.say([], "hi")
        assert [info.key for info in gateway.store.conversations()] == [name]
        assert gateway.texts(name) == ["hi", "hi"]

    def test_after_a_failure_goes_on(self, gateway: Gateway, upstream: ModelServer) -> None:
        talk: Messages = []
        name = gateway.say(talk, "hi")
        upstream.fail(Failure.SERVER_ERROR)
        assert gateway.chat([*talk, user("again")]).status_code == 500
        assert gateway.say(talk, "again") == name
        assert gateway.texts(name) == [message["content"] for message in talk]

    def test_after_an_answer_that_broke_off_goes_on(self, gateway: Gateway, upstream: ModelServer) -> None:
        """What came of the broken answer is kept, but as taken back: the client never had it."""
        talk: Messages = []
        name = gateway.say(talk, "hi")
        upstream.fail(Failure.CLOSED_IN_ANSWER)
        with pytest.raises(httpx2.RemoteProtocolError):
            gateway.chat([*talk, user("tell me a long story")], stream=True)
        assert gateway.say(talk, "tell me a long story") == name
        assert gateway.texts(name) == [message["content"] for message in talk]

    def test_of_an_answered_request_is_a_branch(self, gateway: Gateway) -> None:
        talk: Messages = []
        name = gateway.say(talk, "hi")
        gateway.say(talk, "roll a die")
        again = talk[:2]
        assert gateway.say(again, "roll a die") == name
        assert paths(gateway, name) == [texts(talk), texts(again)]
        assert sum(1 for _ in gateway.store.messages(name, superseded=True)) == 5

    def test_that_fails_does_not_become_the_head(self, gateway: Gateway, upstream: ModelServer) -> None:
        """The answer that the user has stays on the path that is resumed."""
        talk: Messages = []
        name = gateway.say(talk, "hi")
        gateway.say(talk, "roll a die")
        upstream.fail(Failure.SERVER_ERROR, times=2)
        for _ in range(2):
            assert gateway.chat(talk[:-1]).status_code == 500
        assert gateway.store.head(name) == 1
        assert gateway.texts(name) == texts(talk)
        assert gateway.chat(talk[:-1]).status_code == 200
        assert gateway.store.head(name) != 1


def test_a_client_that_left_and_kept_what_it_had_goes_on(start: Callable[..., Gateway], wire: Wire) -> None:
    answer = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"first"}}]}\n\n'
    end = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    gateway = start(wire)
    wire.headers, wire.chunks = {"content-type": "text/event-stream"}, [answer, end]
    talk = [user("hi")]
    name = gateway.chat(talk, stream=True).headers[SESSION]
    talk += [{"role": "assistant", "content": "first"}, user("more")]
    wire.chunks = [answer, threading.Event()]
    body = {"model": "m", "messages": talk, "stream": True}
    with httpx2.stream("POST", f"{gateway.address}/v1/chat/completions", json=body, timeout=20) as got:
        assert next(got.iter_raw()) == answer
    assert wire.left.wait(10)
    wire.chunks = [answer, end]
    talk += [{"role": "assistant", "content": "fir"}, user("never mind")]
    assert gateway.chat(talk, stream=True).headers[SESSION] == name
    assert gateway.texts(name) == ["hi", "first", "more", "fir", "never mind", "first"]


def test_a_busy_conversation_is_not_shared(start: Callable[..., Gateway], wire: Wire) -> None:
    """The same request twice at the same time: each has a branch of its own."""
    gateway = start(wire)
    answer = b'data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    wire.headers, wire.chunks = {"content-type": "text/event-stream"}, [answer]
    name = gateway.chat([user("hi")], stream=True).headers[SESSION]
    talk = [user("hi"), {"role": "assistant", "content": "x"}, user("both at once")]
    wire.chunks = [(hold := threading.Event()), answer]
    body = {"model": "m", "messages": talk, "stream": True}
    with httpx2.stream("POST", f"{gateway.address}/v1/chat/completions", json=body, timeout=20) as first:
        wire.chunks = [answer]
        second = gateway.chat(talk, stream=True)
        hold.set()
        first.read()
    assert first.headers[SESSION] == second.headers[SESSION] == name
    assert paths(gateway, name) == [["hi", "x", "both at once", "x"]] * 2


def test_an_anthropic_client_that_thinks_calls_tools_and_moves_its_cache_marks(
    start: Callable[..., Gateway], upstream: ModelServer
) -> None:
    """Its blocks come back with other marks and without the thinking; the conversation is the same."""
    gateway = start(upstream)
    mark = {"cache_control": {"type": "ephemeral"}}
    body: dict[str, Any] = {
        "model": "m",
        "max_tokens": 100,
        "tools": [{"name": "look", "input_schema": {"type": "object"}}],
    }
    upstream.script(Step(thinking="hm", text="let me look", tool_calls=[Use(name="look", arguments={"b": 1, "a": 2})]))
    ask = {"role": "user", "content": [{"type": "text", "text": "what is there?", **mark}]}
    first = gateway.post("/v1/messages", {**body, "messages": [ask]})
    blocks = [block for block in first.json()["content"] if block["type"] != "thinking"]
    result = {"type": "tool_result", "tool_use_id": blocks[-1]["id"], "content": "a cat", **mark}
    talk = [user("what is there?"), {"role": "assistant", "content": blocks}, {"role": "user", "content": [result]}]
    second = gateway.post("/v1/messages", {**body, "messages": talk})
    assert second.headers[SESSION] == first.headers[SESSION]
    rows = list(gateway.store.messages(first.headers[SESSION]))
    assert [row.role for row in rows] == ["user", "assistant", "tool", "assistant"]


def test_a_role_that_nobody_knows_is_the_providers_business(start: Callable[..., Gateway], wire: Wire) -> None:
    gateway = start(wire)
    sent = [user("hi"), {"role": "function", "name": "f", "content": "1"}]
    assert gateway.chat(sent).status_code == 200
    assert list(gateway.store.conversations()) == []


class TestTheHeader:
    def test_names_the_conversation(self, gateway: Gateway) -> None:
        talk: Messages = []
        assert gateway.say(talk, "hi", {SESSION: "room-1"}) == "room-1"
        assert gateway.say(talk, "and on", {SESSION: "room-1"}) == "room-1"

    def test_keeps_equal_histories_apart(self, gateway: Gateway) -> None:
        one: Messages = []
        other: Messages = []
        gateway.say(one, "hi", {SESSION: "a"})
        gateway.say(other, "hi", {SESSION: "b"})
        assert gateway.say(one, "on", {SESSION: "a"}) == "a"
        assert gateway.say(other, "on", {SESSION: "b"}) == "b"

    def test_goes_on_even_before_the_first_answer(self, gateway: Gateway, upstream: ModelServer) -> None:
        upstream.fail(Failure.SERVER_ERROR)
        gateway.chat([user("hi")], {SESSION: "a"})
        assert gateway.say([], "hi", {SESSION: "a"}) == "a"
        assert gateway.texts("a") == ["hi", "hi"]

    def test_of_another_history_begins_anew_in_the_same_conversation(self, gateway: Gateway) -> None:
        gateway.say([], "hi", {SESSION: "a"})
        talk: Messages = []
        assert gateway.say(talk, "something else", {SESSION: "a"}) == "a"
        assert gateway.say(talk, "and on", {SESSION: "a"}) == "a"
        assert paths(gateway, "a") == [["hi", "hi"], texts(talk)]
        assert gateway.store.head("a") == 2

    def test_is_not_guessed_from_the_history(self, gateway: Gateway) -> None:
        talk: Messages = []
        gateway.say(talk, "hi", {SESSION: "a"})
        assert gateway.say(talk, "on") != "a"

    @pytest.mark.parametrize("name", ["", "a b", "../a", "a\tb", "é", "x" * 129, "a~2"])
    def test_must_be_a_name(self, name: str, gateway: Gateway) -> None:
        headers = [(SESSION.encode(), name.encode("latin-1"))]
        body = {"model": "m", "messages": [user("hi")]}
        got = httpx2.post(f"{gateway.address}/v1/chat/completions", json=body, headers=headers)
        assert got.status_code == 400


class TestARestart:
    def test_goes_on_with_every_conversation(self, start: Callable[..., Gateway], upstream: ModelServer) -> None:
        gateway = start(upstream)
        talks: list[Messages] = [[] for _ in range(3)]
        for talk in talks:
            gateway.say(talk, "hi")
        names = [gateway.say(talk, f"I am {number}") for number, talk in enumerate(talks)]
        gateway.stop()
        again = start(upstream)
        assert [again.say(talk, "still there?") for talk in talks] == names
        for talk, name in zip(talks, names, strict=True):
            assert again.texts(name) == [message["content"] for message in talk]

    def test_after_a_turn_that_got_no_answer_stores_nothing_twice(
        self, start: Callable[..., Gateway], upstream: ModelServer
    ) -> None:
        gateway = start(upstream)
        talk: Messages = []
        name = gateway.say(talk, "hi")
        upstream.fail(Failure.SERVER_ERROR)
        assert gateway.chat([*talk, user("in flight")]).status_code == 500
        gateway.stop()
        again = start(upstream)
        assert again.say(talk, "in flight") == name
        assert paths(again, name) == [texts(talk)]

    def test_after_an_answer_that_did_not_reach_the_client_is_a_branch(
        self, start: Callable[..., Gateway], upstream: ModelServer
    ) -> None:
        gateway = start(upstream)
        talk: Messages = []
        gateway.say(talk, "hi")
        name = gateway.say(talk, "and on")
        gateway.stop()
        again = start(upstream)
        asked = talk[:2]
        assert again.say(asked, "and on") == name
        assert again.say(asked, "thank you") == name
        assert again.texts(name) == texts(asked)
        assert paths(again, name)[0] == texts(talk)


class TestKeys:
    def test_share_nothing(self, start: Callable[..., Gateway], upstream: ModelServer) -> None:
        gateway = start(upstream, api_keys=KEYS)
        ada, bob = {"authorization": "Bearer key-of-ada"}, {"x-api-key": "key-of-bob"}
        talk: Messages = []
        name = gateway.say(talk, "my secret is 1234", ada)
        theirs = gateway.say(list(talk), "go on", bob)
        assert theirs != name
        assert gateway.say(talk, "go on", ada) == name
        assert {info.owner for info in gateway.store.conversations()} == {"ada", "bob"}

    def test_may_use_the_same_name(self, start: Callable[..., Gateway], upstream: ModelServer) -> None:
        gateway = start(upstream, api_keys=KEYS)
        for who in ("ada", "bob"):
            gateway.say([], f"I am {who}", {"x-api-key": f"key-of-{who}", SESSION: "home"})
        assert [gateway.texts("home", who)[0] for who in ("ada", "bob")] == ["I am ada", "I am bob"]

    @pytest.mark.parametrize("sent", [{}, {"authorization": "Bearer no"}, {"x-api-key": "sha256:" + "0" * 64}])
    def test_are_needed(self, sent: dict[str, str], start: Callable[..., Gateway], upstream: ModelServer) -> None:
        gateway = start(upstream, api_keys=KEYS)
        assert gateway.chat([user("hi")], sent).status_code == 401
        assert upstream.requests == []

    def test_cannot_be_replaced_by_their_hash(self, start: Callable[..., Gateway], upstream: ModelServer) -> None:
        gateway = start(upstream, api_keys=KEYS)
        assert gateway.chat([user("hi")], {"x-api-key": KEYS["ada"]}).status_code == 401
