"""The agent gateway: turns, the net before them, and everything one may do with a conversation."""

from __future__ import annotations

import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from leporello.errors import StoreError
from leporello.gateway.keys import hashed
from leporello.session.hygiene import REASON
from leporello.store.sqlite import SQLiteStore
from leporello.testing.model_server import Failure, ModelServer, as_counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.gateway import Gateway

pytestmark = pytest.mark.slow

WINDOW = 20_000


def model(upstream: ModelServer) -> dict[str, Any]:
    main = {"default": "m", "provider": "openai", "base_url": upstream.openai_url, "context_length": WINDOW}
    return {"model": main, "windows": {"m": WINDOW}}


@pytest.fixture
def served(start: Callable[..., Gateway], upstream: ModelServer) -> Gateway:
    """A gateway whose agent asks the model server."""
    return start(upstream, model(upstream))


def say(gateway: Gateway, content: str, name: str = "room", **body: Any) -> httpx2.Response:
    return gateway.post(f"/v1/sessions/{name}/messages", {"content": content, **body})


def get(gateway: Gateway, path: str, **options: Any) -> httpx2.Response:
    return httpx2.get(f"{gateway.address}{path}", timeout=30, **options)


class TestATurn:
    def test_is_answered_and_stored(self, served: Gateway) -> None:
        got = say(served, "hello")
        assert (got.status_code, got.json()["content"], got.json()["reason"]) == (200, "hello", "done")
        assert served.texts("room") == ["hello", "hello"]

    def test_remembers_the_turns_before(self, served: Gateway, upstream: ModelServer) -> None:
        say(served, "one")
        say(served, "two")
        assert [message["content"] for message in upstream.requests[-1].messages[1:]] == ["one", "one", "two"]

    def test_may_be_streamed(self, served: Gateway) -> None:
        events = say(served, "hello there", stream=True).text.split("\n\n")
        parts = [event.split("\n") for event in events if event]
        text = "".join(json.loads(data[6:])["text"] for name, data in parts if name == "event: text")
        assert text == "hello there"
        assert parts[-1][0] == "event: end"
        assert json.loads(parts[-1][1][6:])["content"] == "hello there"

    def test_may_be_only_kept(self, served: Gateway, upstream: ModelServer) -> None:
        got = say(served, "by the way", respond=False)
        assert got.json()["reason"] == "kept"
        assert upstream.requests == []
        assert served.texts("room") == ["by the way"]

    def test_of_each_who_speaks_at_once_comes_after_the_other(self, served: Gateway) -> None:
        with ThreadPoolExecutor(6) as pool:
            got = list(pool.map(lambda number: say(served, f"message {number}"), range(6)))
        assert {answer.status_code for answer in got} == {200}
        texts = served.texts("room")
        assert texts[::2] == texts[1::2]
        assert sorted(texts[::2]) == [f"message {number}" for number in range(6)]

    def test_that_fails_keeps_the_message(self, served: Gateway, upstream: ModelServer) -> None:
        upstream.fail(Failure.BAD_KEY)
        got = say(served, "are you there?")
        assert got.status_code == 502
        assert served.texts("room") == ["are you there?"]
        assert say(served, "and now?").status_code == 200

    def test_that_cannot_be_stored_is_refused_and_may_be_repeated(self, served: Gateway, upstream: ModelServer) -> None:
        say(served, "hi")
        sound = served.store.__class__

        class Full(SQLiteStore):
            def append(self, *args: Any, **options: Any) -> Any:
                raise StoreError("the disk is full.")

        served.store.__class__ = Full
        for _ in range(2):
            got = say(served, "once")
            assert (got.status_code, got.headers["retry-after"]) == (503, "5")
        assert len(upstream.requests) == 1
        served.store.__class__ = sound
        assert say(served, "once").json()["stored"] is True
        assert served.texts("room") == ["hi", "hi", "once", "once"]

    def test_needs_a_model(self, start: Callable[..., Gateway], upstream: ModelServer) -> None:
        got = say(start(upstream), "hello")
        assert got.status_code == 503
        assert "model.default" in got.json()["error"]["message"]


class TestTheNet:
    def test_folds_before_the_turn_and_once(self, start: Callable[..., Gateway]) -> None:
        """Messages that nobody answered grow overnight; the next turn begins with one compaction."""
        with ModelServer(usage=as_counted) as upstream:
            config = {**model(upstream), "compression": {"threshold": 1.0, "protect_last_n": 4}}
            gateway = start(upstream, config)
            say(gateway, "good evening")
            for number in range(40):
                assert say(gateway, f"{number} " + "chatter " * 400, respond=False).status_code == 200
            assert say(gateway, "good morning").json()["usage"]["compactions"] == 1
            assert say(gateway, "what did I miss?").json()["usage"]["compactions"] == 1
            triggers = [row.report.get("trigger") for row in gateway.store.journal("room")]
            assert triggers.count(REASON) == 1
            assert triggers.index(REASON) == len(triggers) - 3
            assert len(gateway.texts("room")) == 2 + 40 + 4


class TestAConversation:
    def test_is_listed_shown_and_read(self, served: Gateway) -> None:
        say(served, "first", name="a")
        say(served, "second", name="b")
        assert [one["id"] for one in get(served, "/v1/sessions").json()["sessions"]] == ["b", "a"]
        assert [one["id"] for one in get(served, "/v1/sessions?limit=1&offset=1").json()["sessions"]] == ["a"]
        assert get(served, "/v1/sessions/a").json()["messages"] == 2
        assert [one["title"] for one in get(served, "/v1/sessions").json()["sessions"]] == ["second", "first"]
        assert get(served, "/v1/sessions/a").json()["title"] == "first"
        read = get(served, "/v1/sessions/a/messages").json()["messages"]
        assert [one["message"]["content"] for one in read] == ["first", "first"]
        assert get(served, f"/v1/sessions/a/messages?after={read[0]['seq']}").json()["messages"] == read[1:]

    def test_is_folded_on_demand(self, served: Gateway) -> None:
        for number in range(30):
            say(served, f"{number} " + "word " * 100)
        report = served.post("/v1/sessions/room/compress", {"focus": "numbers"}).json()
        assert report["status"] == "folded"
        assert report["messages_after"] < report["messages_before"]

    def test_is_ended_and_another_begun(self, served: Gateway) -> None:
        say(served, "old news")
        name = served.post("/v1/sessions/room/reset", b"").json()["id"]
        assert name != "room"
        assert get(served, "/v1/sessions/room").json()["ended"] is not None
        assert say(served, "new", name=name).json()["usage"]["messages"] == 3

    def test_is_exported_whole(self, served: Gateway) -> None:
        say(served, "for the record")
        lines = [json.loads(line) for line in get(served, "/v1/sessions/room/export").text.splitlines()]
        assert [line["message"]["content"] for line in lines if line.get("message")][1:] == ["for the record"] * 2

    def test_is_deleted(self, served: Gateway) -> None:
        say(served, "forget this")
        assert httpx2.delete(f"{served.address}/v1/sessions/room").status_code == 200
        assert get(served, "/v1/sessions/room").status_code == 404
        assert say(served, "who are you?").json()["usage"]["messages"] == 3

    def test_that_nobody_knows_is_not_found(self, served: Gateway) -> None:
        paths = ["", "/messages", "/export"]
        assert {get(served, f"/v1/sessions/nobody{path}").status_code for path in paths} == {404}
        for path in ("compress", "reset"):
            assert served.post(f"/v1/sessions/nobody/{path}", b"").status_code == 404

    def test_goes_on_after_a_restart(self, start: Callable[..., Gateway], upstream: ModelServer) -> None:
        gateway = start(upstream, model(upstream))
        say(gateway, "remember me")
        gateway.stop()
        assert next(iter(gateway.store.conversations())).ended is not None
        assert say(start(upstream, model(upstream)), "do you?").json()["usage"]["messages"] == 5

    def test_of_a_client_with_its_own_history_is_not_an_agents(self, served: Gateway) -> None:
        talk: list[dict[str, Any]] = []
        served.say(talk, "hi", {"x-leporello-session": "mine"})
        assert say(served, "hello", name="mine").status_code == 409

    def test_of_an_agent_is_not_a_clients(self, served: Gateway) -> None:
        say(served, "hello", name="ours")
        got = served.chat([{"role": "user", "content": "hello"}], {"x-leporello-session": "ours"})
        assert got.status_code == 409


def test_keys_share_nothing(start: Callable[..., Gateway], upstream: ModelServer) -> None:
    keys = {name: hashed(f"key-of-{name}") for name in ("ada", "bob")}
    gateway = start(upstream, model(upstream), api_keys=keys)
    ada, bob = ({"x-api-key": f"key-of-{name}"} for name in ("ada", "bob"))
    gateway.post("/v1/sessions/diary/messages", {"content": "my secret"}, ada)
    assert get(gateway, "/v1/sessions", headers=bob).json() == {"sessions": [], "total": 0}
    for path in ("", "/messages", "/export"):
        assert get(gateway, f"/v1/sessions/diary{path}", headers=bob).status_code == 404
    assert httpx2.delete(f"{gateway.address}/v1/sessions/diary", headers=bob).status_code == 404
    gateway.post("/v1/sessions/diary/messages", {"content": "mine"}, bob)
    assert gateway.texts("diary", "ada") == ["my secret"] * 2
    assert gateway.texts("diary", "bob") == ["mine"] * 2


def test_a_client_that_leaves_stops_the_turn(start: Callable[..., Gateway], upstream: ModelServer) -> None:
    """The turn ends, the conversation stays valid, and the next message is answered."""
    gateway = start(upstream, model(upstream))
    asked, hold = threading.Event(), threading.Event()

    def slow(request: Any) -> str:
        asked.set()
        hold.wait(20)
        return "too late"

    upstream.script(slow)
    body = b'{"content": "wait for it"}'
    with socket.create_connection(("127.0.0.1", int(gateway.address.rpartition(":")[2]))) as line:
        head = f"POST /v1/sessions/room/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
        line.sendall(head.encode() + body)
        assert asked.wait(20)
    got = say(gateway, "never mind")
    hold.set()
    assert (got.status_code, got.json()["content"]) == (200, "never mind")


def test_the_metrics_tell_what_runs(served: Gateway) -> None:
    say(served, "hello")
    figures = get(served, "/metrics").text
    assert 'leporello_requests_total{route="Speak",status="200"} 1.0' in figures
    assert "leporello_conversations_open 1.0" in figures
    assert "room" not in figures
