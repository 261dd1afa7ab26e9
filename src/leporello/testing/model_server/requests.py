"""What the model server was asked."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from leporello.errors import MessageError
from leporello.messages import from_anthropic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request as HttpRequest

    from leporello.messages.types import Message

_KEY_HEADERS = ("authorization", "x-api-key", "api-key", "cookie", "proxy-authorization")


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request as it came, and its conversation in OpenAI's format; keys are not among the headers."""

    dialect: str
    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    messages: list[Message] = field(default_factory=list)
    unreadable: str = ""

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
        limit = self.body.get("max_completion_tokens", self.body.get("max_tokens"))
        return limit if isinstance(limit, int) else None


def received(http: HttpRequest, sent: bytes, dialect: str) -> Request:
    """Read a request, whatever it holds."""
    headers = {name.lower(): value for name, value in http.headers.items() if name.lower() not in _KEY_HEADERS}
    bare = Request(dialect=dialect, path=http.url.path, headers=headers, body={})
    try:
        body = json.loads(sent)
        if not isinstance(body, dict):
            return replace(bare, unreadable="the body is no JSON object")
        return replace(bare, body=body, messages=_conversation(body, dialect))
    except (ValueError, RecursionError, MessageError) as error:
        return replace(bare, unreadable=str(error))


def key_of(headers: Mapping[str, str]) -> str:
    """Return the key that a request came with, or ""."""
    return headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ").strip()


def _conversation(body: dict[str, Any], dialect: str) -> list[Message]:
    if dialect == "anthropic":
        return from_anthropic({key: body[key] for key in ("system", "messages") if key in body})
    messages = body.get("messages")
    return messages if isinstance(messages, list) else []
