"""Session logs of Codex: `{"timestamp", "type", "payload"}`, one record per item; events repeat what items say."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from leporello.messages import Message, role_of
from leporello.transcripts.model import RecordedCompaction, Skipped, Transcript, as_text, timed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from leporello.transcripts.model import OnSkip
    from leporello.transcripts.records import Record

_TYPES = frozenset({"session_meta", "turn_context", "response_item", "event_msg", "compacted"})
_CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call"})
_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output", "local_shell_call_output"})


def knows(value: Any) -> bool:
    """Tell whether a value is a record of such a log."""
    return isinstance(value, dict) and as_text(value.get("type")) in _TYPES and isinstance(value.get("payload"), dict)


def read(values: Iterable[Record], path: Path, on_skip: OnSkip) -> Iterator[Transcript]:
    """Yield the one conversation of a log."""
    messages: list[Message] = []
    compactions: list[RecordedCompaction] = []
    meta: dict[str, Any] = {}
    model = ""
    for number, value in values:
        if not knows(value):
            on_skip(Skipped(file=str(path), line=number, reason="not a record of a Codex session"))
            continue
        kind, payload = value["type"], value["payload"]
        if kind == "session_meta":
            meta |= {key: payload[key] for key in ("id", "cwd", "cli_version") if key in payload}
            messages += _instructions(payload)
        elif kind == "turn_context":
            model = model or str(payload.get("model") or "")
        elif kind == "compacted":
            compactions.append(RecordedCompaction(at=len(messages), summary=str(payload.get("message") or "")))
        elif kind == "response_item":
            _take(messages, payload, value.get("timestamp"))
    yield Transcript(
        name=path.name.partition(".")[0],
        format="codex",
        messages=messages,
        compactions=tuple(compactions),
        model=model,
        meta=meta,
    )


def _instructions(payload: dict[str, Any]) -> list[Message]:
    given = payload.get("base_instructions") or payload.get("instructions")
    text = given.get("text") if isinstance(given, dict) else given
    return [{"role": "system", "content": text}] if isinstance(text, str) and text else []


def _take(messages: list[Message], item: dict[str, Any], time: Any) -> None:
    kind = as_text(item.get("type"))
    if kind == "message":
        _said(messages, timed({"role": str(item.get("role")), "content": _text(item.get("content"))}, time))
    elif kind in _CALLS:
        _called(messages, _call(item), time)
    elif kind in _OUTPUTS:
        result: Message = {
            "role": "tool",
            "tool_call_id": str(item.get("call_id")),
            "content": _output(item.get("output")),
        }
        messages.append(timed(result, time))


def _said(messages: list[Message], message: Message) -> None:
    """Add a message; instructions of the developer are system messages where they were given."""
    if not message["content"]:
        return
    messages.append({**message, "role": "system"} if role_of(message) == "developer" else message)


def _called(messages: list[Message], call: dict[str, Any], time: Any) -> None:
    """Add a call to the answer that it belongs to: the newest message, if that is one."""
    if messages and role_of(messages[-1]) == "assistant":
        answer = messages[-1]
        messages[-1] = {**answer, "tool_calls": [*answer.get("tool_calls", ()), call]}
    else:
        messages.append(timed({"role": "assistant", "content": None, "tool_calls": [call]}, time))


def _call(item: dict[str, Any]) -> dict[str, Any]:
    name, given = item.get("name"), item.get("arguments")
    if item["type"] == "local_shell_call":
        name, given = "local_shell", item.get("action")
    elif item["type"] == "custom_tool_call":
        given = {"input": item.get("input")}
    arguments = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    call_id = str(item.get("call_id") or item.get("id"))
    return {"id": call_id, "type": "function", "function": {"name": str(name), "arguments": arguments}}


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(str(part["text"]) for part in parts if isinstance(part, dict) and part.get("text"))


def _output(output: Any) -> str:
    if isinstance(output, dict) and "content" in output:
        output = output["content"]
    if isinstance(output, list):
        return _text(output)
    return output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
