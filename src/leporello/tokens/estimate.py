"""How many tokens a message, a list of tools or a whole request has, estimated without a tokenizer.

Everything that reaches a model counts: text, names, arguments of calls, thinking and its signatures, and unknown
fields. Private notes (`_...`), cache markers and times do not. An image, a sound or a file counts as a fixed number,
however long its encoding is. Whatever a broken message holds, nothing here raises.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from leporello.messages.types import IMAGE_TYPES
from leporello.tokens.text import count_text, count_texts

PER_MESSAGE = 4  # role and delimiters
PER_CALL = 4  # what a chat format puts around a tool call
PER_ID = 4  # an id is a reference, not text: most chat formats replace it
PER_REQUEST = 3  # the opening of the answer
MEDIA_TOKENS = 1_600
LOW_DETAIL_TOKENS = 85

_MEDIA_TYPES = IMAGE_TYPES | {
    "input_audio",
    "audio",
    "file",
    "input_file",
    "document",
    "video",
    "video_url",
    "base64",
    "image_generation_call",
}
_MEDIA_FIELDS = frozenset(
    {"image_url", "source", "input_audio", "audio", "file", "image", "video_url", "url", "data", "detail", "result"}
)
_SILENT = frozenset({"role", "type", "cache_control", "timestamp"})
_IDS = frozenset({"id", "tool_call_id", "tool_use_id", "call_id"})
_INLINE = frozenset({"inline_data", "inlineData"})  # Gemini's name for an image or a sound
_CALLS = frozenset({"tool_calls", "function_call"})
_STRUCTURE = frozenset({"content", "function", "thinking_blocks", "source"}) | _CALLS
_TEXTS = frozenset({"content", "text", "name", "arguments"})
_MOST_VISITS = 1_000_000  # ends the walk through a list that contains itself

_Waiting: TypeAlias = list[tuple[Any, bool]]


def count_message(message: Any) -> int:
    """Estimate the tokens of one message."""
    fixed, text = _take(message, structured=True)
    return PER_MESSAGE + fixed + count_text(text)


def count_messages(messages: Iterable[Any] | None) -> int:
    """Estimate the tokens of messages alone: the sum of `count_message` over them."""
    taken = [_take(message, structured=True) for message in messages] if isinstance(messages, Iterable) else []
    return sum([PER_MESSAGE + fixed for fixed, _ in taken]) + count_texts([text for _, text in taken])


def count_tools(tools: Any) -> int:
    """Estimate the tokens of tool schemas."""
    fixed, text = _take(tools, structured=False)
    return fixed + count_text(text)


def count_request(messages: Iterable[Any] | None, tools: Any = None, system: Any = None) -> int:
    """Estimate the tokens of everything the model reads: messages, tool schemas and a system prompt kept apart."""
    opening = count_message({"role": "system", "content": system}) if system else 0
    return PER_REQUEST + opening + count_messages(messages) + count_tools(tools)


def _take(value: Any, *, structured: bool) -> tuple[int, str]:
    """Return the tokens of what is not text in a value, and all its text.

    A value is structure (a message, a part: its keys belong to the format) or payload (the model reads the keys too).
    """
    texts: list[str] = []
    tokens = 0
    waiting: _Waiting = [(value, structured)]
    visits = _MOST_VISITS
    while waiting and visits:
        visits -= 1
        node, structured = waiting.pop()
        if isinstance(node, dict) and structured:
            tokens += _structure(node, texts, waiting)
        elif isinstance(node, dict):
            _payload(node, texts, waiting)
        elif isinstance(node, (list, tuple)):
            waiting += [(item, structured) for item in node]
        else:
            texts.append(_text(node))
    return tokens, "\n".join(texts)


def _structure(node: dict[Any, Any], texts: list[str], waiting: _Waiting) -> int:
    """Take the fields of a message, a part or a tool call; return fixed tokens."""
    tokens = media = _media(node) if "type" in node else 0
    for key, value in node.items():
        if key in _TEXTS and isinstance(value, str):  # nearly always, so it comes first
            texts.append(value)
        elif key in _SILENT or value is None or (media and key in _MEDIA_FIELDS) or _is_private(key):
            continue
        elif key in _IDS:
            tokens += PER_ID
        elif key in _INLINE:
            tokens += MEDIA_TOKENS
        elif isinstance(value, str):
            texts.append(value)
        else:
            if key in _CALLS:
                tokens += PER_CALL * (len(value) if isinstance(value, list) else 1)
            waiting.append((value, key in _STRUCTURE))
    return tokens


def _payload(node: dict[Any, Any], texts: list[str], waiting: _Waiting) -> None:
    """Take a dict that the model reads as JSON, keys and all: arguments, schemas, unknown fields."""
    for key, value in node.items():
        if key == "cache_control":
            continue
        if isinstance(value, (dict, list, tuple)):
            texts.append(f'"{_text(key)}": {{')
            waiting.append((value, False))
        else:
            texts.append(f'"{_text(key)}": "{_text(value)}",')


def _media(part: dict[Any, Any]) -> int:
    """Return what an image, a sound or a file counts, or 0 for a part that is none of them."""
    kind, source = part.get("type"), part.get("source")
    if not isinstance(kind, str) or kind not in _MEDIA_TYPES:
        return 0
    if isinstance(source, dict) and source.get("type") in ("text", "content"):
        return 0
    image = part.get("image_url")
    detail = image.get("detail") if isinstance(image, dict) else part.get("detail")
    return LOW_DETAIL_TOKENS if detail == "low" else MEDIA_TOKENS


def _text(value: Any) -> str:
    """Return a scalar as text; huge integers in hexadecimal, because Python refuses to print them in decimal."""
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:x}"
    return str(value) if isinstance(value, float) else ""


def _is_private(key: Any) -> bool:
    return isinstance(key, str) and key.startswith("_")
