"""Messages as bytes, and back, exactly.

The verbatim bytes of a message are compact JSON with every non-ASCII character escaped and the keys in the order they
came in, so NUL, lone surrogates, large integers and floats survive. Long strings are kept once, by the hash of their
content, compressed: in the stored body an empty string stands in their place, and `refs` says what belongs where. Since
the references stand beside the body, no value of a message can be mistaken for one. A message with both halves of a
surrogate pair as two characters, which read as one when they are escaped, is kept whole and without escapes.
"""

from __future__ import annotations

import json
import re
import zlib
from hashlib import blake2b
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from leporello.errors import MessageError
from leporello.messages.as_json import is_large, json_pieces, require_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from leporello.messages import Message

LONG: Final = 2_048  # characters; shorter strings stay in the body
HASH_SIZE: Final = 16

_ENCODER = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"), allow_nan=False, check_circular=False)
_WIDE_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False)
_ESCAPES_WORTH_WRITING_OUT = 12  # bytes of text per escape of six bytes
_PACKED = b"\x78"  # how zlib data begins, as earlier versions wrote it; a JSON object begins with a brace

_ESCAPED_SURROGATE = b"\\ud"
_SPLIT_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")

Path: TypeAlias = tuple[str | int, ...]


class Encoded(NamedTuple):
    """A message as it is stored: its verbatim bytes, the body without long strings, and those strings by their hash."""

    verbatim: bytes
    body: bytes
    refs: str | None = None
    payloads: Mapping[bytes, bytes] = MappingProxyType({})


def verbatim(message: Any, path: str = "message") -> bytes:
    """Return a message as JSON bytes; a value that is not JSON is refused with its path."""
    if not isinstance(message, dict):
        raise MessageError(f"a message is a dict, not {type(message).__name__}.", path=path)
    require_json(message, path)
    if is_large(message):
        return b"".join(piece.encode("ascii") for piece in json_pieces(message, ensure_ascii=True))
    return _ENCODER.encode(message).encode("ascii")


def encode(message: Any, path: str = "message") -> Encoded:
    """Return what is stored for a message; a value that is not JSON is refused with its path."""
    data = verbatim(message, path)
    if len(data) < LONG and b"\\u" not in data:
        return Encoded(data, data)
    texts = list(_long_strings(message, ())) if len(data) >= LONG and not _has_split_pair(message, data) else []
    if not texts:
        return Encoded(data, _body(message, data))
    short = message
    refs, payloads = [], {}
    for place, text in texts:
        raw = text.encode("utf-8", "surrogatepass")
        key = content_hash(raw)
        short = _replaced(short, place, "")
        refs.append([key.hex(), *place])
        payloads[key] = zlib.compress(raw, 1)
    body = _body(short, _ENCODER.encode(short).encode("ascii"))
    return Encoded(data, body, _ENCODER.encode(refs), payloads)


def decode(body: bytes, refs: str | None = None, payloads: Mapping[bytes, bytes] | None = None) -> Message:
    """Return the message of a stored body; `payloads` holds the compressed strings that `refs` names."""
    message: Message = json.loads(_unpacked(body))
    for key, *place in json.loads(refs) if refs else ():
        raw = zlib.decompress((payloads or {})[bytes.fromhex(key)])
        target: Any = message
        for step in place[:-1]:
            target = target[step]
        target[place[-1]] = raw.decode("utf-8", "surrogatepass")
    return message


UNREADABLE: Final = (ValueError, KeyError, IndexError, TypeError, zlib.error)
"""What `decode` raises for a damaged body."""


def payload_keys(refs: str | None) -> list[bytes]:
    """Return the hashes of the payloads that a stored message refers to."""
    return [bytes.fromhex(key) for key, *_ in json.loads(refs)] if refs else []


def is_canonical(body: bytes) -> bool:
    """Tell whether a stored body has exactly the bytes that storing it again would write."""
    message = json.loads(_unpacked(body))
    data = _ENCODER.encode(message).encode("ascii")
    return body in (_body(message, data), data) or body == zlib.compress(data, 1)


def content_hash(raw: bytes) -> bytes:
    """Return the name of a payload."""
    return blake2b(raw, digest_size=HASH_SIZE).digest()


def next_chain(chain: bytes, data: bytes) -> bytes:
    """Return the chain after a message: the hash of the chain before it and of its verbatim bytes."""
    return blake2b(data, digest_size=HASH_SIZE, key=chain).digest()


def _body(message: Any, data: bytes) -> bytes:
    """Return what is written: the verbatim bytes, or UTF-8 where they consist of escapes for a good part."""
    if _has_split_pair(message, data):
        return _WIDE_ENCODER.encode(message).encode("utf-8", "surrogatepass")
    if data.count(b"\\u") * _ESCAPES_WORTH_WRITING_OUT < len(data):
        return data
    try:
        return _WIDE_ENCODER.encode(message).encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which only an escape can hold
        return data


def _has_split_pair(message: Any, data: bytes) -> bool:
    """Tell whether both halves of a surrogate pair stand side by side, as two characters, anywhere in a message."""
    if _ESCAPED_SURROGATE not in data:
        return False
    written = _WIDE_ENCODER.encode(message)
    try:
        written.encode()
    except UnicodeEncodeError:
        return _SPLIT_PAIR.search(written) is not None
    return False  # whole characters only


def _unpacked(body: bytes) -> bytes:
    return zlib.decompress(body) if body.startswith(_PACKED) else body


def _long_strings(value: Any, place: Path) -> Iterator[tuple[Path, str]]:
    """Yield the strings that are kept beside the body, and where they belong."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        if isinstance(item, str):
            if len(item) >= LONG:
                yield (*place, key), item
        elif isinstance(item, (dict, list)):
            yield from _long_strings(item, (*place, key))


def _replaced(value: Any, place: Path, text: str) -> Any:
    """Return a copy of a container in which one string is another; all the rest is shared."""
    if not place:
        return text
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[place[0]] = _replaced(value[place[0]], place[1:], text)
    return copy
