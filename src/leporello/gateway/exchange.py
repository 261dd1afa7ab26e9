"""One request of a drop-in client, from its history to the last byte of the answer.

    history ─▶ the conversation is found ─▶ what is new is stored ─▶ folded if it must be
            ─▶ the provider ─▶ too long: folded once more, and asked again
            ─▶ the answer, byte for byte as it comes; recorded before its last byte is passed on

What the client got is stored: the end of an answer is held back until the answer is.
"""

from __future__ import annotations

import logging
from contextlib import aclosing
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeVar

import httpx2

from leporello.errors import MessageError, StoreError
from leporello.gateway.bodies import SMALL, written
from leporello.gateway.dialogue import Asked, Dialogue
from leporello.gateway.errors import Refused
from leporello.gateway.limits import to_the_end
from leporello.gateway.reading import Reading, read_events, read_whole
from leporello.gateway.shelf import asks_again
from leporello.gateway.sse import Event, Events
from leporello.gateway.upstream import passed_back

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from leporello.gateway.dialects import Dialect
    from leporello.gateway.history import Heard
    from leporello.gateway.live import Live
    from leporello.gateway.relay import Client
    from leporello.gateway.shelf import Shelf
    from leporello.gateway.upstream import Upstream
    from leporello.messages import Message
    from leporello.session.answers import Answered

T = TypeVar("T")
_log = logging.getLogger("leporello.gateway")
_MOST_ROUNDS: Final = 9
"""How often the model may ask the engine before it must answer the client."""

SLICE: Final = 64
"""How many messages are taken at a time; other requests of the same key get their turn in between."""

SESSION: Final = "x-leporello-session"
"""The header that names a conversation, in requests and in answers."""


@dataclass(frozen=True, kw_only=True)
class Sent:
    """What a client sent: the body as bytes and as data, the headers, the query, and the conversation in it."""

    content: bytes
    body: dict[str, Any]
    headers: Mapping[str, str]
    query: str
    heard: Heard

    @property
    def model(self) -> str:
        """The model that is asked; "" when it has no name that anybody could know."""
        model = self.body.get("model")
        return model if isinstance(model, str) and model.isprintable() else ""

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The tools of the client."""
        tools = self.body.get("tools")
        return [tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []


class Exchange:
    """One request and its answer."""

    def __init__(
        self, sent: Sent, *, dialect: Dialect, upstream: Upstream, live: Live, shelf: Shelf, client: Client
    ) -> None:
        self._sent = sent
        self._dialect = dialect
        self._upstream = upstream
        self._live = live
        self._shelf = shelf
        self._client = client
        self._counted = False

    async def run(self) -> None:
        """Ask the provider, and again as long as the engine answers it; pass the last answer on."""
        request = await self._take()
        for round_ in range(_MOST_ROUNDS if self._live.with_tools else 1):
            is_last = round_ == _MOST_ROUNDS - 1 or not self._live.with_tools
            if not await self._turn(request, is_last=is_last):
                return
            request = await to_the_end(self._live.call(Dialogue.go_on, self._sent.tools))

    async def _turn(self, folded: dict[str, Any] | None, *, is_last: bool) -> bool:
        """Ask once, and once more if the input was too long; tells whether the engine alone had to answer."""
        for attempt in (1, 2):
            response = await self._ask(folded)
            async with aclosing(response):
                if response.is_success:
                    return await self._deliver(response, is_last=is_last)
                content = await _read(response)
                folded = await to_the_end(self._recover(response, content)) if attempt == 1 else None
                if folded is None:
                    await self._pass_refusal(response, content)
                    break
        return False

    async def _take(self) -> dict[str, Any] | None:
        """Store what is new; from here on the conversation goes as far as the client's history."""
        known, heard = self._live.known, self._sent.heard
        again = asks_again(known, heard)
        if again:
            known.take_back()
        if known.moved:  # noted before anything is added to it, so that what is counted later is counted right
            known.moved = False
            await to_the_end(self._shelf.note(self._live))
        systems: list[Message] | None = heard.systems
        folded, is_new, total = None, not known.count, len(heard.marks)
        while systems is not None or known.count < total:  # a client that leaves ends this behind the slice under way
            until = min(known.count + SLICE, total)
            asked = Asked(
                systems=systems,
                new=heard.after(known.count, until),
                tools=self._sent.tools,
                model=self._sent.model,
                again=again,
                last=until == total,
            )
            folded = await to_the_end(self._take_slice(asked, until))
            systems, again = None, False
            if is_new:
                is_new = False
                await to_the_end(self._shelf.note(self._live))
        return folded

    async def _take_slice(self, asked: Asked, until: int) -> dict[str, Any] | None:
        """Store a slice of what is new; the conversation goes as far as that then."""
        known, heard = self._live.known, self._sent.heard
        try:
            folded = await self._storing(Dialogue.take, asked)
        except (MessageError, RecursionError) as error:
            raise Refused(400, f"messages: {str(error) or 'a message is nested too deeply.'}") from error
        known.count, known.mark, known.before = until, heard.marks[until - 1], b""
        return folded

    async def _ask(self, folded: dict[str, Any] | None) -> httpx2.Response:
        """Send the client's own bytes, or what it sent with a folded conversation in it."""
        sent = self._sent
        body, content = sent.body, sent.content
        if folded is not None:
            body = self._dialect.folded(body, folded)
            content = await self._live.write(body) if len(content) > SMALL else written(body)
        outgoing = self._dialect.counted(body, content)
        self._counted, self._live.weight = outgoing.counted, len(outgoing.content)
        try:
            return await self._upstream.send(self._dialect.path, outgoing.content, sent.headers, sent.query)
        except Refused as refused:
            await to_the_end(self._live.call(Dialogue.failed, refused.message))
            raise

    async def _recover(self, response: httpx2.Response, content: bytes) -> dict[str, Any] | None:
        """Return the request to send instead, if the provider found this one too long and it could be folded."""
        return await self._live.call(
            Dialogue.refused, response.status_code, content, dict(response.headers), self._sent.tools
        )

    async def _pass_refusal(self, response: httpx2.Response, content: bytes) -> None:
        """Pass the provider's refusal on; one of the gateway's own key is none of the client's business."""
        if response.status_code == HTTPStatus.UNAUTHORIZED:
            raise Refused(502, "the provider refused the key of this gateway; its operator must set another.")
        await self._client.answer(response.status_code, self._headers(response), content)

    async def _deliver(self, response: httpx2.Response, *, is_last: bool) -> bool:
        """Pass an answer on, unless only the engine had to answer it; tells whether that was so."""
        streams = response.headers.get("content-type", "").startswith("text/event-stream")
        if self._live.with_tools and not is_last:
            return await self._inner(response, streams=streams)
        await (self._stream if streams else self._whole)(response)
        return False

    async def _inner(self, response: httpx2.Response, *, streams: bool) -> bool:
        """Wait for the whole answer: only then it is known whether the client may see it."""
        content = await _read(response)
        answer = (read_events if streams else read_whole)(content)
        if answer is None:
            await to_the_end(self._live.call(Dialogue.failed, "the answer cannot be read"))
        elif await to_the_end(self._record(answer)):
            return True
        shown = b"".join(map(self._shown, Events().feed(content))) if streams and self._counted else content
        await self._client.answer(response.status_code, self._headers(response), shown)
        self._live.known.before = b""
        return False

    async def _whole(self, response: httpx2.Response) -> None:
        """Record the answer, then pass it on."""
        try:
            content = await _read(response)
        except Refused as refused:
            await to_the_end(self._live.call(Dialogue.failed, refused.message))
            raise
        answer = read_whole(content)
        if answer is None:
            await to_the_end(self._live.call(Dialogue.failed, "the answer cannot be read"))
        else:
            await to_the_end(self._record(answer))
        await self._client.answer(response.status_code, self._headers(response), content)
        self._live.known.before = b""

    async def _stream(self, response: httpx2.Response) -> None:
        """Pass every byte on as it comes; the last ones when the answer is recorded."""
        await self._client.start(response.status_code, self._headers(response))
        events, reading = Events(), Reading()
        recorded = ended = False
        try:
            async for chunk in response.aiter_bytes():
                found = events.feed(chunk)
                for event in found:
                    reading.take(event.data)
                if not recorded and any(event.last for event in found):
                    recorded = True
                    await to_the_end(self._record(reading.answer(complete=True)))
                await self._client.write(b"".join(map(self._shown, found)) if self._counted else chunk)
            ended = True
        except httpx2.HTTPError as error:
            _log.warning("an answer of the provider broke off: %s", str(error) or type(error).__name__)
            return  # the client's connection ends as the provider's did: in the middle
        finally:
            if not recorded:
                await to_the_end(self._record(reading.answer(complete=ended)))
        await self._client.finish(events.rest if self._counted else b"")
        self._live.known.before = b""

    def _shown(self, event: Event) -> bytes:
        """Return what the client sees of an event: not the count that it did not ask for."""
        data = event.data
        is_count = isinstance(data, dict) and data.get("choices") == [] and data.get("usage") is not None
        return b"" if is_count else event.raw

    async def _record(self, answer: Answered | None) -> bool:
        """Store an answer, and how far the conversation has come with it; tells whether it is not the client's."""
        if answer is None:
            await self._live.call(Dialogue.failed, "the answer was empty or broke off")
            return False
        known = self._live.known
        hidden = await self._storing(Dialogue.record, answer)
        if hidden:
            known.hidden += hidden
        elif not answer.incomplete:
            known.answered(answer.message)
        if hidden or not answer.incomplete:
            await self._shelf.note(self._live)
        return bool(hidden)

    async def _storing(self, method: Callable[..., T], *args: Any) -> T:
        """Call a method of the dialogue that stores something; nobody is told of what the store could not take."""
        try:
            return await self._live.call(method, *args)
        except StoreError as error:
            self._live.spoilt = True
            raise Refused(503, str(error), retry_after=5) from error

    def _headers(self, response: httpx2.Response) -> list[tuple[bytes, bytes]]:
        return [*passed_back(response), (SESSION.encode(), self._live.known.key.encode())]


async def _read(response: httpx2.Response) -> bytes:
    """Return the body of an answer."""
    try:
        return await response.aread()
    except httpx2.TimeoutException as error:
        raise Refused(504, "the provider's answer did not come in time.", retry_after=5) from error
    except httpx2.HTTPError as error:
        raise Refused(502, "the provider's answer broke off.", retry_after=1) from error
