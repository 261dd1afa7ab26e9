"""Messages as JSON: which can be written and read back, and those that hold very long texts, in pieces.

The encoder of the standard library is written in C and stops every other thread while it runs. The pieces are the same,
character for character, but no step takes longer than a short text does.
"""

from __future__ import annotations

import json
from functools import lru_cache
from json.encoder import encode_basestring, encode_basestring_ascii
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from leporello.errors import MessageError

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_DEPTH: Final = 200
MAX_BITS: Final = 14_000  # Python reads and writes integers of at most 4,300 digits
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


def require_json(message: Any, path: str) -> None:
    """Raise a MessageError, with its path, for the first value of a message that cannot be stored."""
    if not _is_json(message, 0):
        _refuse(message, path)


def _is_json(value: Any, depth: int) -> bool:
    """Tell, fast, whether a container comes back from JSON with equal values."""
    if depth >= MAX_DEPTH:
        return False
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                return False
        value = value.values()
    for item in value:
        if isinstance(item, str):
            continue
        if not (_is_json(item, depth + 1) if isinstance(item, (dict, list)) else _is_scalar(item)):
            return False
    return True


def _is_scalar(value: Any) -> bool:
    if isinstance(value, float):
        return isfinite(value)
    return value is None or (isinstance(value, int) and value.bit_length() <= MAX_BITS)


def _refuse(value: Any, path: str, depth: int = 0) -> None:
    """Raise for the first value that is not JSON."""
    if depth >= MAX_DEPTH:
        raise MessageError(f"nested more than {MAX_DEPTH} levels deep.", path=path[:200])
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise MessageError(f"the key {key!r} is not text; JSON objects have no other keys.", path=path)
            _refuse(item, f"{path}.{key}", depth + 1)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _refuse(item, f"{path}[{index}]", depth + 1)
    elif not isinstance(value, str) and not _is_scalar(value):
        raise MessageError(f"{_shown(value)} is not JSON; pass text, a number, a list or a dict.", path=path)


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, int):
        return "an integer of more than 4,200 digits"
    return f"a value of type {type(value).__name__}"
