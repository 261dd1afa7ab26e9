"""Answers as OpenAI's Responses API gives them."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from leporello.messages.responses import kind_of
from leporello.testing.model_server.answer import pieces

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from leporello.engine import Usage
    from leporello.messages.responses import Item
    from leporello.testing.model_server.answer import Answer
    from leporello.testing.model_server.failures import HTTPFailure
    from leporello.testing.model_server.requests import ReceivedRequest


def chunks(request: ReceivedRequest, answer: Answer) -> Iterable[bytes]:
    """Return the answer to a request as it goes over the wire."""
    response = body(request, answer)
    return events(response) if request.stream else [json.dumps(response).encode()]


def body(request: ReceivedRequest, answer: Answer) -> dict[str, Any]:
    """Return the whole response."""
    cut = answer.finish == "length"
    status = "incomplete" if cut else "completed"
    details = {"reason": "max_output_tokens"} if cut else None
    return {
        **_envelope(request, answer.number, status),
        "incomplete_details": details,
        "output": output(request, answer),
        "usage": usage_body(answer.usage),
    }


def failed(request: ReceivedRequest, number: int, refusal: HTTPFailure) -> dict[str, Any]:
    """Return the response of a request that is refused after it was taken."""
    error = {"code": refusal.code or "server_error", "message": refusal.message}
    return {**_envelope(request, number, "failed"), "error": error, "output": [], "usage": None}


def output(request: ReceivedRequest, answer: Answer) -> list[Item]:
    """Return the items of the answer: thinking, what the script prescribes, the text, the calls."""
    number = answer.number
    if kind_of(request.items[-1] if request.items else None) == "compaction_trigger":
        return [compaction(number)]
    items: list[Item] = []
    if answer.thinking:
        secret = f"encrypted-{number}-" + "x" * 40
        items.append({"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": secret})
    items += [dict(item) for item in answer.items]
    if answer.text:
        part = {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}
        said = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed"}
        items.append({**said, "content": [part]})
    for place, (call_id, name, arguments) in enumerate(answer.tool_calls):
        call = {"type": "function_call", "id": f"fc_{number}_{place}", "call_id": call_id, "name": name}
        items.append({**call, "arguments": json.dumps(arguments), "status": "completed"})
    return items


def compaction(number: int) -> Item:
    """Return an item that stands for everything before it."""
    return {"type": "compaction", "id": f"cmp_{number}", "encrypted_content": f"opaque-{number}-" + "x" * 40}


def events(response: dict[str, Any]) -> Iterator[bytes]:
    """Yield a response as server-sent events; the last one carries the whole of it.

    Before one that failed stands an event that keeps the connection alive, as providers send them while they read.
    """
    begun = {
        **response,
        "status": "in_progress",
        "output": [],
        "usage": None,
        "error": None,
        "incomplete_details": None,
    }
    told = [("response.created", {"response": begun}), ("response.in_progress", {"response": begun})]
    for index, item in enumerate(response["output"]):
        told += _item_events(index, item)
    if response["status"] == "failed":
        told.append(("keepalive", {}))
    told.append((f"response.{response['status']}", {"response": response}))
    for number, (kind, data) in enumerate(told):
        yield event(kind, sequence_number=number, **data)


def event(kind: str, **data: Any) -> bytes:
    """Return one server-sent event."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n".encode()


def error_event(error: dict[str, Any]) -> bytes:
    """Return the event that ends a stream with an error."""
    return event("error", code=error.get("code"), message=error.get("message"), param=None, sequence_number=0)


def usage_body(usage: Usage) -> dict[str, Any]:
    """Return usage in the words of the Responses API."""
    return {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": {
            "cached_tokens": usage["cache_read_tokens"],
            "cache_write_tokens": usage["cache_write_tokens"],
        },
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": usage["reasoning_tokens"]},
        "total_tokens": usage["total_tokens"],
    }


def _envelope(request: ReceivedRequest, number: int, status: str) -> dict[str, Any]:
    asked = request.body
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": int(time.time()),
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": asked.get("instructions"),
        "max_output_tokens": asked.get("max_output_tokens"),
        "metadata": asked.get("metadata") or {},
        "model": request.model,
        "parallel_tool_calls": True,
        "previous_response_id": asked.get("previous_response_id"),
        "reasoning": {"effort": None, "summary": None},
        "store": asked.get("store", True),
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": request.tools,
        "top_p": 1.0,
        "truncation": "disabled",
    }


def _item_events(index: int, item: Item) -> list[tuple[str, dict[str, Any]]]:
    at = {"output_index": index}
    empty: dict[str, Item] = {
        "message": {"content": []},
        "function_call": {"arguments": ""},
        "reasoning": {"encrypted_content": ""},
    }
    begun = {**item, **empty.get(item["type"], {}), "status": "in_progress"}
    told: list[tuple[str, dict[str, Any]]] = [("response.output_item.added", {**at, "item": begun})]
    if item["type"] == "message":
        told += _text_events({**at, "item_id": item.get("id"), "content_index": 0}, item["content"][0])
    if item["type"] == "function_call":
        said = {**at, "item_id": item.get("id")}
        for piece in pieces(item["arguments"]):
            told.append(("response.function_call_arguments.delta", {**said, "delta": piece}))
        told.append(("response.function_call_arguments.done", {**said, "arguments": item["arguments"]}))
    return [*told, ("response.output_item.done", {**at, "item": item})]


def _text_events(at: dict[str, Any], part: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    if part.get("type") != "output_text":
        return []
    deltas = [("response.output_text.delta", {**at, "delta": piece, "logprobs": []}) for piece in pieces(part["text"])]
    return [
        ("response.content_part.added", {**at, "part": {**part, "text": ""}}),
        *deltas,
        ("response.output_text.done", {**at, "text": part["text"], "logprobs": []}),
        ("response.content_part.done", {**at, "part": part}),
    ]
