"""What the model server was asked."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from leporello.errors import MessageError
from leporello.messages import from_anthropic
from leporello.messages.responses import from_responses
from leporello.testing.model_server.response_memory import Unknown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request as HttpRequest

    from leporello.messages import Dialect
    from leporello.messages.responses import Item
    from leporello.messages.types import Message
    from leporello.testing.model_server.failures import HTTPFailure
    from leporello.testing.model_server.response_memory import ResponseMemory

_KEY_HEADERS = ("authorization", "x-api-key", "api-key", "cookie", "proxy-authorization")


@dataclass(frozen=True, kw_only=True)
class ReceivedRequest:
    """One request as it came, and its conversation in OpenAI's format; keys are not among the headers."""

    dialect: Dialect
    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    messages: list[Message] = field(default_factory=list)
    unreadable: str = ""
    items: list[Item] = field(default_factory=list)
    """The whole input of the Responses API, with what a request refers to."""
    refused: HTTPFailure | None = None
    """Why it is not answered, if that is due to the request itself: invalid, too long, or with a wrong key or model."""

    @property
    def model(self) -> str:
        """The model that was asked for."""
        return str(self.body.get("model") or "")

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The tools that came along."""
        tools = self.body.get("tools")
        return tools if isinstance(tools, list) else []

    @property
    def stream(self) -> bool:
        """Tell whether the answer shall be streamed."""
        return self.body.get("stream") is True

    @property
    def max_tokens(self) -> int | None:
        """The longest answer that was asked for."""
        names = ("max_completion_tokens", "max_output_tokens", "max_tokens")
        return next((limit for name in names if isinstance(limit := self.body.get(name), int)), None)


def received(http: HttpRequest, sent: bytes, dialect: Dialect, memory: ResponseMemory) -> ReceivedRequest:
    """Read a request, whatever it holds."""
    headers = {name.lower(): value for name, value in http.headers.items() if name.lower() not in _KEY_HEADERS}
    bare = ReceivedRequest(dialect=dialect, path=http.url.path, headers=headers, body={})
    try:
        body = json.loads(sent)
        if not isinstance(body, dict):
            return replace(bare, unreadable="the body is no JSON object")
        if dialect == "responses":
            return _of_items(replace(bare, body=body), memory)
        return replace(bare, body=body, messages=_conversation(body, dialect))
    except (ValueError, RecursionError, MessageError) as error:
        return replace(bare, unreadable=str(error))


def _of_items(request: ReceivedRequest, memory: ResponseMemory) -> ReceivedRequest:
    """Read the input of a request in the Responses API."""
    try:
        items = memory.expanded(request.body)
    except Unknown as unknown:
        return replace(request, refused=unknown.refusal)
    refused = memory.refusal(items)
    said = [] if refused else from_responses({"instructions": request.body.get("instructions"), "input": items})
    return replace(request, items=items, messages=said, refused=refused)


def key_of(headers: Mapping[str, str]) -> str:
    """Return the key that a request came with, or ""."""
    return headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ").strip()


def _conversation(body: dict[str, Any], dialect: Dialect) -> list[Message]:
    if dialect == "anthropic":
        return from_anthropic({key: body[key] for key in ("system", "messages") if key in body})
    messages = body.get("messages")
    return messages if isinstance(messages, list) else []
