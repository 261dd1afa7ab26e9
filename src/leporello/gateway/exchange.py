"""One request of a drop-in client, from its history to the last byte of the answer.

    history ─▶ the conversation is looked up ─▶ what is new is stored ─▶ folded if it must be
            ─▶ the provider ─▶ too long: folded once more, and asked again
            ─▶ the answer, byte for byte as it comes; recorded before its last byte is passed on

What the client got is stored: the end of an answer is held back until the answer is.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeVar

from leporello.errors import MessageError, RequestRefusedError, StoreError
from leporello.gateway.bodies import SMALL, written
from leporello.gateway.client_session import Added, ClientSession
from leporello.gateway.errors import KEY_REFUSED, Refused, told
from leporello.gateway.limits import to_the_end
from leporello.gateway.reading import Reading, read_events, read_whole
from leporello.gateway.sse import Event, Events
from leporello.llm.errors import classify

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from leporello.gateway.clients import Claim
    from leporello.gateway.dialects import Dialect, Outgoing
    from leporello.gateway.history import History
    from leporello.gateway.relay import Client
    from leporello.gateway.upstream import Reply, Upstream
    from leporello.session.answers import Answered

T = TypeVar("T")
_MOST_ROUNDS: Final = 9
"""How often the model may ask the engine before it must answer the client."""

_ABOUT_THE_ACCOUNT: Final = frozenset({401, 402, 403})
_SILENCE: Final = 0.05  # seconds: the count follows the end of an answer at once
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
    history: History

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
        self,
        sent: Sent,
        *,
        dialect: Dialect,
        upstream: Upstream,
        claim: Claim,
        caller: Client,
        release: Callable[[], None],
    ) -> None:
        self._sent = sent
        self._dialect = dialect
        self._upstream = upstream
        self._claim = claim
        self._client = claim.client
        self._release = release
        self._caller = caller
        self._counted = False
        self._recorded = False

    async def run(self) -> None:
        """Ask the provider, and again as long as the engine answers it; pass the last answer on."""
        await self._take()
        request = await to_the_end(self._storing(ClientSession.request, self._sent.tools))
        for round_ in range(_MOST_ROUNDS if self._client.with_tools else 1):
            is_last = round_ == _MOST_ROUNDS - 1 or not self._client.with_tools
            if not await self._turn(request, is_last=is_last):
                return
            request = await to_the_end(self._storing(ClientSession.request, self._sent.tools))

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
                    await to_the_end(self._failed(f"the provider answered {reply.status}"))
                    await self._pass_refusal(reply, content)
                    break
        return False

    async def _take(self) -> None:
        """Store what is new; from here on the conversation goes as far as the client's history."""
        claim, history = self._claim, self._sent.history
        await to_the_end(self._storing(ClientSession.set_up, self._sent.model, history.systems))
        listed = history.before(claim.count) if claim.rewritten else None
        if listed is not None:
            await to_the_end(self._storing(ClientSession.follow, listed))
        count, total = claim.count, len(history.hashes)
        while True:  # a client that leaves ends this behind the slice under way
            until = min(count + SLICE, total)
            known = claim.known_by(history.hashes[until - 1])
            added = Added(new=history.after(count, until), listed=listed, known=known)
            await to_the_end(self._storing(ClientSession.add, added))
            count = until
            if count == total:
                return

    async def _ask(self, folded: dict[str, Any] | None) -> Reply:
        """Send the client's own bytes, or what it sent with a folded conversation in it."""
        sent = self._sent
        long = len(sent.content) > SMALL
        outgoing = await self._client.compute(self._outgoing, folded) if long else self._outgoing(folded)
        self._counted, self._client.weight = outgoing.counted, len(outgoing.content)
        try:
            return await self._upstream.send(self._dialect.path, outgoing.content, sent.headers, sent.query)
        except Refused as refused:
            await to_the_end(self._failed(refused.message))
            raise

    def _outgoing(self, folded: dict[str, Any] | None) -> Outgoing:
        body, content = self._sent.body, self._sent.content
        if folded is not None:
            body = self._dialect.folded(body, folded)
            content = written(body)
        return self._dialect.counted(body, content)

    async def _recover(self, reply: Reply, content: bytes) -> dict[str, Any] | None:
        """Return the request to send instead, if the provider found this one too long and it could be folded."""
        return await self._client.call(ClientSession.refused, reply.status, content, reply.headers, self._sent.tools)

    async def _pass_refusal(self, reply: Reply, content: bytes) -> None:
        """Pass the provider's refusal on; a client is told with a status of its own that the key here is refused."""
        if reply.status == HTTPStatus.UNAUTHORIZED:
            raise Refused(502, KEY_REFUSED)
        await pass_refusal(self._upstream, reply, content, self._caller, self._headers(reply))

    async def _deliver(self, reply: Reply, *, is_last: bool) -> bool:
        """Pass an answer on, unless only the engine had to answer it; tells whether that was so."""
        if self._client.with_tools and not is_last:
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
        await self._caller.answer(reply.status, self._headers(reply), shown)
        return False

    async def _whole(self, reply: Reply) -> None:
        """Record the answer, then pass it on."""
        content = await self._read(reply)
        answer = await self._understood(content, read_whole)
        if answer is not None:
            await to_the_end(self._record(answer))
        await self._caller.answer(reply.status, self._headers(reply), content)

    async def _read(self, reply: Reply) -> bytes:
        """Return the body of an answer."""
        try:
            return await reply.read()
        except Refused as refused:
            await to_the_end(self._failed(refused.message))
            raise

    async def _understood(self, content: bytes, read: Callable[[bytes], Answered | None]) -> Answered | None:
        """Read an answer, a long one in a thread; it is noted when it cannot be read."""
        answer = read(content) if len(content) <= SMALL else await self._client.compute(read, content)
        if answer is None:
            await to_the_end(self._failed("the answer cannot be read"))
        return answer

    async def _stream(self, reply: Reply) -> None:
        """Pass every byte on as it comes; those that end the answer when it is recorded.

        A provider may be silent between the end of the answer and the count behind it: a client may go on by then, so
        the answer is recorded without the count.
        """
        await self._caller.start(reply.status, self._headers(reply))
        events, reading = Events(), Reading()
        ended = False
        held = b""
        try:
            async for piece in _with_silence(reply.pieces(), lambda: reading.is_finished and not self._recorded):
                found = events.feed(piece)
                for event in found:
                    reading.take(event.data)
                held += b"".join(map(self._shown, found)) if self._counted else piece
                is_end = not piece or any(event.last for event in found)
                if not self._recorded and reading.is_finished and not is_end:
                    continue
                if not self._recorded and is_end:
                    self._recorded = True
                    await to_the_end(self._record(reading.answer(complete=True)))
                await self._caller.write(held)
                held = b""
            ended = True
        finally:
            if not self._recorded:
                await to_the_end(self._record(reading.answer(complete=ended)))
        await self._caller.finish(held + (events.rest if self._counted else b""))

    def _shown(self, event: Event) -> bytes:
        """Return what the client sees of an event: not the count that it did not ask for."""
        data = event.data
        is_count = isinstance(data, dict) and data.get("choices") == [] and data.get("usage") is not None
        return b"" if is_count else event.raw

    async def _record(self, answer: Answered | None) -> bool:
        """Store an answer, with what the client is recognised by then; tells whether it is not the client's.

        The next request may go on with the conversation from now on, before the last byte has gone out.
        """
        if answer is None:
            await self._failed("the answer was empty or broke off")
            return False
        visible = await self._storing(ClientSession.record, answer, self._sent.history.answered(answer.message))
        if answer.incomplete:
            await self._failed("the answer broke off")
        elif visible and self._claim.takes_head:
            await self._client.call(ClientSession.take_head)
        if visible:
            self._release()
        return not visible

    async def _failed(self, why: str) -> None:
        """Take note that no answer came: the same request is recognised when it comes again."""
        known = [] if self._claim.joined else [self._sent.history.unanswered]
        await self._client.call(ClientSession.failed, why, known)

    async def _storing(self, method: Callable[..., T], *args: Any) -> T:
        """Call a method of the session that stores something; nobody is told of what the store could not take."""
        try:
            return await self._client.call(method, *args)
        except StoreError as error:
            self._client.spoilt = True
            raise Refused(503, told(error), retry_after=5) from error
        except MessageError as error:
            raise Refused(400, f"messages: {error}") from error
        except RecursionError as error:
            raise Refused(400, "messages: a message is nested too deeply.") from error

    def _headers(self, reply: Reply) -> list[tuple[bytes, bytes]]:
        return [*reply.passed_back(), (SESSION.encode(), self._client.address.conversation.encode())]


async def _with_silence(pieces: AsyncIterator[bytes], is_watched: Callable[[], bool]) -> AsyncIterator[bytes]:
    """Yield pieces as they come; b"" where it stays silent for a moment while it is watched."""
    while True:
        if not is_watched():
            piece = await anext(pieces, None)
        else:
            coming = asyncio.ensure_future(anext(pieces, None))
            try:
                if not (await asyncio.wait({coming}, timeout=_SILENCE))[0]:
                    yield b""
                piece = await coming
            finally:
                coming.cancel()
        if piece is None:
            return
        yield piece


async def pass_refusal(
    upstream: Upstream, reply: Reply, content: bytes, client: Client, headers: list[tuple[bytes, bytes]]
) -> None:
    """Pass a provider's refusal on with its status; what it says about the account behind stays here."""
    error = classify(status=reply.status, body=content, headers=reply.headers)
    if reply.status in _ABOUT_THE_ACCOUNT and not isinstance(error, RequestRefusedError):
        raise Refused(reply.status, KEY_REFUSED)
    await client.answer(reply.status, headers, upstream.scrubber().content(content))
