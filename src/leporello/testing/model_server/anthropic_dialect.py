"""Answers as Anthropic's messages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from leporello.testing.model_server.answer import pieces

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from leporello.engine import Usage
    from leporello.testing.model_server.answer import Answer, ServedUsage
    from leporello.testing.model_server.requests import ReceivedRequest

_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
_SIGNATURE = "c2lnbmVkIGJ5IHRoZSBtb2RlbCBzZXJ2ZXI="


def chunks(request: ReceivedRequest, answer: Answer) -> Iterable[bytes]:
    """Return the answer to a request as it goes over the wire."""
    return events(answer) if request.stream else [json.dumps(body(answer)).encode()]


def body(answer: Answer) -> dict[str, Any]:
    """Return the whole answer."""
    return {**_envelope(answer), "content": _blocks(answer), **_end(answer), "usage": usage_body(answer.usage)}


def events(answer: Answer) -> Iterator[bytes]:
    """Yield the answer as server-sent events, the end mark last."""
    start = {**_envelope(answer), "content": [], "stop_reason": None, "stop_sequence": None}
    start["usage"] = {**usage_body(answer.usage), "output_tokens": 1}
    yield event("message_start", message=start)
    yield event("ping")
    for index, block in enumerate(_blocks(answer)):
        yield from _block_events(index, block)
    yield event("message_delta", delta=_end(answer), usage=usage_body(answer.usage))
    yield event("message_stop")


def event(kind: str, **data: Any) -> bytes:
    """Return one server-sent event."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n".encode()


def error_event(error: dict[str, Any]) -> bytes:
    """Return the event that ends a stream with an error."""
    return event("error", error=error)


def usage_body(usage: Usage) -> dict[str, Any]:
    """Return usage in Anthropic's words: what came from a cache stands beside the input, not in it."""
    written = usage["cache_write_tokens"]
    hour = min(written, cast("ServedUsage", usage).get("cache_write_1h_tokens", 0))
    return {
        "input_tokens": usage["input_tokens"],
        "output_tokens": usage["output_tokens"],
        "cache_read_input_tokens": usage["cache_read_tokens"],
        "cache_creation_input_tokens": written,
        "cache_creation": {"ephemeral_5m_input_tokens": written - hour, "ephemeral_1h_input_tokens": hour},
    }


def models_body(models: list[str]) -> dict[str, Any]:
    """Return the list of models."""
    data = [
        {"type": "model", "id": name, "display_name": name, "created_at": "1970-01-01T00:00:00Z"} for name in models
    ]
    return {"data": data, "has_more": False, "first_id": models[0], "last_id": models[-1]}


def _envelope(answer: Answer) -> dict[str, Any]:
    return {"id": f"msg_{answer.number}", "type": "message", "role": "assistant", "model": answer.model}


def _end(answer: Answer) -> dict[str, Any]:
    return {"stop_reason": _STOP_REASONS.get(answer.finish, "end_turn"), "stop_sequence": None}


def _blocks(answer: Answer) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if answer.thinking:
        blocks.append({"type": "thinking", "thinking": answer.thinking, "signature": _SIGNATURE})
    if answer.text:
        blocks.append({"type": "text", "text": answer.text})
    blocks.extend(
        {"type": "tool_use", "id": call_id, "name": name, "input": arguments}
        for call_id, name, arguments in answer.tool_calls
    )
    return blocks


def _block_events(index: int, block: dict[str, Any]) -> Iterator[bytes]:
    empty: dict[str, dict[str, Any]] = {
        "thinking": {"thinking": "", "signature": ""},
        "text": {"text": ""},
        "tool_use": {"input": {}},
    }
    yield event("content_block_start", index=index, content_block={**block, **empty[block["type"]]})
    for delta in _deltas(block):
        yield event("content_block_delta", index=index, delta=delta)
    yield event("content_block_stop", index=index)


def _deltas(block: dict[str, Any]) -> list[dict[str, Any]]:
    if block["type"] == "text":
        return [{"type": "text_delta", "text": piece} for piece in pieces(block["text"])]
    if block["type"] == "tool_use":
        return [{"type": "input_json_delta", "partial_json": piece} for piece in pieces(json.dumps(block["input"]))]
    thoughts = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(block["thinking"])]
    return [*thoughts, {"type": "signature_delta", "signature": block["signature"]}]
