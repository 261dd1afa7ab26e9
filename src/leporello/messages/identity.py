"""Who is who: fingerprints of messages, copies, and messages without what was not said."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from leporello.messages.as_json import is_large, json_pieces
from leporello.messages.values import cleaned, is_private

if TYPE_CHECKING:
    from leporello.messages.types import Message

CACHE_CONTROL = "cache_control"
_GONE = object()
_ENCODER = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def without_private(value: Any) -> Any:
    """Return a message as it goes on the wire: no cache markers, no keys that begin with an underscore, at any depth.

    A message that has none comes back as the same object.
    """
    changed: dict[Any, Any] = {}
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(key, str) and (key[:1] == "_" or key == CACHE_CONTROL):
            changed[key] = _GONE
        elif isinstance(item, (dict, list)) and (stripped := without_private(item)) is not item:
            changed[key] = stripped
    if not changed:
        return value
    if isinstance(value, list):
        return [changed.get(index, item) for index, item in enumerate(value)]
    return {key: changed.get(key, item) for key, item in value.items() if changed.get(key) is not _GONE}


def copied(value: Any) -> Any:
    """Return a copy of a message that later changes to it do not reach."""
    if isinstance(value, dict):
        return {key: copied(item) if isinstance(item, (dict, list)) else item for key, item in value.items()}
    return [copied(item) if isinstance(item, (dict, list)) else item for item in value]


def copied_as_text(message: Message) -> Message:
    """Return a copy whose text is a string, where there was nothing else, or nothing at all.

    Some engines know no parts, and some write "" where there is nothing, which would look like a change.
    """
    copy: Message = copied(message)
    content = copy.get("content")
    if isinstance(content, list) and content and all(map(_is_bare_text, content)):
        copy["content"] = "\n".join(part["text"] for part in content)
    elif content is None:
        copy["content"] = ""
    return copy


def fingerprint(message: Any) -> str:
    """Return a short, stable name for what a message says: 32 hexadecimal digits.

    Cache markers, private keys, the order of keys, and whether text stands alone or as a single text part make no
    difference; everything else does.
    """
    try:
        said = _said(message)
        large = isinstance(said, dict) and is_large(said)
        said = "".join(json_pieces(said, sort_keys=True)) if large else _ENCODER.encode(said)
    except (TypeError, ValueError, RecursionError):
        said = "not JSON: " + json.dumps(_cleaned(message), ensure_ascii=False, sort_keys=True)
    return blake2b(said.encode(errors="surrogatepass"), digest_size=16).hexdigest()


def _cleaned(message: Any) -> Any:
    if not isinstance(message, dict):
        return cleaned(message)
    kept = {key: value for key, value in message.items() if not is_private(key) and key != CACHE_CONTROL}
    return {f"{type(key).__name__} {key}": cleaned(value) for key, value in kept.items()}


def _said(message: Any) -> Any:
    said = without_private(message) if isinstance(message, (dict, list)) else message
    content = said.get("content") if isinstance(said, dict) else None
    if isinstance(content, list) and len(content) == 1 and _is_bare_text(content[0]):
        return {**said, "content": content[0]["text"]}
    return said


def _is_bare_text(part: Any) -> bool:
    if not isinstance(part, dict):
        return False
    said = {key: value for key, value in part.items() if not is_private(key)}
    return said == {"type": "text", "text": part.get("text")}
