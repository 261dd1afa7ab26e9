"""Which messages can be stored: those that come back from JSON with equal values, within limits."""

from __future__ import annotations

from math import isfinite
from typing import Any, Final

from leporello.errors import MessageError

MAX_DEPTH: Final = 200
MAX_BITS: Final = 14_000  # Python reads and writes integers of at most 4,300 digits


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
