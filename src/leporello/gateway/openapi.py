"""The description of our own routes; those of the providers are described by them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import leporello
from leporello.gateway.agent_api import MOST_LISTED, Speech, Wish

if TYPE_CHECKING:
    from collections.abc import Iterator

_ID = {
    "name": "id",
    "in": "path",
    "required": True,
    "description": "The name of a conversation.",
    "schema": {"type": "string", "pattern": "^[A-Za-z0-9._:@-]{1,128}$"},
}
_TEXT, _NUMBER, _COUNT = {"type": "string"}, {"type": "number"}, {"type": "integer", "minimum": 0}


def _object(**properties: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object in which every property is required."""
    return {"type": "object", "required": list(properties), "properties": properties}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


_SESSION = _object(
    id=_TEXT,
    title={**_TEXT, "description": "The title it was given, or its first request, shortened."},
    messages=_COUNT,
    taken_back=_COUNT,
    created=_NUMBER,
    updated=_NUMBER,
    ended={"type": ["number", "null"]},
)
_MESSAGE = _object(id=_TEXT, seq=_COUNT, time=_NUMBER, message={"type": "object"})
_ERROR = _object(error=_object(message=_TEXT, type=_TEXT))
_TURN = _object(
    session=_TEXT,
    content={**_TEXT, "description": "What the agent answered."},
    reason={**_TEXT, "enum": ["done", "limit", "interrupted", "failed", "kept"]},
    requests=_COUNT,
    stored={"type": "boolean", "description": "Whether everything that was said is in the store."},
    usage={"type": "object"},
)
_EVENT = _object(
    event={"enum": ["text", "thinking", "tool_started", "tool_finished", "notice", "end"]},
    data={**_TEXT, "description": "JSON; that of `end` is what a request without `stream` answers."},
)
_REPORT = _object(status={**_TEXT, "enum": ["folded", "fallback", "unchanged", "refused"]}, reason=_TEXT)
_WRONG = {
    "400": "The request is wrong; the text says where.",
    "401": "The key is missing or wrong.",
    "403": "Without keys, only this machine is served.",
    "408": "The body did not arrive in time.",
    "413": "The body is too long.",
    "429": "Too many requests of this key are running; Retry-After says when to try again.",
    "503": "The store, or the model, cannot be used at the moment.",
}
_WAIT = {"description": "How many seconds to wait before the next try.", "schema": {"type": "integer", "minimum": 0}}
_HEADERS: dict[str, dict[str, Any]] = {
    "401": {"WWW-Authenticate": {"required": True, "schema": {"const": "Bearer"}}},
    "429": {"Retry-After": {**_WAIT, "required": True}},
    "503": {"Retry-After": _WAIT},
}
"""What a refusal carries beside its text."""

_MISSING = {"404": "There is no conversation of this name."}
_BUSY = {"409": "The conversation is in use by another client."}
_MODEL = {"502": "The model refused; the message is stored."}


@cache
def document() -> dict[str, Any]:
    """Return the OpenAPI document."""
    paths: dict[str, dict[str, Any]] = {}
    for path, method, operation in _operations():
        shared = {"parameters": [_ID]} if "{id}" in path else {}
        paths.setdefault(path, shared)[method] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "Leporello gateway", "version": leporello.__version__},
        "components": {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
        "security": [{"key": []}, {}],
        "paths": paths,
    }


def _operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the path, the method and the description of each operation."""
    keyless: dict[str, Any] = {"security": []}
    page = _query("limit", 1, MOST_LISTED, 100)
    missing, busy, missing_or_busy = _WRONG | _MISSING, _WRONG | _BUSY, _WRONG | _MISSING | _BUSY
    session, messages = "/v1/sessions/{id}", "/v1/sessions/{id}/messages"
    list_ = _object(sessions=_list(_SESSION), total=_COUNT)
    offset, after = _query("offset", 0, 2**31, 0), _query("after", 0, 2**53, 0)
    turn = {**_json(_TURN), "text/event-stream": {"schema": _EVENT}}
    yield "/healthz", "get", _operation("Tell that it is well.", _json({"type": "object"})) | keyless
    yield "/openapi.json", "get", _operation("Describe the routes.", _json({"type": "object"})) | keyless
    yield "/metrics", "get", _operation("Return figures for Prometheus.", _text("text/plain"), _WRONG)
    listing = _operation("List conversations, the newest first.", _json(list_), _WRONG)
    yield "/v1/sessions", "get", listing | {"parameters": [page, offset]}
    yield session, "get", _operation("Describe a conversation.", _json(_SESSION), missing)
    yield (
        session,
        "delete",
        _operation("Delete a conversation.", _json(_object(id=_TEXT, messages=_COUNT)), missing_or_busy),
    )
    reading = _operation("Read what was said.", _json(_object(messages=_list(_MESSAGE))), missing)
    yield messages, "get", reading | {"parameters": [page, after]}
    speaking = _operation("Say something; the agent answers.", turn, busy | _MODEL)
    yield messages, "post", speaking | {"requestBody": _body(Speech, required=True)}
    folding = _operation("Fold a conversation now.", _json(_REPORT), missing_or_busy)
    yield f"{session}/compress", "post", folding | {"requestBody": _body(Wish, required=False)}
    ending = _operation(
        "End a conversation and begin another.", _json(_object(id=_TEXT, before=_TEXT)), missing_or_busy
    )
    yield f"{session}/reset", "post", ending
    yield f"{session}/export", "get", _operation("Export a conversation.", _text("application/jsonl"), missing)


def _operation(summary: str, content: dict[str, Any], wrong: dict[str, str] | None = None) -> dict[str, Any]:
    refusals = {status: _refusal(status, text) for status, text in (wrong or {}).items()}
    return {"summary": summary, "responses": {"200": {"description": "Done.", "content": content}, **refusals}}


def _refusal(status: str, text: str) -> dict[str, Any]:
    headers = {"headers": _HEADERS[status]} if status in _HEADERS else {}
    return {"description": text, **headers, "content": _json(_ERROR)}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _text(kind: str) -> dict[str, Any]:
    return {kind: {"schema": _TEXT}}


def _body(kind: type[Speech | Wish], *, required: bool) -> dict[str, Any]:
    return {"required": required, "content": _json(kind.model_json_schema())}


def _query(name: str, least: int, most: int, default: int) -> dict[str, Any]:
    schema = {"type": "integer", "minimum": least, "maximum": most, "default": default}
    return {"name": name, "in": "query", "schema": schema}
