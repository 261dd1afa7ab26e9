"""One request of a drop-in client, from its history to the last byte of the answer.

    _store_new   the new messages are stored, and the conversation is folded if the engine says so
    _ask         the provider gets the client's own bytes; after a fold, its request with the folded messages
    _recover     if the provider finds it too long: folded once more, and sent again
    _deliver     the answer is passed on byte by byte, and stored before its last byte is

The conversation was looked up before (`recognition.py`, `client_sessions.py`).
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeVar

from leporello.errors import MessageError, RequestRefusedError, StoreError
from leporello.gateway.answer_reader import IncomingAnswer, read_events, read_whole
from leporello.gateway.bodies import SMALL, written
from leporello.gateway.client_session import Added, ClientSession
from leporello.gateway.dialects import COUNTING, Outgoing
from leporello.gateway.errors import CLIENT_KEY_REFUSED, KEY_REFUSED, Refused, public_message
from leporello.gateway.limits import shielded
from leporello.gateway.scrub import noted
from leporello.gateway.sse import Events, ServerSentEvent
from leporello.llm.errors import classify
from leporello.messages import call_ids_of
from leporello.messages.types import newest_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from leporello.gateway.client_connection import ClientConnection
    from leporello.gateway.client_request import ClientRequest
    from leporello.gateway.client_sessions import Claim
    from leporello.gateway.dialects import WireFormat
    from leporello.gateway.reply import Reply
    from leporello.gateway.upstream import Upstream
    from leporello.session.answers import ModelAnswer

T = TypeVar("T")
_MOST_ROUNDS: Final = 9
"""How many answers in a row may call engine tools only, before one is passed on to the client."""

_ABOUT_THE_ACCOUNT: Final = frozenset({401, 402, 403})
_UNKNOWN_FIELD: Final = frozenset({400, 422})
_SILENCE: Final = 0.05  # seconds to wait for the usage behind the end of an answer
SLICE: Final = 64
"""How many messages are stored at a time, so that other requests of the same key can run in between."""


class Exchange:
    """One request and its answer."""

    def __init__(
        self,
        asked: ClientRequest,
        *,
        dialect: WireFormat,
        upstream: Upstream,
        claim: Claim,
        caller: ClientConnection,
        release: Callable[[], None],
    ) -> None:
        self._asked = asked
        self._dialect = dialect
        self._upstream = upstream
        self._claim = claim
        self._session = claim.session
        self._release = release
        self._caller = caller
        self._counted = False
        self._recorded = False

    async def run(self) -> None:
        """Ask the provider, again while its answers call engine tools only, and pass the last answer on."""
        request = await self._store_new()
        for round_ in range(_MOST_ROUNDS if self._session.with_tools else 1):
            is_last = round_ == _MOST_ROUNDS - 1 or not self._session.with_tools
            if not await self._ask_and_deliver(request, is_last=is_last):
                return
            request = await shielded(self._storing(ClientSession.request, self._asked.tools, self._asked.marked))

    async def _ask_and_deliver(self, folded: dict[str, Any] | None, *, is_last: bool) -> bool:
        """Ask once, and once more if the input was too long; True if the answer called engine tools only."""
        for attempt in (1, 2):
            reply = await self._ask(folded)
            async with aclosing(reply):
                inside = await self._from_provider(reply.error_inside(self._dialect))
                if reply.is_success and inside is None:
                    return await self._deliver(reply, is_last=is_last)
                content = inside or self._upstream.scrubber().content(await reply.read())
                status = reply.status if inside is None else HTTPStatus.BAD_REQUEST
                folded = await shielded(self._recover(status, content, reply.headers)) if attempt == 1 else None
                if folded is None and inside is not None:
                    return await self._deliver(reply, is_last=True)
                if folded is None:
                    await shielded(self._failed(f"the provider answered {reply.status}"))
                    await pass_refusal(self._upstream, reply, content, self._caller)
                    break
        return False

    async def _store_new(self) -> dict[str, Any] | None:
        """Store the new messages of the history; returns the folded request, None to send the client's own bytes.

        They are stored in slices; when the client disconnects, the current slice is the last one.
        """
        claim, history = self._claim, self._asked.history
        before = history.before(claim.count)
        listed = before if claim.rewritten else None
        calls: list[Callable[[ClientSession], Any]] = [
            partial(ClientSession.set_up, model=self._asked.model, systems=history.systems, aside=self._asked.is_aside)
        ]
        if listed is not None:
            calls.append(partial(ClientSession.align, listed=listed))
        calls.append(partial(ClientSession.drop_notes, listed=before))
        newest = newest_of(before, "assistant")
        called = call_ids_of(before[newest]) if newest >= 0 else ()
        count, total = claim.count, len(history.hashes)
        while True:
            until = min(count + SLICE, total)
            known = claim.known_by(history.hashes[until - 1])
            added = Added(new=history.after(count, until), listed=listed, known=known, calls=called)
            calls.append(partial(ClientSession.add, added=added))
            if until == total:
                calls.append(partial(ClientSession.request, tools=self._asked.tools, marked=self._asked.marked))
                return await shielded(self._storing(_call_each, calls))
            await shielded(self._storing(_call_each, calls))
            count, listed, called, calls = until, None, (), []

    async def _ask(self, folded: dict[str, Any] | None, *, counted: bool = True) -> Reply:
        """Send the client's own bytes, or its request with the folded messages; `counted` asks for the usage too."""
        asked = self._asked
        build = partial(self._outgoing, folded, counted=counted and asked.model not in self._upstream.uncounted)
        outgoing = await self._session.compute(build) if len(asked.content) > SMALL else build()
        self._counted, self._session.weight = outgoing.counted, len(outgoing.content)
        send = self._upstream.send(self._dialect.path, outgoing.content, asked.headers, asked.query)
        reply = await self._from_provider(send)
        if not outgoing.counted or reply.status not in _UNKNOWN_FIELD or COUNTING not in await reply.peek():
            return reply
        await reply.aclose()
        reply = await self._ask(folded, counted=False)
        if reply.is_success:  # else it was refused for another reason, in words that quote the request
            self._upstream.uncounted[asked.model] = True
        return reply

    def _outgoing(self, folded: dict[str, Any] | None, *, counted: bool) -> Outgoing:
        body, content = self._asked.body, self._asked.content
        if folded is not None:
            body = self._dialect.folded(body, folded)
            content = written(body)
        return self._dialect.counted(body, content) if counted else Outgoing(content=content)

    async def _recover(self, status: int, content: bytes, headers: Mapping[str, str]) -> dict[str, Any] | None:
        """Return a shorter request, if the provider refused this one as too long and it could be folded."""
        refusal = status, content, headers
        return await self._session.call(ClientSession.refused, *refusal, self._asked.tools, self._asked.marked)

    async def _from_provider(self, work: Awaitable[T]) -> T:
        """Wait for the provider; if that fails, the request counts as failed."""
        try:
            return await work
        except Refused as refused:
            await shielded(self._failed(refused.message))
            raise

    async def _deliver(self, reply: Reply, *, is_last: bool) -> bool:
        """Pass an answer on; True if it was not, because it called engine tools only and is not the last one."""
        is_last = is_last or not self._session.with_tools
        if reply.is_stream and is_last:
            await self._deliver_stream(reply)
            return False
        content = await self._from_provider(reply.read())
        answer = await self._parsed(content, read_events if reply.is_stream else read_whole)
        is_internal = answer is not None and await shielded(self._record(answer))
        if is_internal and not is_last:
            return True
        shown = b"".join(map(self._shown, Events().feed(content))) if reply.is_stream and self._counted else content
        await self._caller.answer(reply.status, reply.passed_back(), shown)
        return False

    async def _parsed(self, content: bytes, read: Callable[[bytes], ModelAnswer | None]) -> ModelAnswer | None:
        """Parse an answer, a long one in a thread; if it cannot be read, the request counts as failed."""
        answer = read(content) if len(content) <= SMALL else await self._session.compute(read, content)
        if answer is None:
            await shielded(self._failed("the answer cannot be read"))
        return answer

    async def _deliver_stream(self, reply: Reply) -> None:
        """Pass every byte on as it comes, but the end of the answer only after it is recorded.

        If the provider is silent between the end of the answer and its usage, the answer is recorded without the usage,
        as the client may send its next request meanwhile.
        """
        await self._caller.start(reply.status, reply.passed_back())
        events, reading = Events(), IncomingAnswer()
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
                    await shielded(self._record(reading.answer(complete=True)))
                await self._caller.write(held)
                held = b""
            ended = True
        finally:
            if not self._recorded:
                await shielded(self._record(reading.answer(complete=ended)))
        await self._caller.finish(held + (events.rest if self._counted else b""))

    def _shown(self, event: ServerSentEvent) -> bytes:
        """Return the bytes of an event for the client; b"" for the usage that it did not ask for."""
        data = event.data
        is_count = isinstance(data, dict) and data.get("choices") == [] and data.get("usage") is not None
        return b"" if is_count else event.raw

    async def _record(self, answer: ModelAnswer | None) -> bool:
        """Store an answer with its hashes; True if the client does not get it.

        The session is released here, so that the next request can use it before the last byte has been sent.
        """
        if answer is None:
            await self._failed("the answer was empty or broke off")
            return False
        answer = self._dialect.recorded(answer, self._asked.body)
        names = self._dialect.names(answer, self._asked.body, self._session.owner)
        known = (*self._asked.history.answered(answer.message), *names)
        visible = await self._storing(ClientSession.record, answer, known)
        if answer.incomplete:
            await self._failed("the answer broke off")
        elif visible and self._claim.takes_head:
            await self._session.call(ClientSession.take_head)
        if visible:
            self._release()
        return not visible

    async def _failed(self, why: str) -> None:
        """Record that the request got no answer, so that it is recognised when it is sent again."""
        is_new = not self._claim.joined and not self._session.address.named
        known = [self._asked.history.unanswered] if is_new else []
        await self._session.call(ClientSession.failed, why, known)

    async def _storing(self, method: Callable[..., T], *args: Any) -> T:
        """Call a method of the session; errors of the store or a message become Refused."""
        try:
            return await self._session.call(method, *args)
        except StoreError as error:
            self._session.spoilt = True
            raise Refused(503, public_message(error), retry_after=5) from error
        except MessageError as error:
            raise Refused(400, f"messages: {error}") from error
        except RecursionError as error:
            raise Refused(400, "messages: a message is nested too deeply.") from error


def _call_each(session: ClientSession, calls: Sequence[Callable[[ClientSession], T]]) -> T:
    """Make several calls on a session without leaving its thread; returns the result of the last one."""
    return [call(session) for call in calls][-1]


async def _with_silence(pieces: AsyncIterator[bytes], is_watched: Callable[[], bool]) -> AsyncIterator[bytes]:
    """Yield pieces as they come, and b"" after a moment of silence while `is_watched` is true."""
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


async def pass_refusal(upstream: Upstream, reply: Reply, content: bytes, client: ClientConnection) -> None:
    """Pass a provider's error on with its status, without what it says about the gateway's account."""
    content, headers = upstream.scrubber().content(content), reply.passed_back()
    if reply.with_client_key:
        refused_key = reply.status == HTTPStatus.UNAUTHORIZED
        await client.answer(reply.status, headers, noted(content, CLIENT_KEY_REFUSED) if refused_key else content)
        return
    error = classify(status=reply.status, body=content, headers=reply.headers)
    if reply.status in _ABOUT_THE_ACCOUNT and not isinstance(error, RequestRefusedError):
        raise Refused(reply.status, KEY_REFUSED)
    await client.answer(reply.status, headers, content)
