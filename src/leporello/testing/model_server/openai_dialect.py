"""Answers as OpenAI's chat completions."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from leporello.testing.model_server.answer import pieces

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from leporello.engine import Usage
    from leporello.testing.model_server.answer import Answer
    from leporello.testing.model_server.requests import ReceivedRequest


def chunks(request: ReceivedRequest, answer: Answer) -> Iterable[bytes]:
    """Return the answer to a request as it goes over the wire."""
    if not request.stream:
        return [json.dumps(body(answer)).encode()]
    options = request.body.get("stream_options")
    return events(answer, include_usage=isinstance(options, dict) and options.get("include_usage") is True)


def body(answer: Answer) -> dict[str, Any]:
    """Return the whole answer."""
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or None, "refusal": None}
    if answer.thinking:
        message["reasoning_content"] = answer.thinking
    if answer.tool_calls:
        message["tool_calls"] = [_call(*call) for call in answer.tool_calls]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": answer.finish}
    return {**_envelope(answer, "chat.completion"), "choices": [choice], "usage": usage_body(answer.usage)}


def events(answer: Answer, *, include_usage: bool) -> Iterator[bytes]:
    """Yield the answer as server-sent events, the end mark last."""
    yield _chunk(answer, {"role": "assistant", "content": ""})
    for piece in pieces(answer.thinking):
        yield _chunk(answer, {"reasoning_content": piece})
    for piece in pieces(answer.text):
        yield _chunk(answer, {"content": piece})
    for index, (call_id, name, arguments) in enumerate(answer.tool_calls):
        begun = {"index": index, "id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}
        yield _chunk(answer, {"tool_calls": [begun]})
        for piece in pieces(json.dumps(arguments)):
            yield _chunk(answer, {"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield _chunk(answer, {}, finish=answer.finish)
    if include_usage:
        yield event({**_envelope(answer, "chat.completion.chunk"), "choices": [], "usage": usage_body(answer.usage)})
    yield b"data: [DONE]\n\n"


def event(data: Any) -> bytes:
    """Return one server-sent event."""
    return f"data: {json.dumps(data)}\n\n".encode()


def error_event(error: dict[str, Any]) -> bytes:
    """Return the event that ends a stream with an error."""
    return event({"error": error})


def usage_body(usage: Usage) -> dict[str, Any]:
    """Return usage in OpenAI's words."""
    return {
        "prompt_tokens": usage["prompt_tokens"],
        "completion_tokens": usage["completion_tokens"],
        "total_tokens": usage["total_tokens"],
        "prompt_tokens_details": {
            "cached_tokens": usage["cache_read_tokens"],
            "cache_write_tokens": usage["cache_write_tokens"],
        },
        "completion_tokens_details": {"reasoning_tokens": usage["reasoning_tokens"]},
    }


def models_body(models: list[str]) -> dict[str, Any]:
    """Return the list of models."""
    return {
        "object": "list",
        "data": [{"id": name, "object": "model", "created": 0, "owned_by": "loopback"} for name in models],
    }


def _call(call_id: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def _envelope(answer: Answer, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{answer.number}", "object": kind, "created": int(time.time()), "model": answer.model}


def _chunk(answer: Answer, delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return event({**_envelope(answer, "chat.completion.chunk"), "choices": [choice]})
