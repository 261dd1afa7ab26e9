"""The differences between the three APIs of the drop-in endpoints, one class for each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from leporello.caching import without_markers
from leporello.errors import MessageError
from leporello.gateway.bodies import written
from leporello.gateway.errors import Refused
from leporello.gateway.response_ids import known_as, noted
from leporello.gateway.sse import event as sse_event
from leporello.messages import anthropic_request, from_anthropic
from leporello.messages.responses import from_responses, kind_of, settled, to_responses
from leporello.messages.responses.items import ADDITIONAL_TOOLS
from leporello.messages.types import SYSTEM_ROLES
from leporello.messages.values import is_private
from leporello.session.responses_stream import ENDS, ERROR

if TYPE_CHECKING:
    from leporello.messages import Dialect, Message
    from leporello.session.answers import ModelAnswer

Body = dict[str, Any]
COUNTING: Final = b"stream_options"
"""The field that asks for the usage of a streamed chat completion; some servers refuse it."""

_INCLUDE_USAGE: Final = b'"stream_options":{"include_usage":true},'


@dataclass(frozen=True, kw_only=True)
class Outgoing:
    """A request for the provider; `counted` when it asks for usage that the client did not ask for."""

    content: bytes
    counted: bool = False


class WireFormat(ABC):
    """One API: where the conversation is in a request, and how a folded one is put in its place."""

    name: Dialect
    path: str
    """The path of the endpoint, behind the provider's base_url."""
    fails_inside = False
    """Whether an answer with a good status may have an error in it."""
    keep_alive: bytes
    """What keeps the connection of a client alive that waits for a stream: it says nothing."""

    @abstractmethod
    def messages(self, body: Body) -> list[Message]:
        """Return the conversation of a request in OpenAI's format; Refused when there is none."""

    @abstractmethod
    def request(self, messages: list[Message]) -> Body:
        """Return the part of a request that has the conversation."""

    @abstractmethod
    def folded(self, body: Body, request: Body) -> Body:
        """Return the client's request with this conversation in it."""

    def counted(self, body: Body, content: bytes) -> Outgoing:
        """Return a request that asks for usage; `content` are the bytes of `body`."""
        return Outgoing(content=content)

    def is_opening(self, event: Any) -> bool:
        """Tell whether an event only announces an answer."""
        return False

    def refusal(self, answer: Any) -> Body | None:
        """Return the error in an answer, or in one of its events; None without one."""
        return None

    @abstractmethod
    def failure(self, error: Body) -> bytes:
        """Return the event for an error after the answer has begun."""

    def recorded(self, answer: ModelAnswer, body: Body) -> ModelAnswer:
        """Return an answer as it is stored."""
        return answer

    def names(self, answer: ModelAnswer, body: Body, owner: str) -> list[bytes]:
        """Return the hashes of the ids by which later requests may refer to an answer."""
        return []


class OpenAI(WireFormat):
    """Chat completions."""

    name: Dialect = "openai"
    path = "/chat/completions"
    keep_alive = b": keep-alive\n\n"

    def messages(self, body: Body) -> list[Message]:
        """Return the messages as they came."""
        messages = body.get("messages")
        if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
            raise Refused(400, "messages: a list of messages is required, each with a role.")
        return messages

    def request(self, messages: list[Message]) -> Body:
        """Return the messages, without private notes."""
        return {"messages": [{k: v for k, v in message.items() if not is_private(k)} for message in messages]}

    def folded(self, body: Body, request: Body) -> Body:
        """Replace the messages."""
        return {**body, **request}

    def counted(self, body: Body, content: bytes) -> Outgoing:
        """Ask for the usage of a streamed answer; all other bytes stay as they came."""
        if body.get("stream") is not True:
            return Outgoing(content=content)
        options = body.get("stream_options")
        if isinstance(options, dict) and options.get("include_usage") is True:
            return Outgoing(content=content)
        if "stream_options" not in body:
            start = content.index(b"{") + 1
            return Outgoing(content=content[:start] + _INCLUDE_USAGE + content[start:], counted=True)
        given = options if isinstance(options, dict) else {}
        asked = {**body, "stream_options": {**given, "include_usage": True}}
        return Outgoing(content=written(asked), counted=True)

    def failure(self, error: Body) -> bytes:
        """Return an event that has nothing but the error."""
        return sse_event("", {"error": error})


class Anthropic(WireFormat):
    """Anthropic's messages."""

    name: Dialect = "anthropic"
    path = "/v1/messages"
    keep_alive = b'event: ping\ndata: {"type": "ping"}\n\n'

    def messages(self, body: Body) -> list[Message]:
        """Return the conversation, the system prompt in front."""
        try:
            return from_anthropic({key: body[key] for key in ("system", "messages") if key in body})
        except MessageError as error:
            raise Refused(400, str(error)) from error

    def request(self, messages: list[Message]) -> Body:
        """Return system prompt and messages."""
        return anthropic_request(without_markers(messages))

    def folded(self, body: Body, request: Body) -> Body:
        """Replace system prompt and messages; a cache mark on the whole request is removed, as those have marks."""
        rest = {key: value for key, value in body.items() if key not in ("system", "cache_control")}
        return {**rest, **request}

    def failure(self, error: Body) -> bytes:
        """Return the event that ends an answer with an error."""
        return sse_event("error", {"type": "error", "error": error})


class Responses(WireFormat):
    """OpenAI's Responses API."""

    name: Dialect = "responses"
    path = "/responses"
    fails_inside = True
    keep_alive = b'event: keepalive\ndata: {"type":"keepalive"}\n\n'

    def messages(self, body: Body) -> list[Message]:
        """Return the conversation, the instructions in front; none where only the provider knows it."""
        if body.get("input") is None and any(body.get(key) for key in _OF_THE_PROVIDER):
            return []
        try:
            return from_responses(body)
        except MessageError as error:
            raise Refused(400, str(error)) from error

    def request(self, messages: list[Message]) -> Body:
        """Return instructions and items."""
        request = to_responses(messages)
        return {**request, "input": settled(request["input"])}

    def folded(self, body: Body, request: Body) -> Body:
        """Replace the input; what an engine added to the instructions becomes a developer message in it."""
        given, now = body.get("instructions"), request.get("instructions")
        items = request["input"]
        if isinstance(now, str) and now != given:
            added = now.removeprefix(given if isinstance(given, str) else "").strip()
            at = next((at for at, item in enumerate(items) if item.get("role") not in SYSTEM_ROLES), len(items))
            items = [*items[:at], {"type": "message", "role": "developer", "content": added}, *items[at:]]
        tools = {"tools": request["tools"]} if "tools" in request else {}
        return {**body, **tools, "input": items}

    def is_opening(self, event: Any) -> bool:
        """Tell whether a response was only announced; events of other names keep a connection alive or the like."""
        kind = event.get("type") if isinstance(event, dict) else None
        return kind in _ANNOUNCED or not (kind == ERROR or (isinstance(kind, str) and kind.startswith(_OF_A_RESPONSE)))

    def refusal(self, answer: Any) -> Body | None:
        """Return the error of a response that failed."""
        if not isinstance(answer, dict):
            return None
        if answer.get("type") == ERROR:
            return {"error": answer.get("error") or answer}
        response = answer.get("response") if answer.get("type") in ENDS else answer
        if not isinstance(response, dict) or response.get("status") != "failed":
            return None
        return {"error": response["error"]} if isinstance(response.get("error"), dict) else None

    def failure(self, error: Body) -> bytes:
        """Return the event of a response that failed."""
        told = {"code": error.get("code") or error.get("type") or "server_error", "message": error.get("message") or ""}
        response: Body = {"id": "", "object": "response", "status": "failed", "error": told, "output": []}
        return sse_event("response.failed", {"type": "response.failed", "response": response, "sequence_number": 0})

    def recorded(self, answer: ModelAnswer, body: Body) -> ModelAnswer:
        """Return the answer with the provider's fields of the response, unless the client asked not to store it."""
        return replace(answer, message=noted(answer, body)) if is_kept(body) else answer

    def names(self, answer: ModelAnswer, body: Body, owner: str) -> list[bytes]:
        """Return the hashes of the ids of the response and of its items."""
        return known_as(answer, owner) if is_kept(body) else []


_OF_A_RESPONSE: Final = "response."
_OF_THE_PROVIDER: Final = ("prompt", "conversation", "previous_response_id")
"""Fields that name what the provider keeps; beside one of them a request needs no input."""

_ANNOUNCED: Final = frozenset({"response.created", "response.in_progress", "response.queued"})


def is_kept(body: Body) -> bool:
    """Tell whether later requests may refer to a response: `store` is true unless the client says otherwise."""
    return body.get("store") is not False


def has_additional_tools(body: Body) -> bool:
    """Tell whether a request of the Responses API brings its tools among the items of its input, as Codex does."""
    items = body.get("input")
    return isinstance(items, list) and any(kind_of(item) == ADDITIONAL_TOOLS for item in items)


RESPONSES: Final = Responses()
OPENAI: Final = OpenAI()
ANTHROPIC: Final = Anthropic()
