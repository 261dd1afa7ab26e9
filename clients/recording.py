"""A relay on loopback that passes HTTP on and records it: one stands before the gateway, one behind it."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Iterator

COMPLETIONS = ("/chat/completions", "/messages", "/responses")
"""How the paths end at which answers are asked for."""

_clock = count(1)
_HOP = {"host", "content-length", "transfer-encoding", "accept-encoding", "keep-alive"}
_MOST_BYTES = 64 * 1024 * 1024
_SECONDS = 600.0
_GATE_SECONDS = 20.0
_FEWEST_EVENTS = 4


@dataclass(kw_only=True)
class Record:
    """One request and its answer; `began` and `ended` count the requests and answers of all relays."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    began: int
    ended: int = 0
    status: int = 0
    answer: bytes = b""
    pieces: int = 0
    is_stream: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON."""
        texts = {"body": self.body.decode(errors="replace"), "answer": self.answer.decode(errors="replace")}
        return {**vars(self), **texts}

    @property
    def is_completion(self) -> bool:
        """Tell whether an answer of a model is asked for."""
        return self.method == "POST" and self.path.partition("?")[0].rstrip("/").endswith(COMPLETIONS)


@dataclass
class Relay:
    """A server that passes every request on to another one, with its record."""

    target: str = ""
    records: list[Record] = field(default_factory=list)
    address: str = ""
    gate: Relay | None = None
    """Hold back the second half of one streamed answer until something of it has passed this other relay."""
    streamed: bool | None = None
    """Whether it did; None when there was no such answer."""

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        record = Record(method=request.method, path=request.path_qs, headers=headers, body=body, began=next(_clock))
        self.records.append(record)
        passed = {name: value for name, value in request.headers.items() if name.lower() not in _HOP}
        response = web.StreamResponse()
        try:
            async with self._session.request(
                request.method, self.target + request.path_qs, data=body or None, headers=passed, allow_redirects=False
            ) as reply:
                await self._answer(request, response, reply, record)
        except ConnectionResetError:
            pass  # a client may leave as soon as it has seen the end of a stream
        finally:
            record.ended = record.ended or next(_clock)
        return response

    async def _answer(
        self, request: web.Request, response: web.StreamResponse, reply: aiohttp.ClientResponse, record: Record
    ) -> None:
        record.status = reply.status
        record.is_stream = reply.content_type == "text/event-stream"
        response.set_status(reply.status)
        for name, value in reply.headers.items():
            if name.lower() not in _HOP and name.lower() != "connection":
                response.headers.add(name, value)
        await response.prepare(request)
        if self.gate is not None and self.streamed is None and record.is_stream:
            await self._gated(response, await reply.read(), record, self.gate)
        else:
            async for piece in reply.content.iter_any():
                await self._pass(response, piece, record)
        record.ended = next(_clock)  # before the last bytes: the next request may come at once
        await response.write_eof()

    async def _gated(self, response: web.StreamResponse, answer: bytes, record: Record, gate: Relay) -> None:
        """Pass on one half of an answer, and the other when the client has something of the first."""
        events = answer.split(b"\n\n")
        half = b"\n\n".join(events[: len(events) // 2]) + b"\n\n"
        if len(events) < _FEWEST_EVENTS or half == answer:
            await self._pass(response, answer, record)
            return
        waiting = [one for one in gate.records if one.is_completion and not one.ended]
        await self._pass(response, half, record)
        for _ in range(int(_GATE_SECONDS * 100)):
            if any(one.pieces for one in waiting):
                break
            await asyncio.sleep(0.01)
        self.streamed = any(one.pieces for one in waiting)
        await self._pass(response, answer[len(half) :], record)

    async def _pass(self, response: web.StreamResponse, piece: bytes, record: Record) -> None:
        record.answer += piece
        record.pieces += 1
        await response.write(piece)

    async def _run(self, ready: threading.Event, ends: asyncio.Event) -> None:
        limits: Any = aiohttp.ClientTimeout(total=None, sock_read=_SECONDS)
        async with aiohttp.ClientSession(timeout=limits, auto_decompress=False, trust_env=False) as self._session:
            app = web.Application(client_max_size=_MOST_BYTES)
            app.router.add_route("*", "/{path:.*}", self._serve)
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.address = f"http://127.0.0.1:{runner.addresses[0][1]}"
            ready.set()
            await ends.wait()
            await runner.cleanup()


@contextmanager
def relayed(target: str) -> Iterator[Relay]:
    """Run a relay to a server until the block ends."""
    relay, ready = Relay(target), threading.Event()
    loop, ends = asyncio.new_event_loop(), asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(relay._run(ready, ends)), daemon=True)  # noqa: SLF001
    thread.start()
    try:
        if not ready.wait(_GATE_SECONDS):
            raise RuntimeError("a relay did not start")
        yield relay
    finally:
        loop.call_soon_threadsafe(ends.set)
        thread.join(_GATE_SECONDS)
        loop.close()
