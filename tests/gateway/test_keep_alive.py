"""A stream that has not begun is kept alive in the words of its dialect, and an error in it is told there."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import TYPE_CHECKING, Any

import anthropic
import httpx2
import openai
import pytest

from leporello.gateway import drop_in
from leporello.gateway.dialects import ANTHROPIC, OPENAI, RESPONSES
from leporello.gateway.keep_alive import KeepAliveConnection
from leporello.testing.model_server import Failure, ModelServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.fixtures.gateway import Gateway

    from leporello.gateway.dialects import WireFormat
    from leporello.testing.model_server import ReceivedRequest

ALIVE = {
    "/v1/chat/completions": b": keep-alive\n\n",
    "/v1/messages": b'event: ping\ndata: {"type": "ping"}\n\n',
    "/v1/responses": b'event: keepalive\ndata: {"type":"keepalive"}\n\n',
}
ENDS = {"/v1/chat/completions": b"[DONE]", "/v1/messages": b"message_stop", "/v1/responses": b"response.completed"}
HELLO = [{"role": "user", "content": "hello"}]


def body(path: str) -> dict[str, Any]:
    history = {"input": HELLO} if path.endswith("responses") else {"messages": HELLO}
    return {"model": "m", "max_tokens": 90, "stream": True, **history}


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the silence be short, but longer than it takes to look up whose request it is."""
    quick = lambda client, dialect: KeepAliveConnection(client, dialect, silence=0.4)  # noqa: E731 - a constructor
    monkeypatch.setattr(drop_in, "KeepAliveConnection", quick)


class Slow:
    """A provider that waits until a test lets it answer."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()

    def __call__(self, request: ReceivedRequest) -> str:
        assert self.may_answer.wait(30)
        return "yes"


@pytest.mark.parametrize("tools", [False, True])
@pytest.mark.parametrize("path", ALIVE)
@pytest.mark.usefixtures("_quick")
def test_what_is_sent_says_nothing_and_the_answer_follows(
    path: str, tools: bool, start: Callable[..., Gateway]
) -> None:
    """With the engine's tools the provider may have begun: the client gets the answer at its end."""
    slow = Slow()
    with ModelServer(["warm"], then=slow) as server:
        gateway = start(server, {"context": {"engine": "lcm"}}, tools=tools)
        gateway.post(path, body(path))
        known = {info.key for info in gateway.store.conversations()}
        content = b""
        with httpx2.stream("POST", f"{gateway.address}{path}", json=body(path), timeout=30) as answer:
            for piece in answer.iter_raw():
                content += piece
                if content.count(ALIVE[path]) == 2:
                    slow.may_answer.set()
    assert content.startswith(ALIVE[path] * 2)
    assert ENDS[path] in content
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream")
    assert {answer.headers["x-leporello-session"]} == {info.key for info in gateway.store.conversations()} - known


@pytest.fixture
def slow() -> Iterator[ModelServer]:
    """A provider that begins its answers late."""
    with ModelServer() as server:
        for _ in range(3):
            server.fail(Failure.SLOW_START, seconds=1.0)
        yield server


@pytest.mark.usefixtures("_quick")
def test_the_official_packages_go_on(start: Callable[..., Gateway], slow: ModelServer) -> None:
    address = start(slow).address
    with openai.OpenAI(base_url=f"{address}/v1", api_key="any", max_retries=0) as sdk:
        chunks: Any = sdk.chat.completions.create(model="m", messages=HELLO, stream=True)  # type: ignore[arg-type]
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "hello"
        kinds = [event.type for event in sdk.responses.create(model="m", input="again", stream=True)]
        assert (kinds[0], kinds[-1]) == ("keepalive", "response.completed")
    with anthropic.Anthropic(base_url=address, api_key="any", max_retries=0) as claude:
        asked: Any = {"model": "m", "max_tokens": 90, "messages": HELLO}
        with claude.messages.stream(**asked) as stream:
            assert stream.get_final_text() == "hello"


@pytest.mark.usefixtures("_quick")
def test_the_official_packages_raise_an_error_that_is_told_so_late(
    start: Callable[..., Gateway], monkeypatch: pytest.MonkeyPatch
) -> None:
    with ModelServer() as server:
        address = start(server).address
        exchange = drop_in.DropIn._exchange

        async def held(*args: Any) -> None:
            await asyncio.sleep(0.6)
            await exchange(*args)

        monkeypatch.setattr(drop_in.DropIn, "_exchange", held)
        server.fail(Failure.OVERLOADED, times=3)
        with openai.OpenAI(base_url=f"{address}/v1", api_key="any", max_retries=0) as sdk:
            with pytest.raises(openai.APIError):
                list(sdk.chat.completions.create(model="m", messages=HELLO, stream=True))  # type: ignore[arg-type]
            kinds = [event.type for event in sdk.responses.create(model="m", input="again", stream=True)]
            assert kinds[-1] == "response.failed"
        with anthropic.Anthropic(base_url=address, api_key="any", max_retries=0) as claude:
            asked: Any = {"model": "m", "max_tokens": 90, "messages": HELLO}
            with pytest.raises(anthropic.APIError), claude.messages.stream(**asked) as stream:
                stream.get_final_text()


class Silent:
    """A client that keeps what it gets."""

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.status = 0
        self.content = b""

    async def start(self, status: int, headers: Any) -> None:
        assert not self.status
        self.status = status

    async def write(self, content: bytes) -> None:
        self.content += content

    async def finish(self, content: bytes = b"") -> None:
        self.content += content

    async def answer(self, status: int, headers: Any, content: bytes) -> None:
        await self.start(status, headers)
        await self.finish(content)


ERRORS: dict[WireFormat, Callable[[Any], Any]] = {
    OPENAI: lambda told: told["error"],
    ANTHROPIC: lambda told: told["error"],
    RESPONSES: lambda told: told["response"]["error"],
}


@pytest.mark.parametrize("dialect", ERRORS, ids=lambda dialect: dialect.name)
@pytest.mark.parametrize(
    ("status", "content", "code"),
    [
        (503, b'{"error":{"message":"later","code":"overloaded","type":"api_error"}}', "overloaded"),
        (500, b"<html>broken</html>", "server_error"),
    ],
)
def test_a_refusal_behind_a_keep_alive_is_an_event(status: int, content: bytes, code: str, dialect: WireFormat) -> None:
    async def waited(seconds: float) -> tuple[Silent, bool]:
        client = Silent()
        patient = KeepAliveConnection(client, dialect, silence=0.05)  # type: ignore[arg-type]
        async with patient.waiting():
            await asyncio.sleep(seconds)
            await patient.answer(status, [], content)
        return client, patient.begun

    late, begun = asyncio.run(waited(0.2))
    assert begun
    assert late.status == 200
    assert late.content.startswith(dialect.keep_alive)
    error = ERRORS[dialect](json.loads(late.content.rpartition(b"data: ")[2]))
    assert error["message"] in ("later", "<html>broken</html>")
    assert error["code"] == code if dialect is RESPONSES else error.get("code", code) == code
    quick, begun = asyncio.run(waited(0))
    assert not begun
    assert (quick.status, quick.content) == (status, content)


def test_planted_an_error_in_another_dialect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(RESPONSES), "failure", lambda _, error: ANTHROPIC.failure(error))
    with pytest.raises(KeyError):
        test_a_refusal_behind_a_keep_alive_is_an_event(500, b"<html>broken</html>", "server_error", RESPONSES)
