"""When what must be kept is too large by itself: shorten the large payloads inside it.

A payload is a tool result, a tool call's arguments, an older user or assistant text, an image. The system prompt, the
newest user message and what its provider has sealed (signed thinking, reasoning) stay as they are. What is shortened
here is not lost: an engine's summary, or its store, holds the originals, and `where` says so in the place of what is
left out. A text that is shortened again names all that is left out of the original.
"""

from __future__ import annotations

import json
import re
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, cast

from leporello.messages import text_of
from leporello.messages.types import SEALED_TYPES

if TYPE_CHECKING:
    from leporello.messages import Message

FOLDED = "folded into the summary"
_DEEPEST = 20
_FEWEST_KEYS = 16
_LEFT_OUT: Final = re.compile(r"\n\[\.\.\. (\d{1,3}(?:,\d{3})*) characters [^\[\]]{1,40000}+(?<= \.\.\.)\]\n")


def shorten(message: Message, limit: int, *, where: str = FOLDED) -> Message:
    """Return the message with no payload longer than about `limit` characters; the same object if none was."""
    changed: dict[str, Any] = {}
    content = message.get("content")
    if isinstance(content, str):
        if (text := _shorter(content, limit, where)) is not content:
            changed["content"] = text
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
    if isinstance(reasoning, str) and (text := _shorter(reasoning, limit, where)) is not reasoning:
        changed["reasoning_content"] = text
    return cast("Message", {**message, **changed}) if changed else message


def is_shortened(message: Message, original: Message) -> bool:
    """Tell whether a message has the text that `shorten` left of another one's."""
    parts, text = _LEFT_OUT.split(text_of(message)), text_of(original)
    return len(parts) > 1 and text.startswith(parts[0]) and text.endswith(parts[-1])


def left_out(message: Message, original: Message) -> str:
    """Return what `shorten` left out of the text of a message; "" when that was nothing, or several texts."""
    parts, text = _LEFT_OUT.split(text_of(message)), original.get("content")
    if len(parts) == 1 or not isinstance(text, str):
        return ""
    return text[len(parts[0]) : len(text) - len(parts[-1])]


def _shorter(text: str, limit: int, where: str) -> str:
    """Return a text with its two ends, and between them how much of the original is left out, also by an earlier call.

    One whose ends are within the limit already comes back as it is.
    """
    if len(text) <= limit:
        return text
    parts = _LEFT_OUT.split(text)
    kept, before = parts[::2], sum(int(count.replace(",", "")) for count in parts[1::2])
    length = sum(map(len, kept))
    if before and length <= limit:
        return text
    ends = limit // 2
    first, last = kept[0][:ends], kept[-1][max(0, len(kept[-1]) - ends) :]
    left_out = before + length - len(first) - len(last)
    return f"{first}\n[... {left_out:,} characters {where} ...]\n{last}"


def _shorter_part(part: dict[str, Any], limit: int, where: str) -> dict[str, Any]:
    if part.get("type") in SEALED_TYPES:
        return part
    text = part.get("text")
    if isinstance(text, str):
        shorter = _shorter(text, limit, where)
        return part if shorter is text else {**part, "text": shorter}
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
        return _shorter(value, limit, where)
    if isinstance(value, dict) and depth:
        kept = islice(value.items(), max(limit, _FEWEST_KEYS))
        return {key: _shorter_value(item, limit, where, depth - 1) for key, item in kept}
    if isinstance(value, list) and depth:
        return [_shorter_value(item, limit, where, depth - 1) for item in value[:limit]]
    return value if isinstance(value, (int, float, bool)) or value is None else f"[{where}]"
