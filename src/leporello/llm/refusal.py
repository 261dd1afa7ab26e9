"""What a provider sent, read from the many shapes that errors come in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any

_STATUS_OF_TYPE = {
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "invalid_request_error": 400,
    "api_error": 500,
    "server_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""The status that an error inside a stream would have had; the stream itself began with 200."""

_SAID = ("message", "Message", "msg", "error", "detail", "error_description", "raw")
_CLUES = (
    *_SAID,
    *("code", "type", "status", "error_type", "error_code", "reason", "param", "metadata", "details", "violations"),
    *("innererror", "errors", "Error", "Code", "__type", "quotaId", "retryDelay", "n_prompt_tokens", "n_ctx"),
)
"""The fields that are read. Others may quote the request, whose text must not be taken for the provider's."""

_DEEPEST = 8
_LONGEST = 20_000
"""An explanation is short; of a page or a log that comes in its place, the beginning is enough."""

_NO_STATUS = 600
_DECIMAL = r"\d{1,12}(?:\.\d{0,12})?"
_WAITS = re.compile(
    rf"(?:try again|retry|wait)(?: again)? (?:in|after|for) ~?((?:{_DECIMAL} ?(?:ms|h|m|s)[a-z]{{0,8}} ?){{1,4}})",
    re.IGNORECASE,
)
_DELAY_FIELD = re.compile(rf"retrydelay: ({_DECIMAL}s)")
_UNIT = re.compile(rf"({_DECIMAL}) ?(ms|h|m|s)", re.IGNORECASE)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_TAGS = re.compile(r"<(?:script|style).*?</(?:script|style)>|<[^>]+>", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A provider's words, all that may give its meaning away in lower case, and the numbers around it."""

    said: str
    clues: str
    status: int | None
    retry_after: float | None = None
    causes: frozenset[str] = field(default_factory=frozenset)


def read_response(status: int | None, body: Any, headers: Mapping[str, str], now: float) -> Refusal:
    """Read an HTTP answer: a status, a body (decoded or not) and its headers."""
    body = _decoded(body)
    clues = "\n".join(_clues(body))[:_LONGEST].lower()
    return Refusal(
        said=_said(body) or "no further explanation",
        clues=clues,
        status=_status(status, body),
        retry_after=_retry_after(headers, clues, now),
    )


def read_exception(problem: BaseException, now: float) -> Refusal:
    """Read an exception of a provider's package, or of what lies below it, without importing either."""
    response = getattr(problem, "response", None)
    status, body = _first_int(problem, "status_code", "code", "http_status"), getattr(problem, "body", None)
    if isinstance(response, Mapping):  # botocore
        status, body = response.get("ResponseMetadata", {}).get("HTTPStatusCode"), response
    headers = getattr(response, "headers", None)
    read = read_response(status, body, headers if isinstance(headers, Mapping) else {}, now)
    own = _own_words(problem)
    return Refusal(
        said=_said(_decoded(body)) or own,
        clues=own.lower() if body is None else read.clues,
        status=read.status,
        retry_after=read.retry_after if body is not None else _retry_after(headers or {}, own.lower(), now),
        causes=frozenset(kind.__name__ for kind in type(problem).__mro__),
    )


def _own_words(problem: BaseException) -> str:
    """Return the exception's text with its cause's; "Connection error." alone says too little."""
    words = [str(error).strip() or type(error).__name__ for error in (problem, problem.__cause__) if error is not None]
    return " ".join(dict.fromkeys(words))[:_LONGEST]


def _first_int(problem: BaseException, *names: str) -> int | None:
    return next((value for name in names if isinstance(value := getattr(problem, name, None), int)), None)


def _decoded(body: Any) -> Any:
    """Return a body as data where it is JSON, as text without tags where it is a page."""
    if isinstance(body, bytes):
        body = body.decode(errors="replace")
    if not isinstance(body, str):
        return body
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return " ".join(_TAGS.sub(" ", body).split())


def _said(body: Any, depth: int = 0) -> str:
    """Return the first sentence for people, the outermost first."""
    if isinstance(body, str):
        return body[:_LONGEST].strip()
    if isinstance(body, list):
        return next((text for item in body if (text := _said(item, depth + 1))), "") if depth < _DEEPEST else ""
    if not isinstance(body, Mapping) or depth >= _DEEPEST:
        return ""
    return next((text for key in _SAID if (text := _said(body.get(key), depth + 1))), "")


def _clues(body: Any, depth: int = 0) -> Iterator[str]:
    """Yield every text and number in the fields that are the provider's own."""
    if isinstance(body, str):
        yield body
        if body.lstrip().startswith(("{", "[")) and not isinstance(inner := _decoded(body), str) and depth < _DEEPEST:
            yield from _clues(inner, depth + 1)
    elif isinstance(body, list) and depth < _DEEPEST:
        for item in body:
            yield from _clues(item, depth + 1)
    elif isinstance(body, Mapping) and depth < _DEEPEST:
        for key in _CLUES:
            value = body.get(key)
            if isinstance(value, (int, float)) or key == "retryDelay":
                yield f"{key}: {value}"
            else:
                yield from _clues(value, depth + 1)


def _status(status: int | None, body: Any) -> int | None:
    """Return the status, or the one that the body names when the HTTP answer itself was a success or is unknown."""
    if _is_error(status):
        return status
    error = body.get("error", body) if isinstance(body, Mapping) else {}
    error = error if isinstance(error, Mapping) else {}
    code = error.get("code", error.get("status"))
    return code if _is_error(code) else _STATUS_OF_TYPE.get(str(error.get("type")))


def _is_error(status: Any) -> bool:
    return isinstance(status, int) and HTTPStatus.BAD_REQUEST <= status < _NO_STATUS


def _retry_after(headers: Mapping[str, str], clues: str, now: float) -> float | None:
    """Return how long to wait in seconds, from the headers or else from the words."""
    named = {key.lower(): value for key, value in headers.items()}
    if (milliseconds := _number(named.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    if value := named.get("retry-after"):
        seconds = _number(value)
        return seconds if seconds is not None else _until(value, now)
    words = _DELAY_FIELD.search(clues) or _WAITS.search(clues)
    return sum(float(n) * _SECONDS[unit.lower()] for n, unit in _UNIT.findall(words[1])) if words else None


def _number(value: str | None) -> float | None:
    try:
        return max(0.0, float(value)) if value is not None else None
    except ValueError:
        return None


def _until(date: str, now: float) -> float | None:
    try:
        return max(0.0, parsedate_to_datetime(date).timestamp() - now)
    except ValueError:
        return None
