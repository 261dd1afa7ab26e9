"""Our own routes: `/v1/sessions`, conversations with an agent that go on for weeks."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from leporello.agent.events import TextPiece, ThinkingPiece, ToolFinished, ToolStarted, TurnEnded
from leporello.errors import ConfigError, MessageError, ModelError, StoreError
from leporello.events import CompactionFinished, CompactionStarted, Notice
from leporello.gateway.bodies import written
from leporello.gateway.endpoint import Endpoint
from leporello.gateway.errors import Refused, public_message
from leporello.gateway.identity import checked_name
from leporello.gateway.sse import event as sse_event
from leporello.messages import text_of
from leporello.messages.visible import one_line
from leporello.redact import logger
from leporello.store.titles import title_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

    from leporello.agent import Agent
    from leporello.events import Event
    from leporello.gateway.agents import AgentSession
    from leporello.gateway.client_connection import ClientConnection
    from leporello.messages import Message
    from leporello.store import ConversationInfo, Store, Stored

ModelT = TypeVar("ModelT", bound=BaseModel)
_log = logger("leporello.gateway")
JSON: Final = [(b"content-type", b"application/json")]
SSE: Final = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]
LINES: Final = [(b"content-type", b"application/jsonl")]
MOST_LISTED: Final = 1000
LONGEST_PAGE: Final = 16 * 1024 * 1024
"""Characters after which a page of messages ends, however many were asked for."""

_SHOWN: Final = (CompactionStarted, CompactionFinished, Notice)


class Speech(BaseModel):
    """A message to a conversation."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)

    content: Annotated[str, Field(min_length=1)] | Annotated[list[dict[str, Any]], Field(min_length=1)] = Field(
        description="Text, or parts in OpenAI's format."
    )
    name: Annotated[str, Field(pattern=r"^[^\s<|\\/>]{1,64}$")] | None = Field(
        default=None, description="Who speaks, in a room of several."
    )
    respond: bool = Field(default=True, description="false: only keep the message; the agent does not answer.")
    stream: bool = Field(default=False, description="true: answer with server-sent events.")


class Wish(BaseModel):
    """How to fold."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)

    focus: str | None = Field(default=None, max_length=2000, description="What the summary should keep most of.")


class Speak(Endpoint):
    """POST /v1/sessions/{id}/messages: one turn."""

    async def serve(self, request: Request, client: ClientConnection, owner: str, content: bytes) -> None:
        """Say something; answered as JSON, or as events while they happen."""
        name = checked_name(request.path_params["id"])
        speech = await self.read(owner, content, partial(_validated, Speech))
        message: Message = {"role": "user", "content": speech.content}
        if speech.name:
            message["name"] = speech.name
        streams = speech.stream or "text/event-stream" in request.headers.get("accept", "")
        try:
            async with self.state.agents.session(owner, name) as session:
                events = session.speak(message, respond=speech.respond)
                async with aclosing(events):
                    await (self._stream if streams else self._whole)(client, name, session, events)
        except ConfigError as error:
            _log.warning("the agent has no model: %s", one_line(str(error)))
            raise Refused(503, f"the agent has no model: {public_message(error)}") from error
        except MessageError as error:
            raise Refused(400, f"content: {error}") from error
        except RecursionError as error:
            raise Refused(400, "content: it is nested too deeply.") from error

    async def _whole(
        self, client: ClientConnection, name: str, session: AgentSession, events: AsyncIterator[Event]
    ) -> None:
        spoken = _SpokenTurn(name)
        async for event in events:
            spoken.take(event)
        if spoken.ended is not None and spoken.ended.error is not None:
            raise _failure(spoken.ended.error)
        await client.answer(200, JSON, written(await session.call(spoken.result)))

    async def _stream(
        self, client: ClientConnection, name: str, session: AgentSession, events: AsyncIterator[Event]
    ) -> None:
        await client.start(200, SSE)
        spoken = _SpokenTurn(name)
        async for event in events:
            spoken.take(event)
            if isinstance(event, TurnEnded):
                await client.write(sse_event("end", await session.call(spoken.result)))
            elif (shown := _shown(event)) is not None:
                await client.write(sse_event(*shown))
        await client.finish()


class Listing(Endpoint):
    """GET /v1/sessions: the conversations of a key, the newest first."""

    async def serve(self, request: Request, client: ClientConnection, owner: str, content: bytes) -> None:
        """List them."""
        limit = _number(request, "limit", 100, 1, MOST_LISTED)
        offset = _number(request, "offset", 0, 0, 2**31)
        listed = await self.compute(owner, lambda: _listed(self.state.store, owner, limit, offset))
        await client.answer(200, JSON, written(listed))


class Show(Endpoint):
    """GET /v1/sessions/{id}: one conversation, and where it stands."""

    async def serve(self, request: Request, client: ClientConnection, owner: str, content: bytes) -> None:
        """Describe it."""
        info = await _info(self, request, owner)
        told = await self.compute(owner, lambda: described(self.state.store, info))
        await client.answer(200, JSON, written(told))


class ShowMessages(Endpoint):
    """GET /v1/sessions/{id}/messages: what was said, word by word."""

    async def serve(self, request: Request, client: ClientConnection, owner: str, content: bytes) -> None:
        """Return stored messages, oldest first, behind `after`."""
        info = await _info(self, request, owner)
        limit = _number(request, "limit", 100, 1, MOST_LISTED)
        after = _number(request, "after", 0, 0, 2**53)
        await client.answer(200, JSON, await self.compute(owner, _page, self.state.store, info, after, limit))


class Compress(Endpoint):
    """POST /v1/sessions/{id}/compress: fold now."""

    async def serve(self, request: Request, client: ClientConnection, owner: str, content: bytes) -> None:
        """Fold, guided by a focus, and report."""
        info = await _info(self, request, owner)
        wish = await self.read(owner, content or b"{}", partial(_validated, Wish))
        async with self.state.agents.session(owner, info.key) as session:
            report = await session.call(lambda agent: agent.session.compress(wish.focus))
        await client.answer(200, JSON, written(asdict(report)))


class Reset(Endpoint):
    """POST /v1/sessions/{id}/reset: end this conversation and begin another."""

    async def serve(self, request: Request, client: ClientConnection, owner: str, content: bytes) -> None:
        """End it properly; the answer names the new one."""
        info = await _info(self, request, owner)
        async with self.state.agents.session(owner, info.key) as session:
            name = await session.call(lambda agent: agent.session.reset())
        await self.state.agents.end(owner, info.key)
        await client.answer(200, JSON, written({"id": name, "before": info.key}))


class Export(Endpoint):
    """GET /v1/sessions/{id}/export: everything that is stored of a conversation, as JSON lines."""

    async def serve(self, request: Request, client: ClientConnection, owner: str, content: bytes) -> None:
        """Write it line by line."""
        info = await _info(self, request, owner)
        lines = self.state.store.export(info.key, owner=owner)
        await client.start(200, LINES)
        while (line := await self.compute(owner, next, lines, None)) is not None:
            await client.write(f"{line}\n".encode())
        await client.finish()


class Delete(Endpoint):
    """DELETE /v1/sessions/{id}: delete a conversation and everything in it."""

    async def serve(self, request: Request, client: ClientConnection, owner: str, content: bytes) -> None:
        """Delete it; a tombstone stays."""
        info = await _info(self, request, owner)
        await self.state.forget(owner, info.key)
        deletion = await self.compute(owner, partial(self.state.store.delete, info.key, owner=owner))
        await client.answer(200, JSON, written({"id": info.key, "messages": deletion.messages}))


def described(store: Store, info: ConversationInfo) -> dict[str, Any]:
    """Return what a list says about a conversation."""
    return {
        "id": info.key,
        "title": title_of(store, info),
        "messages": info.messages,
        "taken_back": info.superseded,
        "created": info.created,
        "updated": info.updated,
        "ended": info.ended,
    }


def _listed(store: Store, owner: str, limit: int, offset: int) -> dict[str, Any]:
    """Return a page of the conversations of an owner, the newest first."""
    infos = list(store.conversations(owner=owner))
    return {"sessions": [described(store, info) for info in infos[offset : offset + limit]], "total": len(infos)}


def _page(store: Store, info: ConversationInfo, after: int, limit: int) -> bytes:
    """Return a page of messages, shorter than asked for when they are very long."""
    shown: list[Stored] = []
    size = 0
    for row in store.messages(info.key, owner=info.owner, first=after + 1):
        shown.append(row)
        size += len(text_of(row.message))
        if len(shown) == limit or size > LONGEST_PAGE:
            break
    shown.sort(key=lambda row: row.seq)
    rows = [{"id": row.id, "seq": row.seq, "time": row.time, "message": row.message} for row in shown]
    return written({"messages": rows})


class _SpokenTurn:
    """What the agent says in a turn: the text behind its last tool, and how the turn ended."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._text: list[str] = []
        self.ended: TurnEnded | None = None

    def take(self, event: Event) -> None:
        """Take the next event."""
        if isinstance(event, TextPiece):
            self._text.append(event.text)
        elif isinstance(event, ToolStarted):
            self._text.clear()
        elif isinstance(event, TurnEnded):
            self.ended = event
            if event.error is not None:
                _log.warning("an agent got no answer: %s", one_line(str(event.error)))

    def result(self, agent: Agent) -> dict[str, Any]:
        """Return the end of the turn as data."""
        session, ended = agent.session, self.ended
        error = ended.error if ended else None
        return {
            "session": self._name,
            "content": "".join(self._text),
            "reason": ended.reason if ended else "kept",
            "requests": ended.requests if ended else 0,
            "stored": not session.unstored,
            "usage": asdict(session.usage()),
            **({"error": {"type": _failure(error).type, "message": public_message(error)}} if error else {}),
        }


def _shown(event: Event) -> tuple[str, dict[str, Any]] | None:
    """Return an event of the agent as one on the wire; None for those that clients need not see."""
    if isinstance(event, TextPiece):
        return "text", {"text": event.text}
    if isinstance(event, ThinkingPiece):
        return "thinking", {"text": event.text}
    if isinstance(event, ToolStarted):
        return "tool_started", {"call": event.call.id, "name": event.call.name, "title": event.title}
    if isinstance(event, ToolFinished):
        return "tool_finished", {"call": event.call.id, "failed": event.failed, "seconds": round(event.seconds, 3)}
    return ("notice", {"text": str(event)}) if isinstance(event, _SHOWN) else None


def _failure(error: Exception) -> Refused:
    """Return the answer for a turn that failed; the message itself is stored."""
    said = f"the message is stored, but the model did not answer: {public_message(error)}"
    if isinstance(error, ModelError) and error.retryable:
        return Refused(503, said, retry_after=round(error.retry_after or 5))
    return Refused(503 if isinstance(error, StoreError) else 502, said)


def _validated(kind: type[ModelT], body: dict[str, Any]) -> ModelT:
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "the body"
        raise Refused(400, f"{place}: {first['msg']}.") from error


def _number(request: Request, name: str, default: int, least: int, most: int) -> int:
    given = request.query_params.get(name, str(default))
    if not (given.isascii() and given.isdecimal() and len(given) < 18 and least <= int(given) <= most):  # noqa: PLR2004
        raise Refused(400, f"{name}: a whole number from {least} to {most} is expected.")
    return int(given)


async def _info(endpoint: Endpoint, request: Request, owner: str) -> ConversationInfo:
    name = request.path_params["id"]
    info = (
        await endpoint.compute(owner, partial(endpoint.state.store.info, name, owner=owner)) if name.isascii() else None
    )
    if info is None:
        raise Refused(404, "there is no conversation of this name.")
    return info
