"""What the two drop-in endpoints differ in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from leporello.errors import MessageError
from leporello.gateway.bodies import written
from leporello.gateway.errors import Refused
from leporello.messages import from_anthropic

if TYPE_CHECKING:
    from leporello.messages import Message

Body = dict[str, Any]
_INCLUDE_USAGE: Final = b'"stream_options":{"include_usage":true},'


@dataclass(frozen=True, kw_only=True)
class Outgoing:
    """A request as it goes to the provider; `counted` when it asks for a count that the client did not ask for."""

    content: bytes
    counted: bool = False


class Dialect(Protocol):
    """One provider's way of asking for an answer."""

    name: str
    path: str
    """Where answers are asked for, behind the provider's base_url."""

    def messages(self, body: Body) -> list[Message]:
        """Return the conversation of a request in OpenAI's format; Refused when there is none to be found."""

    def folded(self, body: Body, request: Body) -> Body:
        """Return the client's request with another conversation in it."""

    def counted(self, body: Body, content: bytes) -> Outgoing:
        """Return a request, with the bytes it came in, so that its answer tells how long the input was."""


class OpenAI:
    """Chat completions."""

    name = "openai"
    path = "/chat/completions"

    def messages(self, body: Body) -> list[Message]:
        """Return the messages as they came."""
        messages = body.get("messages")
        if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
            raise Refused(400, "messages: a list of messages is required, each with a role.")
        return messages

    def folded(self, body: Body, request: Body) -> Body:
        """Replace the messages."""
        return {**body, **request}

    def counted(self, body: Body, content: bytes) -> Outgoing:
        """Ask for the usage of a streamed answer; every other byte stays as it came."""
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


class Anthropic:
    """Anthropic's messages."""

    name = "anthropic"
    path = "/v1/messages"

    def messages(self, body: Body) -> list[Message]:
        """Return the conversation, the system prompt in front."""
        try:
            return from_anthropic({key: body[key] for key in ("system", "messages") if key in body})
        except MessageError as error:
            raise Refused(400, str(error)) from error

    def folded(self, body: Body, request: Body) -> Body:
        """Replace system prompt and messages; a mark on the whole request would be one too many beside theirs."""
        rest = {key: value for key, value in body.items() if key not in ("system", "cache_control")}
        return {**rest, **request}

    def counted(self, body: Body, content: bytes) -> Outgoing:
        """Leave the request as it is: its answer always tells."""
        return Outgoing(content=content)


OPENAI: Final = OpenAI()
ANTHROPIC: Final = Anthropic()
