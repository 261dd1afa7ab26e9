"""Exports of ChatGPT: an array of conversations, each a tree; read is the branch that was shown last."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from leporello.messages import Message, role_of
from leporello.transcripts.model import Skipped, Transcript, as_text, timed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from leporello.transcripts.model import OnSkip
    from leporello.transcripts.records import Record

_ROLES = frozenset({"system", "user", "assistant", "tool"})


def knows(value: Any) -> bool:
    """Tell whether a value is a conversation of such an export."""
    return isinstance(value, dict) and isinstance(value.get("mapping"), dict)


def read(values: Iterable[Record], path: Path, on_skip: OnSkip) -> Iterator[Transcript]:
    """Yield the conversations of an export."""
    for number, value in values:
        if not knows(value):
            on_skip(Skipped(file=str(path), line=number, reason="not a conversation of a ChatGPT export"))
            continue
        messages: list[Message] = []
        for node in _branch(value["mapping"], value.get("current_node")):
            _take(messages, node)
        name = str(value.get("conversation_id") or value.get("id") or f"{path.stem}-{number}")
        meta = {key: value[key] for key in ("title", "create_time") if key in value}
        model = str(value.get("default_model_slug") or "")
        yield Transcript(name=name, format="chatgpt", messages=messages, model=model, meta=meta)


def _branch(mapping: dict[str, Any], newest: Any) -> list[dict[str, Any]]:
    """Return the messages from the root to the newest node; without one, to the last node that has no children."""
    newest = as_text(newest)
    if newest not in mapping:
        leaves = [id_ for id_, node in mapping.items() if isinstance(node, dict) and not node.get("children")]
        newest = leaves[-1] if leaves else None
    branch: list[dict[str, Any]] = []
    seen: set[Any] = set()
    while newest in mapping and newest not in seen and isinstance(mapping[newest], dict):
        seen.add(newest)
        message = mapping[newest].get("message")
        if isinstance(message, dict):
            branch.append(message)
        newest = as_text(mapping[newest].get("parent"))
    return branch[::-1]


def _take(messages: list[Message], said: dict[str, Any]) -> None:
    author = said.get("author")
    author = author if isinstance(author, dict) else {}
    role, text = as_text(author.get("role")), _text(said.get("content"))
    if role not in _ROLES or not text.strip():
        return
    recipient = said.get("recipient") or "all"
    time = said.get("create_time")
    if role == "assistant" and recipient != "all":
        messages.append(timed(_call(str(said.get("id")), str(recipient), text), time))
    elif role == "tool":
        messages += [timed(message, time) for message in _result(messages, str(author.get("name")), said, text)]
    else:
        messages.append(timed({"role": role, "content": text}, time))


def _call(id_: str, name: str, text: str) -> Message:
    try:
        given = json.loads(text)
    except ValueError:
        given = None
    arguments = text if isinstance(given, dict) else json.dumps({"input": text}, ensure_ascii=False)
    function = {"name": name, "arguments": arguments}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": id_, "type": "function", "function": function}]}


def _result(messages: list[Message], name: str, said: dict[str, Any], text: str) -> list[Message]:
    """Return the result of the newest call; one without a call gets a call of that name before it."""
    newest = messages[-1] if messages else {}
    if newest.get("tool_calls"):
        return [{"role": "tool", "tool_call_id": newest["tool_calls"][-1]["id"], "content": text}]
    if role_of(newest) == "tool":
        newest["content"] += f"\n{text}"
        return []
    call = _call(str(said.get("id")), name, "{}")
    return [call, {"role": "tool", "tool_call_id": str(said.get("id")), "content": text}]


def _text(content: Any) -> str:
    if not isinstance(content, dict):
        return ""
    parts = content.get("parts")
    if isinstance(parts, list):
        return "\n".join(_part(part) for part in parts)
    return str(content.get("text") or content.get("result") or "")


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    return str(part.get("text") or f"[{part.get('content_type', 'attachment')}]") if isinstance(part, dict) else ""
