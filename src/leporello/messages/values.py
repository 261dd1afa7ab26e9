"""Values that come from outside: which are JSON, and how to make the others JSON."""

from __future__ import annotations

import json
import re
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, NoReturn

from leporello.messages.codes import (
    ARGUMENTS_NOT_JSON,
    ARGUMENTS_NOT_OBJECT,
    ARGUMENTS_NOT_TEXT,
    LONE_SURROGATE,
    NOT_JSON,
    TOO_DEEP,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_DEPTH: Final = 100

_SURROGATES = re.compile(r"[\ud800-\udfff]")
_NESTING = re.compile(r'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)
_USUAL_KEYS = frozenset(
    {
        "role",
        "content",
        "name",
        "timestamp",
        "tool_calls",
        "tool_call_id",
        "id",
        "type",
        "function",
        "arguments",
        "text",
        "image_url",
        "url",
        "detail",
        "source",
        "thinking",
        "signature",
        "data",
        "thinking_blocks",
        "reasoning_content",
        "refusal",
        "cache_control",
        "ttl",
    }
)
_MAX_BITS = 10_000  # Python refuses to write longer integers


def is_private(key: Any) -> bool:
    """Tell whether a key is a private note of a host: it begins with an underscore."""
    return isinstance(key, str) and key.startswith("_")


def encodable(text: str) -> bool:
    """Tell whether text can be encoded as UTF-8."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def value_faults(value: Any, *, private: bool = False) -> set[str]:
    """Return the codes of what keeps a value from being JSON; private notes are looked at only when asked for.

    The walk goes level by level and looks at each container of a level once, so that neither depth nor a value that
    holds itself can stop it.
    """
    if not private and is_clean(value):
        return set()
    faults: set[str] = set()
    level: Iterable[Any] = (value,)
    for _ in range(MAX_DEPTH + 2):
        deeper: dict[int, Any] = {}
        for item in level:
            _look(item, deeper, faults)
        if not deeper:
            return faults
        level = [child for container in deeper.values() for child in _children(container, faults, private=private)]
    faults.add(TOO_DEEP)
    return faults


def is_clean(value: Any, depth: int = 0) -> bool:  # noqa: C901, PLR0911 - the hot loop: calls would cost more
    """Tell, fast, whether a list or dict is JSON beyond doubt; False sends it to the thorough walk."""
    if depth > MAX_DEPTH:
        return False
    if type(value) is dict:
        if not _USUAL_KEYS.issuperset(value) and not all(type(key) is str and key.isascii() for key in value):
            return False
        value = value.values()
    elif type(value) is not list:
        return False
    for item in value:
        kind = type(item)
        if kind is str:
            if not item.isascii() and not encodable(item):
                return False
        elif kind is dict or kind is list:
            if not is_clean(item, depth + 1):
                return False
        elif item is not None and kind is not bool and not _is_scalar(item):
            return False
    return True


def _look(item: Any, deeper: dict[int, Any], faults: set[str]) -> None:
    if isinstance(item, str):
        if not encodable(item):
            faults.add(LONE_SURROGATE)
    elif isinstance(item, (dict, list, tuple)):
        deeper[id(item)] = item
        if isinstance(item, tuple):
            faults.add(NOT_JSON)
    elif not _is_scalar(item):
        faults.add(NOT_JSON)


def _is_scalar(value: Any) -> bool:
    """Tell whether this is None, a boolean, or a number that can be written as JSON."""
    if isinstance(value, float):
        return isfinite(value)
    return value is None or (isinstance(value, int) and value.bit_length() <= _MAX_BITS)


def _children(container: Any, faults: set[str], *, private: bool) -> Iterable[Any]:
    if not isinstance(container, dict):
        return container  # type: ignore[no-any-return]
    values = []
    for key, value in container.items():
        if not isinstance(key, str):
            faults.add(NOT_JSON)
        elif key.startswith("_") and not private:
            continue
        elif not encodable(key):
            faults.add(LONE_SURROGATE)
        values.append(value)
    return values


def cleaned(value: Any) -> Any:
    """Return a value as JSON that keeps what it says: other types as text, lone surrogates as U+FFFD.

    A value that is nested too deeply becomes the text of its leaves; in a list only the items that are.
    """
    if not _is_deep(value):
        return _plain(value)
    if isinstance(value, list):
        return [_leaves(item) if _is_deep(item) else _plain(item) for item in value]
    return _leaves(value)


def _is_deep(value: Any) -> bool:
    return TOO_DEEP in value_faults(value, private=True)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {_text(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if _is_scalar(value) else _text(value)


def _text(value: Any) -> str:
    """Return the text of a value that is not a container."""
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode(errors="replace")
    if isinstance(value, (set, frozenset)):
        return ", ".join(sorted(_text(item) for item in value))
    text = hex(value) if isinstance(value, int) and not _is_scalar(value) else str(value)
    return _SURROGATES.sub("\ufffd", text)


def _leaves(value: Any) -> str:
    seen: set[int] = set()
    texts: list[str] = []
    stack = [value]
    while stack:
        item = stack.pop()
        if not isinstance(item, (dict, list, tuple)):
            texts.append(_text(item))
        elif id(item) not in seen:
            seen.add(id(item))
            stack.extend(reversed(list(item.values()) if isinstance(item, dict) else item))
    return ", ".join(texts)


def as_text(value: Any) -> str:
    """Return a value as text: text as it is, anything else as JSON."""
    value = cleaned(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def parse_arguments(raw: str) -> Any:
    """Parse the arguments of a call; ValueError when they are not JSON that can be sent on."""
    if raw.count("[") + raw.count("{") > MAX_DEPTH and _nests_too_deeply(raw):
        raise ValueError(f"nested more than {MAX_DEPTH} levels deep")
    return _DECODER.decode(raw)


def _nests_too_deeply(raw: str) -> bool:
    depth = 0
    for match in _NESTING.finditer(raw):
        sign = match.group()
        depth += (sign in "[{") - (sign in "]}")
        if depth > MAX_DEPTH:
            return True
    return False


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"{text} is too large a number")
    return number


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_refuse)


def arguments_fault(raw: Any) -> str | None:
    """Return the code of what is wrong with the arguments of a call, or None."""
    if not isinstance(raw, str):
        return ARGUMENTS_NOT_TEXT
    try:
        value = parse_arguments(raw)
    except ValueError:
        return ARGUMENTS_NOT_JSON
    if not isinstance(value, dict):
        return ARGUMENTS_NOT_OBJECT
    halved = "\\u" in raw and not encodable(json.dumps(value, ensure_ascii=False))
    return LONE_SURROGATE if halved else None
