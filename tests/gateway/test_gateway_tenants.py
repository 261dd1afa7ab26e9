"""One key that sends everything it may: the others are served as before, and nothing of theirs is lost."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from benchmarks import gateway_tenants as tenants
from benchmarks.gateway_bodies import bodies

from leporello.config.model import GatewayLimits
from leporello.gateway import agent_api
from leporello.gateway.bodies import check_count, has_more_values, parsed, written
from leporello.gateway.errors import Refused
from leporello.gateway.exchange import SLICE
from leporello.gateway.keys import hashed
from leporello.gateway.lag import Lag
from leporello.gateway.limits import BODIES_HELD, THREADS_PER_KEY, ConcurrencyLimit, ThreadLimit, ThreadLimits
from leporello.store import open_store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.fixtures.gateway import Gateway

    from leporello.testing.model_server import ModelServer

SOAK = bool(os.environ.get("LEPORELLO_SOAK"))
MOST_MEGABYTES = 1500
"""Of a gateway on which one key holds as much as it may."""

SMALL = 40_000
KEYS = {name: hashed(name) for name in ("mallory", "ada")}
MALLORY, ADA = {"x-api-key": "mallory"}, {"x-api-key": "ada"}


def user(text: Any) -> Any:
    return {"role": "user", "content": text}


class TestAHostileKey:
    @pytest.mark.slow
    def test_the_others_notice_no_error_and_lose_nothing(self) -> None:
        size = ["--seconds", "300"] if SOAK else ["--seconds", "4", "--phase", "4", "--bytes", "400000"]
        seen, lost = tenants.measure(tenants.size(size))
        assert set(seen.statuses) == {200}
        assert lost == []
        assert len(seen.together) > 0
        assert len(seen.machine_gaps) == len(seen.gaps) > 0
        assert seen.hostile, "nobody attacked"
        assert "503" not in seen.hostile
        assert max(seen.memory) < MOST_MEGABYTES
        if SOAK:
            assert seen.hostile.get("200", 0) > 0
            assert seen.ratio < 3
            assert seen.own_gap <= 0.1

    def test_what_is_lost_would_be_noticed(self, tmp_path: Path) -> None:

        store = open_store(tmp_path / "a.db")
        store.append("a", [user("one")], owner="ada")
        store.close()
        assert tenants.missing(tmp_path / "a.db", [("ada", "a", ["one"])]) == []
        for talk in (("ada", "a", ["one", "two"]), ("bob", "a", ["one"]), ("ada", "b", ["one"])):
            assert tenants.missing(tmp_path / "a.db", [talk])

    @pytest.mark.slow
    @pytest.mark.parametrize("name", bodies(SMALL))
    def test_every_body_is_answered_and_stored_or_refused_with_a_reason(
        self, name: str, start: Callable[..., Gateway], upstream: ModelServer
    ) -> None:
        gateway = start(upstream, api_keys=KEYS, limits={"messages": 400, "values": 4_000, "body_bytes": 200_000})
        path, body = bodies(SMALL)[name]
        got = gateway.post(path, body, MALLORY)
        assert got.status_code in (200, 400, 413), got.text
        if got.status_code != 200:
            assert got.json()["error"]["message"]
        talk: list[dict[str, Any]] = []
        gateway.say(talk, "hello", ADA)


class TestTheNumberOfMessages:
    @pytest.mark.slow
    def test_is_bounded_and_the_error_names_the_setting(
        self, start: Callable[..., Gateway], upstream: ModelServer
    ) -> None:
        gateway = start(upstream, limits={"messages": 5})
        talk = [user("a"), {"role": "assistant", "content": "b"}] * 2 + [user("c")]
        assert gateway.chat(talk).status_code == 200
        got = gateway.chat([*talk, user("d")])
        assert got.status_code == 413
        assert "gateway.limits.messages" in got.json()["error"]["message"]
        assert "6" in got.json()["error"]["message"]

    def test_counts_what_a_message_of_many_results_becomes(
        self, start: Callable[..., Gateway], upstream: ModelServer
    ) -> None:
        blocks = [{"type": "tool_result", "tool_use_id": f"c{n}", "content": "r"} for n in range(9)]
        body = {"model": "m", "max_tokens": 9, "messages": [user(blocks)]}
        got = start(upstream, limits={"messages": 5}).post("/v1/messages", body)
        assert got.status_code == 413
        assert "gateway.limits.messages" in got.json()["error"]["message"]


class TestTheNumberOfValues:
    @pytest.mark.parametrize(
        ("content", "count"),
        [
            (b'{"a":[[],[],[]]}', 7),
            (b'{"a":"[,{,[,{"}', 1),
            (rb'{"a":"\",[\\","b":[1,2]}', 4),
            (b'["' + b"\\\\" * 300_000 + b'",[],[]]', 5),
            (b'["' + b'\\"' * 300_000 + b'",[],[]]', 5),
            (b"[" + b",".join([b'"[,"'] * 200_000) + b"]", 200_000),
        ],
    )
    def test_is_counted_outside_of_texts(self, content: bytes, count: int) -> None:
        assert not has_more_values(content, count)
        assert has_more_values(content, count - 1)

    def test_is_bounded_and_the_error_names_the_setting(
        self, start: Callable[..., Gateway], upstream: ModelServer
    ) -> None:
        got = start(upstream, limits={"values": 1000}).chat([user("a")], x=[[]] * 1000)
        assert got.status_code == 413
        assert "gateway.limits.values" in got.json()["error"]["message"]

    def test_is_bounded_in_the_arguments_of_a_call_too(self) -> None:
        limits = GatewayLimits(values=8_000)
        call = {"id": "c", "function": {"name": "f", "arguments": json.dumps([[]] * 400)}}
        check_count([{"role": "assistant", "tool_calls": [call]}], limits)
        call["function"] = {"name": "f", "arguments": json.dumps([[]] * 1200)}
        with pytest.raises(Refused, match=r"gateway\.limits\.values"):
            check_count([{"role": "assistant", "tool_calls": [call]}], limits)

    def test_the_digits_of_a_number_are_limited(self) -> None:
        assert parsed(b'{"a":' + b"9" * 300 + b"}", GatewayLimits())
        with pytest.raises(Refused, match="digits"):
            parsed(b'{"a":' + b"9" * 301 + b"}", GatewayLimits())


class TestSlices:
    @pytest.mark.slow
    def test_a_client_that_leaves_ends_the_work_and_comes_back(
        self, start: Callable[..., Gateway], upstream: ModelServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What was stored before is a beginning of its history, and is not stored twice."""
        gateway = start(upstream, api_keys=KEYS)
        counts, taken = appended(gateway, monkeypatch)
        talk = [user("?")]
        for number in range(2000):
            talk[:0] = [user(f"q{number}"), {"role": "assistant", "content": f"a{number}"}]
        headers = {**MALLORY, "x-leporello-session": "mine"}
        body = json.dumps({"model": "m", "messages": talk}).encode()
        lines = [f"{name}: {value}" for name, value in {**headers, "content-length": len(body), "host": "x"}.items()]
        head = "\r\n".join(["POST /v1/chat/completions HTTP/1.1", *lines, "\r\n"]).encode()
        with socket.create_connection(("127.0.0.1", int(gateway.address.rpartition(":")[2]))) as client:
            client.sendall(head + body)
            assert taken.wait(30)
        wait_until(lambda: running(gateway) == 0)
        stored = gateway.texts("mine", "mallory")
        assert len(stored) < len(talk)
        assert stored == [message["content"] for message in talk[: len(stored)]]
        assert max(counts) <= SLICE
        assert gateway.chat(talk, headers).status_code == 200
        assert gateway.texts("mine", "mallory")[:-1] == [message["content"] for message in talk]

    @pytest.mark.slow
    def test_others_write_in_between(
        self, start: Callable[..., Gateway], upstream: ModelServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """No transaction of a long history holds more than a slice of it."""
        gateway = start(upstream, api_keys=KEYS)
        counts, _ = appended(gateway, monkeypatch)
        talk: list[dict[str, Any]] = [{"role": "system", "content": f"s{n}"} for n in range(300)]
        for number in range(150):
            talk += [user(f"q{number}"), {"role": "assistant", "content": f"a{number}"}]
        talk.append(user("?"))
        assert gateway.chat(talk, MALLORY).status_code == 200
        assert sum(counts) == len(talk) + 1
        assert max(counts) <= SLICE

    @pytest.mark.slow
    def test_a_message_that_cannot_be_stored_is_refused_before_any_is(
        self, start: Callable[..., Gateway], upstream: ModelServer
    ) -> None:
        deep: Any = []
        for _ in range(300):
            deep = [deep]
        gateway = start(upstream)
        headers = {"x-leporello-session": "mine"}
        systems = [{"role": "system", "content": f"s{n}"} for n in range(200)] + [
            {**user("a"), "role": "system", "x": deep}
        ]
        assert gateway.chat([*systems, user("b")], headers).status_code == 400
        assert list(gateway.store.messages("mine", system=True)) == []


def appended(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], threading.Event]:
    """Return how many messages each transaction stores from now on, and what is set when one has."""
    append, counts, taken = gateway.store.append, list[int](), threading.Event()

    def counting(name: str, messages: Any, **options: Any) -> Any:
        counts.append(len(messages))
        stored = append(name, messages, **options)
        taken.set()
        return stored

    monkeypatch.setattr(gateway.store, "append", counting)
    return counts, taken


def running(gateway: Gateway) -> int:
    """Return how many requests run, besides the one that asks."""
    text = httpx2.get(f"{gateway.address}/metrics", headers=ADA).text
    line = next(line for line in text.splitlines() if line.startswith("leporello_requests_running"))
    return int(float(line.split()[1])) - 1


def wait_until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < until


class TestShares:
    def test_the_bytes_of_a_key_are_limited(self) -> None:
        limit = ConcurrencyLimit(9, 100)
        with limit.slot("mallory") as one, limit.slot("mallory") as two, limit.slot("ada") as other:
            one.hold(100 * BODIES_HELD)
            with pytest.raises(Refused, match="bytes") as refused:
                two.hold(1)
            assert refused.value.status == 429
            other.hold(100)
        with limit.slot("mallory") as again:
            again.hold(100 * BODIES_HELD)
        assert limit.running == 0

    def test_the_threads_of_a_key_are_limited(self) -> None:
        async def story() -> None:
            thread_limits = ThreadLimits()
            threads, running, most = thread_limits.of("mallory"), 0, 0
            gate = threading.Event()

            def work() -> None:
                nonlocal running, most
                running += 1
                most = max(most, running)
                gate.wait(20)
                running -= 1

            tasks = [asyncio.ensure_future(threads.run(work)) for _ in range(8)]
            assert await thread_limits.of("ada").run(lambda: "served") == "served"
            gate.set()
            await asyncio.gather(*tasks)
            assert most <= THREADS_PER_KEY

        asyncio.run(story())

    def test_who_waits_for_a_model_does_not_compute(self) -> None:
        async def story() -> None:
            threads = ThreadLimit(1)
            answered, asked = threading.Event(), threading.Event()

            def waiting() -> str:
                with threads.idle():
                    asked.set()
                    assert answered.wait(20)
                return "one"

            task = asyncio.ensure_future(threads.run(waiting))
            await asyncio.to_thread(asked.wait, 20)
            assert await threads.run(lambda: "two") == "two"
            answered.set()
            assert await task == "one"
            assert await threads.run(lambda: "three") == "three"

        asyncio.run(story())

    def test_a_thread_that_comes_back_from_a_model_finds_a_slot(self) -> None:
        """All others of the threads wait for it, or compute; none of them waits for what it holds."""

        async def story() -> None:
            threads = ThreadLimit()
            answered = threading.Event()

            def waiting() -> str:
                with threads.idle():
                    assert answered.wait(20)
                return "one"

            first = [asyncio.ensure_future(threads.run(waiting)) for _ in range(4)]
            others = [asyncio.ensure_future(threads.run(lambda: time.sleep(0.01))) for _ in range(30)]
            await asyncio.sleep(0.05)
            answered.set()
            async with asyncio.timeout(20):
                assert await asyncio.gather(*first) == ["one"] * 4
                await asyncio.gather(*others)

        asyncio.run(story())

    def test_work_that_fails_for_a_client_that_left_is_noted(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "leporello.gateway")

        async def story() -> None:
            begun, gate = threading.Event(), threading.Event()

            def work() -> None:
                begun.set()
                gate.wait(20)
                raise Refused(413, "too\nlong")

            task = asyncio.ensure_future(ThreadLimits().of("mallory").run(work))
            await asyncio.to_thread(begun.wait, 20)
            task.cancel()
            gate.set()
            assert isinstance((await asyncio.gather(task, return_exceptions=True))[0], asyncio.CancelledError)

        asyncio.run(story())
        gc.collect()
        assert [record.getMessage() for record in caplog.records] == ["work for a client that left failed: too␊long"]

    def test_work_that_was_begun_is_carried_to_its_end(self) -> None:
        async def story() -> None:
            threads = ThreadLimit(1)
            begun, gate, done = threading.Event(), threading.Event(), threading.Event()

            def work() -> None:
                begun.set()
                gate.wait(20)
                done.set()

            task = asyncio.ensure_future(threads.run(work))
            waiting = asyncio.ensure_future(threads.run(lambda: None))
            await asyncio.to_thread(begun.wait, 20)
            task.cancel()
            waiting.cancel()
            gate.set()
            results = await asyncio.gather(task, waiting, return_exceptions=True)
            assert all(isinstance(one, asyncio.CancelledError) for one in results)
            assert done.is_set()

        asyncio.run(story())


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        {"a": [], "b": {}, "c": [1, 2.5, True, None, 'ü\n"\\']},
        {"text": "ä" * 600_000 + '"\\\n' * 200_000},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "😀" * 300_000}]}]},
    ],
)
def test_a_body_is_written_as_json_does(body: Any) -> None:
    assert written(body) == json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def test_what_is_no_character_stays_an_escape() -> None:
    assert json.loads(written({"a": "\ud800" + "x" * 600_000})) == {"a": "\ud800" + "x" * 600_000}


def test_the_longest_gap_is_remembered_for_a_minute() -> None:
    lag = Lag()
    assert lag.longest == 0.0
    for now, gap in ((0.0, 0.1), (1.0, 0.5), (2.0, 0.2), (50.0, 0.01)):
        lag._note(now, gap)
        assert lag.longest == max(g for n, g in ((0.0, 0.1), (1.0, 0.5), (2.0, 0.2), (50.0, 0.01)) if n <= now)
    lag._note(61.5, 0.0)
    assert lag.longest == 0.2
    lag._note(200.0, 0.0)
    assert lag.longest == 0.0


def test_a_page_of_very_long_messages_has_fewer(
    start: Callable[..., Gateway], upstream: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_api, "LONGEST_PAGE", 2_000)
    gateway = start(upstream)
    gateway.store.append("a", [user(f"{number}" * 900) for number in range(8)])
    got: list[Any] = []
    after = 0
    while page := gateway.get(f"/v1/sessions/a/messages?limit=100&after={after}").json()["messages"]:
        assert len(page) <= 3
        got += page
        after = page[-1]["seq"]
    assert [row["message"]["content"][0] for row in got] == list("01234567")
