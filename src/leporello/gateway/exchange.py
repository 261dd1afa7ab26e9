"""One request of a drop-in client, from its history to the last byte of the answer.

    history ─▶ the conversation is found ─▶ what is new is stored ─▶ folded if it must be
            ─▶ the provider ─▶ too long: folded once more, and asked again
            ─▶ the answer, byte for byte as it comes; recorded before its last byte is passed on

What the client got is stored: the end of an answer is held back until the answer is.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeVar

from leporello.errors import MessageError, RequestRefusedError, StoreError
from leporello.gateway.bodies import SMALL, written
from leporello.gateway.dialogue import Asked, Dialogue
from leporello.gateway.errors import KEY_REFUSED, Refused, told
from leporello.gateway.limits import to_the_end
from leporello.gateway.reading import Reading, read_events, read_whole
from leporello.gateway.shelf import asks_again
from leporello.gateway.sse import Event, Events
from leporello.llm.errors import classify

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from leporello.gateway.dialects import Dialect, Outgoing
    from leporello.gateway.history import Heard
    from leporello.gateway.live import Live
    from leporello.gateway.relay import Client
    from leporello.gateway.shelf import Shelf
    from leporello.gateway.upstream import Reply, Upstream
    from leporello.messages import Message
    from leporello.session.answers import Answered

T = TypeVar("T")
_MOST_ROUNDS: Final = 9
"""How often the model may ask the engine before it must answer the client."""

_ABOUT_THE_ACCOUNT: Final = frozenset({401, 402, 403})
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
            reply = await self._ask(folded)
            async with aclosing(reply):
                if reply.is_success:
                    return await self._deliver(reply, is_last=is_last)
                content = self._upstream.scrubber().content(await reply.read())
                folded = await to_the_end(self._recover(reply, content)) if attempt == 1 else None
                if folded is None:
                    await self._pass_refusal(reply, content)
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
        except MessageError as error:
            raise Refused(400, f"messages: {error}") from error
        except RecursionError as error:
            raise Refused(400, "messages: a message is nested too deeply.") from error
        known.count, known.mark, known.before = until, heard.marks[until - 1], b""
        return folded

    async def _ask(self, folded: dict[str, Any] | None) -> Reply:
        """Send the client's own bytes, or what it sent with a folded conversation in it."""
        sent = self._sent
        long = len(sent.content) > SMALL
        outgoing = await self._live.compute(self._outgoing, folded) if long else self._outgoing(folded)
        self._counted, self._live.weight = outgoing.counted, len(outgoing.content)
        try:
            return await self._upstream.send(self._dialect.path, outgoing.content, sent.headers, sent.query)
        except Refused as refused:
            await to_the_end(self._live.call(Dialogue.failed, refused.message))
            raise

    def _outgoing(self, folded: dict[str, Any] | None) -> Outgoing:
        body, content = self._sent.body, self._sent.content
        if folded is not None:
            body = self._dialect.folded(body, folded)
            content = written(body)
        return self._dialect.counted(body, content)

    async def _recover(self, reply: Reply, content: bytes) -> dict[str, Any] | None:
        """Return the request to send instead, if the provider found this one too long and it could be folded."""
        return await self._live.call(Dialogue.refused, reply.status, content, reply.headers, self._sent.tools)

    async def _pass_refusal(self, reply: Reply, content: bytes) -> None:
        """Pass the provider's refusal on; a client is told with a status of its own that the key here is refused."""
        if reply.status == HTTPStatus.UNAUTHORIZED:
            raise Refused(502, KEY_REFUSED)
        await pass_refusal(self._upstream, reply, content, self._client, self._headers(reply))

    async def _deliver(self, reply: Reply, *, is_last: bool) -> bool:
        """Pass an answer on, unless only the engine had to answer it; tells whether that was so."""
        if self._live.with_tools and not is_last:
            return await self._inner(reply)
        await (self._stream if reply.is_stream else self._whole)(reply)
        return False

    async def _inner(self, reply: Reply) -> bool:
        """Wait for the whole answer: only then it is known whether the client may see it."""
        content = await self._read(reply)
        answer = await self._understood(content, read_events if reply.is_stream else read_whole)
        if answer is not None and await to_the_end(self._record(answer)):
            return True
        shown = b"".join(map(self._shown, Events().feed(content))) if reply.is_stream and self._counted else content
        await self._client.answer(reply.status, self._headers(reply), shown)
        self._live.known.before = b""
        return False

    async def _whole(self, reply: Reply) -> None:
        """Record the answer, then pass it on."""
        content = await self._read(reply)
        answer = await self._understood(content, read_whole)
        if answer is not None:
            await to_the_end(self._record(answer))
        await self._client.answer(reply.status, self._headers(reply), content)
        self._live.known.before = b""

    async def _read(self, reply: Reply) -> bytes:
        """Return the body of an answer."""
        try:
            return await reply.read()
        except Refused as refused:
            await to_the_end(self._live.call(Dialogue.failed, refused.message))
            raise

    async def _understood(self, content: bytes, read: Callable[[bytes], Answered | None]) -> Answered | None:
        """Read an answer, a long one in a thread; it is noted when it cannot be read."""
        answer = read(content) if len(content) <= SMALL else await self._live.compute(read, content)
        if answer is None:
            await to_the_end(self._live.call(Dialogue.failed, "the answer cannot be read"))
        return answer

    async def _stream(self, reply: Reply) -> None:
        """Pass every byte on as it comes; the last ones when the answer is recorded."""
        await self._client.start(reply.status, self._headers(reply))
        events, reading = Events(), Reading()
        recorded = ended = False
        try:
            async for piece in reply.pieces():
                found = events.feed(piece)
                for event in found:
                    reading.take(event.data)
                if not recorded and any(event.last for event in found):
                    recorded = True
                    await to_the_end(self._record(reading.answer(complete=True)))
                await self._client.write(b"".join(map(self._shown, found)) if self._counted else piece)
            ended = True
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
            raise Refused(503, told(error), retry_after=5) from error

    def _headers(self, reply: Reply) -> list[tuple[bytes, bytes]]:
        return [*reply.passed_back(), (SESSION.encode(), self._live.known.key.encode())]


async def pass_refusal(
    upstream: Upstream, reply: Reply, content: bytes, client: Client, headers: list[tuple[bytes, bytes]]
) -> None:
    """Pass a provider's refusal on with its status; what it says about the account behind stays here."""
    error = classify(status=reply.status, body=content, headers=reply.headers)
    if reply.status in _ABOUT_THE_ACCOUNT and not isinstance(error, RequestRefusedError):
        raise Refused(reply.status, KEY_REFUSED)
    await client.answer(reply.status, headers, upstream.scrubber().content(content))
