"""Bodies of requests: read within limits, written as they go out.

Whatever takes long is done in a thread, in steps between which the event loop gets its turn: the parts of `json` that
are written in C do not let go of the interpreter while they run.
"""

from __future__ import annotations

import asyncio
import json
import math
from typing import TYPE_CHECKING, Any, Final, NoReturn

from leporello.gateway.decompression import decompressed, is_compressed
from leporello.gateway.errors import Refused
from leporello.gateway.sliced_json import SlicedDecoder
from leporello.messages.as_json import json_pieces
from leporello.messages.listed_message import raw_calls

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

    from leporello.config.model import GatewayLimits
    from leporello.gateway.limits import Slot

SMALL: Final = 64 * 1024
"""Bytes that are read or written at once, in the event loop."""

_AT_ONCE: Final = 4 * 1024 * 1024  # bytes whose JSON is read without a pause
_STEP: Final = 256 * 1024
_MOST_DIGITS: Final = 300
_CALL_SHARE: Final = 8  # arguments are read as a whole, again and again, while other threads wait
_TOO_DEEP: Final = "it is nested too deeply"


async def read_body(request: Request, limits: GatewayLimits, slot: Slot) -> bytes:
    """Return the whole body, decompressed; Refused when it is too long, too slow, or in an unknown encoding."""
    is_compressed(request.headers.get("content-encoding", ""))  # an unknown encoding is refused before the body is read
    check_length(request.headers, limits)
    pieces, length = [], 0
    try:
        async with asyncio.timeout(limits.seconds):
            async for piece in request.stream():
                length += len(piece)
                if length > limits.body_bytes:
                    raise _too_long(limits)
                slot.hold(len(piece))
                pieces.append(piece)
    except TimeoutError as error:
        raise Refused(408, f"the body did not arrive within {limits.seconds:g} s.") from error
    content, encoding = b"".join(pieces), request.headers.get("content-encoding", "")
    if not is_compressed(encoding):
        return content
    content = await asyncio.to_thread(decompressed, content, encoding, most=limits.body_bytes)
    slot.hold(len(content))
    return content


def check_length(headers: Mapping[str, str], limits: GatewayLimits) -> None:
    """Refuse a body by the length in the headers."""
    if "content-length" in headers and "transfer-encoding" in headers:
        raise Refused(400, "a body has a length or comes in chunks, not both.")
    announced = headers.get("content-length", "0")
    if announced.isdecimal() and int(announced) > limits.body_bytes:
        raise _too_long(limits)


def parsed(content: bytes, limits: GatewayLimits) -> dict[str, Any]:
    """Parse a body, which must be a JSON object."""
    if has_more_values(content, limits.values):
        raise Refused(413, f"the body holds more than {limits.values:,} JSON values (gateway.limits.values).")
    decoder = json.JSONDecoder if len(content) <= _AT_ONCE else SlicedDecoder
    try:
        body = decoder(
            parse_constant=_no_number,
            parse_float=_finite,
            parse_int=_whole,
            object_pairs_hook=_unambiguous,
        ).decode(content.decode())
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the body is not JSON: {_reason(error)}.") from error
    if not isinstance(body, dict):
        raise Refused(400, f"the body must be a JSON object, not {_kind(body)}.")
    return body


def check_count(messages: list[Any], limits: GatewayLimits, *, stored: int = 0) -> None:
    """Refuse a history with too many messages, or with too many values in the arguments of a call.

    `stored` of them did not come with the request: they are of the responses that it continues.
    """
    sent = len(messages) - stored
    if sent > limits.messages:
        raise Refused(
            413,
            f"messages: there are {sent:,}; this gateway takes {limits.messages:,} in one request"
            " (gateway.limits.messages).",
        )
    most = limits.values // _CALL_SHARE
    calling = (message for message in messages if message.get("tool_calls"))
    arguments = (text for message in calling for _, _, text in raw_calls(message))
    if any(has_more_values(text.encode("utf-8", "replace"), most) for text in arguments):
        raise Refused(
            413,
            f"messages: the arguments of a call hold more than {most:,} JSON values"
            " (an eighth of gateway.limits.values).",
        )


def written(body: Any) -> bytes:
    """Return a body as JSON; invalid characters stay escaped."""
    try:
        return b"".join(piece.encode() for piece in json_pieces(body))
    except UnicodeEncodeError:
        return json.dumps(body, separators=(",", ":")).encode()


def has_more_values(content: bytes, most: int) -> bool:
    """Tell whether JSON has more values than `most`, without parsing it, as each value takes far more than its bytes.

    Commas and opening brackets outside of texts are counted.
    """
    if sum(map(content.count, (b",", b"[", b"{"))) <= most:  # those inside of texts are counted here too
        return False
    count, inside, start = 0, False, 0
    while start < len(content):
        end = start + _STEP
        while content[end - 1 : end] == b"\\":  # an escape is not cut in two
            end += 1
        pieces = content[start:end].replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"".join(pieces[inside::2])
        count += sum(map(outside.count, (b",", b"[", b"{")))
        if count > most:
            return True
        inside ^= len(pieces) % 2 == 0
        start = end
    return False


def _too_long(limits: GatewayLimits) -> Refused:
    return Refused(413, f"the body is longer than {limits.body_bytes:,} bytes, the limit of this gateway.")


class _UnusableError(ValueError):
    """JSON that two parsers may read in two ways, or that takes too long to parse."""


def _no_number(text: str) -> NoReturn:
    raise _UnusableError(f"{text} is no number")


def _whole(text: str) -> int:
    _check_digits(text)
    if len(text) > _MOST_DIGITS:
        raise _UnusableError(f"a number has more than {_MOST_DIGITS:,} digits")
    return int(text)


def _check_digits(text: str) -> None:
    if not text.isascii():
        raise _UnusableError("a number has digits of another script")


def _finite(text: str) -> float:
    _check_digits(text)
    number = float(text)
    return number if math.isfinite(number) else _no_number(text[:20])


def _unambiguous(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; raises for a name that occurs twice, which parsers read in different ways."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _UnusableError("a name stands twice in the same object")
    return found


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at line {error.lineno}, column {error.colno}"
    if isinstance(error, _UnusableError):
        return str(error)
    return _TOO_DEEP if isinstance(error, RecursionError) else "it cannot be read"


def _kind(value: Any) -> str:
    return {list: "a list", str: "a text", bool: "true or false", type(None): "null"}.get(type(value), "a number")
