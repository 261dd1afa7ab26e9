"""JSON of values that may hold very long texts, in pieces.

The encoder of the standard library is written in C and stops every other thread while it runs. What is written here is
the same, character for character, but no step of it takes longer than a short text does.
"""

from __future__ import annotations

import json
from functools import lru_cache
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

LONG: Final = 256 * 1024
"""Characters that are written in one step."""

_MOST_VALUES: Final = 4_096


def is_large(message: dict[str, Any]) -> bool:
    """Tell whether a message is too long, or holds too many values, to be written in one step."""
    content = message.get("content")
    if isinstance(content, str) and len(message) <= 2:  # noqa: PLR2004 - a role and a text, as most have
        return len(content) > LONG
    count = 0
    waiting: list[Any] = [message]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str) and len(value) > LONG:
            return True
        if isinstance(value, (dict, list)):
            count += len(value)
            if count > _MOST_VALUES:
                return True
            waiting += value.values() if isinstance(value, dict) else value
    return False


def json_pieces(value: Any, *, ensure_ascii: bool = False, sort_keys: bool = False) -> Iterator[str]:
    """Yield a value as compact JSON; one that is none raises what the standard library's encoder does."""
    quoted = encode_basestring_ascii if ensure_ascii else encode_basestring
    if isinstance(value, str):
        yield '"'
        for start in range(0, len(value), LONG):
            yield quoted(value[start : start + LONG])[1:-1]
        yield '"'
    elif isinstance(value, dict) and value and all(isinstance(key, str) for key in value):
        for number, key in enumerate(sorted(value) if sort_keys else value):
            yield f"{',' if number else '{'}{quoted(key)}:"
            yield from json_pieces(value[key], ensure_ascii=ensure_ascii, sort_keys=sort_keys)
        yield "}"
    elif isinstance(value, list) and value:
        for number, item in enumerate(value):
            yield "," if number else "["
            yield from json_pieces(item, ensure_ascii=ensure_ascii, sort_keys=sort_keys)
        yield "]"
    else:
        yield _encoder(ensure_ascii, sort_keys).encode(value)


@lru_cache
def _encoder(ensure_ascii: bool, sort_keys: bool) -> json.JSONEncoder:
    return json.JSONEncoder(ensure_ascii=ensure_ascii, sort_keys=sort_keys, separators=(",", ":"), allow_nan=False)
