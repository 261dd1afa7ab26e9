"""When what must be kept is too large by itself: shorten the large payloads inside it.

A payload is a tool result, a tool call's arguments, an older user or assistant text, an image. The system prompt, the
newest user message and signed thinking blocks stay as they are. What is shortened here is not lost: an engine's
summary, or its store, holds the originals, and `where` says so in the place of what is left out.
"""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Any

from leporello.messages.types import THINKING_TYPES

if TYPE_CHECKING:
    from leporello.messages import Message

FOLDED = "folded into the summary"
_DEEPEST = 20


def shorten(message: Message, limit: int, *, where: str = FOLDED) -> Message:
    """Return the message with no payload longer than about `limit` characters; the same object if none was."""
    changed: dict[str, Any] = {}
    content = message.get("content")
    if isinstance(content, str) and len(content) > limit:
        changed["content"] = _shorter(content, limit, where)
    elif isinstance(content, list):
        parts = [_shorter_part(part, limit, where) for part in content]
        if any(new is not old for new, old in zip(parts, content, strict=True)):
            changed["content"] = parts
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        shorter = [_shorter_call(call, limit, where) for call in calls]
        if any(new is not old for new, old in zip(shorter, calls, strict=True)):
            changed["tool_calls"] = shorter
    reasoning = message.get("reasoning_content")
    if isinstance(reasoning, str) and len(reasoning) > limit:
        changed["reasoning_content"] = _shorter(reasoning, limit, where)
    return {**message, **changed} if changed else message


def _shorter(text: str, limit: int, where: str) -> str:
    left_out = len(text) - limit
    ends = limit // 2
    return f"{text[:ends]}\n[... {left_out:,} characters {where} ...]\n{text[-ends:]}"


def _shorter_part(part: dict[str, Any], limit: int, where: str) -> dict[str, Any]:
    if part.get("type") in THINKING_TYPES:
        return part
    text = part.get("text")
    if isinstance(text, str):
        return {**part, "text": _shorter(text, limit, where)} if len(text) > limit else part
    return {"type": "text", "text": f"[{part.get('type', 'attachment')} {where}]"}


def _shorter_call(call: dict[str, Any], limit: int, where: str) -> dict[str, Any]:
    function = call.get("function", {})
    raw = function.get("arguments")
    if not isinstance(raw, str) or len(raw) <= limit:
        return call
    arguments = _shorter_value(json.loads(raw), limit // 2, where, _DEEPEST)
    return {**call, "function": {**function, "arguments": json.dumps(arguments, ensure_ascii=False)}}


def _shorter_value(value: Any, limit: int, where: str, depth: int) -> Any:
    if isinstance(value, str):
        return _shorter(value, limit, where) if len(value) > limit else value
    if isinstance(value, dict) and depth:
        kept = islice(value.items(), limit)
        return {key: _shorter_value(item, limit, where, depth - 1) for key, item in kept}
    if isinstance(value, list) and depth:
        return [_shorter_value(item, limit, where, depth - 1) for item in value[:limit]]
    return value if isinstance(value, (int, float, bool)) or value is None else f"[{where}]"
