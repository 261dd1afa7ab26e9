"""What a message says, however a client writes it: the form in which histories are compared.

A client sends back what it got, but not letter for letter: its package leaves fields out, writes content as text or as
parts, strips white space, writes arguments anew, names calls differently, sets cache marks or the detail of an image.
"""

from __future__ import annotations

import json
from typing import Any, Final

from leporello.messages.identity import fingerprint
from leporello.messages.types import (
    RESPONSES_NOTE,
    THINKING_TYPES,
    Message,
    Part,
    parts_of,
    role_of,
    text_of,
    tool_calls_of,
)

_NO_PART: Final = THINKING_TYPES | {"text", "reasoning"}
_NAMES: Final = frozenset({"id", "status"})  # of items of the Responses API, which clients keep or leave out
_REFERENCE: Final = "item_reference"


def spoken(message: Message) -> str:
    """Return who speaks, the words, the calls and what else there is, the same for all the ways of writing it."""
    said = f"{role_of(message)}\0{text_of(message).strip()}"
    if isinstance(message.get("content"), str) and "tool_calls" not in message:
        return said
    calls = [[call.name, call.arguments or call.raw] for call in tool_calls_of(message)]
    parts = [_shown(part) for part in parts_of(message) if str(part.get("type")) not in _NO_PART]
    return f"{said}\0{_json([calls, parts])}" if calls or parts else said


def spoken_length(message: Message) -> int:
    """Return how much a message says: what is sealed in a part can be told apart as well as words."""
    parts = [part for part in parts_of(message) if str(part.get("type")) not in _NO_PART]
    return len(spoken(message)) + sum(len(_json(part)) for part in parts)


def _shown(part: Part) -> str:
    """Return a part that is no text: an image is the same one whatever its detail, and an item whatever its id.

    A package may write the fields that it does not know a value of as null.
    """
    part = {key: value for key, value in part.items() if value is not None}
    image = part.get("image_url")
    if RESPONSES_NOTE in part and part.get("type") != _REFERENCE:
        part = {key: value for key, value in part.items() if key not in _NAMES}
    if isinstance(image, dict):
        part = {**part, "image_url": {key: value for key, value in image.items() if key != "detail"}}
    return fingerprint(part)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=str)
