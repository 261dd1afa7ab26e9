"""Make one assistant message of several that stand side by side."""

from __future__ import annotations

from typing import Any, cast

from leporello.messages.rules import is_thinking, refusal_of
from leporello.messages.types import ANTHROPIC_NOTE, Message, Part, parts_of


def merged(messages: list[Message]) -> Message:
    """Return one assistant message with the content of all; only the last may call tools.

    Plain text is joined by an empty line; as soon as one message has parts or thinking blocks, the content is the list
    of all parts in order. Of other fields the first value counts.
    """
    message: dict[str, Any] = {}
    for part in messages:
        message = {**part, **message}
    for key in ("content", "thinking_blocks", "refusal", ANTHROPIC_NOTE):
        message.pop(key, None)
    message["content"] = _content(messages)
    if thoughts := [m["reasoning_content"] for m in messages if isinstance(m.get("reasoning_content"), str)]:
        message["reasoning_content"] = "\n\n".join(thoughts)
    if order := _order(messages[-1], message["content"]):
        message[ANTHROPIC_NOTE] = {"order": order}
    return cast("Message", message)


def _order(last: Message, content: Any) -> str:
    """Return how parts and calls follow each other, if the last message says so: what is put in front are parts."""
    note = last.get(ANTHROPIC_NOTE)
    order = note.get("order") if isinstance(note, dict) else None
    if not isinstance(order, str) or not isinstance(content, list):
        return ""
    return "p" * (len(content) - order.count("p")) + order


def _content(messages: list[Message]) -> Any:
    if not any(isinstance(m.get("content"), list) or m.get("thinking_blocks") for m in messages):
        return "\n\n".join(text for m in messages if (text := m.get("content") or refusal_of(m)))
    return [part for message in messages for part in answer_parts(message)]


def answer_parts(message: Message) -> list[Part]:
    """Return all an assistant message says, as parts in the order in which it was said: thinking first."""
    parts = [part for part in parts_of(message) if not _is_blank(part)]
    blocks = message.get("thinking_blocks")
    if isinstance(blocks, list) and not any(is_thinking(part) for part in parts):
        parts = [*blocks, *parts]
    if all(is_thinking(part) for part in parts) and (refusal := refusal_of(message)):
        parts.append({"type": "text", "text": refusal})
    return parts


def _is_blank(part: Part) -> bool:
    text = part.get("text")
    return part.get("type") == "text" and isinstance(text, str) and not text.strip()
