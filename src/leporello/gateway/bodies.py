"""Bodies of requests: read within limits, written as they go out."""

from __future__ import annotations

import asyncio
import json
import math
from typing import TYPE_CHECKING, Any, NoReturn

from leporello.gateway.errors import Refused

if TYPE_CHECKING:
    from starlette.requests import Request

    from leporello.config.model import GatewayLimits


async def read_body(request: Request, limits: GatewayLimits) -> bytes:
    """Return the whole body; one that is too long is refused as soon as that is known, and so is one that dawdles."""
    if "content-length" in request.headers and "transfer-encoding" in request.headers:
        raise Refused(400, "a body has a length or comes in chunks, not both.")
    announced = request.headers.get("content-length", "0")
    if announced.isdecimal() and int(announced) > limits.body_bytes:
        raise _too_long(limits)
    pieces, length = [], 0
    try:
        async with asyncio.timeout(limits.seconds):
            async for piece in request.stream():
                length += len(piece)
                if length > limits.body_bytes:
                    raise _too_long(limits)
                pieces.append(piece)
    except TimeoutError as error:
        raise Refused(408, f"the body did not arrive within {limits.seconds:g} s.") from error
    return b"".join(pieces)


def parsed(content: bytes) -> dict[str, Any]:
    """Read a body that must be a JSON object."""
    try:
        body = json.loads(
            content.decode(), parse_constant=_no_number, parse_float=_finite, object_pairs_hook=_unambiguous
        )
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the body is not JSON: {_reason(error)}.") from error
    if not isinstance(body, dict):
        raise Refused(400, f"the body must be a JSON object, not {_kind(body)}.")
    return body


def written(body: Any) -> bytes:
    """Write a body; what is no character stays the escape that it came as."""
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(body, separators=(",", ":")).encode()


def _too_long(limits: GatewayLimits) -> Refused:
    return Refused(413, f"the body is longer than {limits.body_bytes:,} bytes, the limit of this gateway.")


class _UnusableError(ValueError):
    """JSON that two readers may understand in two ways."""


def _no_number(text: str) -> NoReturn:
    raise _UnusableError(f"{text} is no number")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _no_number(text)


def _unambiguous(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; one in which a name stands twice would be read differently by different readers."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _UnusableError("a name stands twice in the same object")
    return found


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at line {error.lineno}, column {error.colno}"
    if isinstance(error, _UnusableError):
        return str(error)
    return "it is nested too deeply" if isinstance(error, RecursionError) else "it cannot be read"


def _kind(value: Any) -> str:
    return {list: "a list", str: "a text", bool: "true or false", type(None): "null"}.get(type(value), "a number")
