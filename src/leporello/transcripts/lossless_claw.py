"""Databases of lossless-claw: messages, and beside each the parts that it was made of, as the agent had them."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from leporello.messages import Message, text_of
from leporello.transcripts.blocks import Joined
from leporello.transcripts.columns import parsed, selected
from leporello.transcripts.model import Skipped, Transcript, timed

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from leporello.transcripts.model import OnSkip

_CONVERSATION: Final = ("conversation_id", "session_id", "session_key", "title", "active")
_MESSAGE: Final = ("message_id", "role", "content", "created_at", "large_content")
_PART: Final = (
    *("message_id", "part_type", "text_content", "tool_call_id", "tool_name", "tool_input", "tool_output"),
    "metadata",
)
_CALLS: Final = frozenset({"toolCall", "tool_use", "tool-use", "toolUse", "functionCall", "function_call", "tool_call"})
_RESULTS: Final = frozenset({"toolResult", "tool_result", "function_call_output"})


def knows(columns: Mapping[str, set[str]]) -> bool:
    """Tell whether these are the tables of such a database."""
    return {"message_id", "conversation_id", "seq"} <= columns.get("messages", set()) and "message_parts" in columns


def read(
    connection: sqlite3.Connection, columns: Mapping[str, set[str]], path: Path, on_skip: OnSkip
) -> Iterator[Transcript]:
    """Yield the conversations, the oldest first; a session that was begun again has several."""
    query = f"SELECT {selected(_CONVERSATION, columns['conversations'])} FROM conversations ORDER BY conversation_id"  # noqa: S608
    rows = connection.execute(query).fetchall()
    times = Counter(row["session_id"] for row in rows)
    for row in rows:
        session = str(row["session_id"])
        name = f"{session}-{row['conversation_id']}" if times[row["session_id"]] > 1 else session
        messages, elsewhere = _messages(connection, columns, row["conversation_id"])
        if elsewhere:
            reason = f"{elsewhere} messages of {name} are references: what they say is in files beside the database"
            on_skip(Skipped(file=str(path), line=0, reason=reason))
        meta = {key: row[key] for key in ("title", "session_key") if row[key]}
        yield Transcript(name=name, format="lossless-claw", messages=messages, meta=meta)


def _messages(
    connection: sqlite3.Connection, columns: Mapping[str, set[str]], conversation: int
) -> tuple[list[Message], int]:
    """Return the messages of a conversation, and how many of them refer to a file."""
    parts: dict[int, list[sqlite3.Row]] = {}
    query = (
        f"SELECT {selected(_PART, columns['message_parts'])} FROM message_parts WHERE message_id IN"  # noqa: S608
        " (SELECT message_id FROM messages WHERE conversation_id = ?) ORDER BY message_id, ordinal"
    )
    for part in connection.execute(query, (conversation,)):
        parts.setdefault(part["message_id"], []).append(part)
    query = f"SELECT {selected(_MESSAGE, columns['messages'])} FROM messages WHERE conversation_id = ? ORDER BY seq"  # noqa: S608
    messages: list[Message] = []
    elsewhere = 0
    for row in connection.execute(query, (conversation,)):
        elsewhere += bool(row["large_content"])
        message = _message(row, parts.get(row["message_id"], ()))
        messages.append(timed(message, _utc(row["created_at"])))
    return messages, elsewhere


def _message(row: sqlite3.Row, parts: Sequence[sqlite3.Row]) -> Message:
    noted = [parsed(part["metadata"], dict) for part in parts]
    said = [one for one in map(_block, parts, noted) if one is not None]
    if row["role"] == "tool":
        return _result(row, parts, noted, said)
    message: Message = {"role": str(row["role"]), "content": said or str(row["content"])}
    if len(said) == 1 and said[0]["type"] == "text":
        message["content"] = said[0]["text"]
    elif said:
        message = _one(message)
    thinking = next((one["topLevelReasoningContent"] for one in noted if one.get("topLevelReasoningContent")), None)
    if thinking:
        message["reasoning_content"] = str(thinking)
    return message


def _result(
    row: sqlite3.Row, parts: Sequence[sqlite3.Row], noted: Sequence[dict[str, Any]], said: list[dict[str, Any]]
) -> Message:
    ids = (part["tool_call_id"] or note.get("toolCallId") for part, note in zip(parts, noted, strict=True))
    id_ = next((str(one) for one in ids if one), "")
    if any(block.get("type") == "image" for block in said):
        content: list[Any] = [{"type": "tool_result", "tool_use_id": id_, "content": said}]
        return _one({"role": "user", "content": content})
    return {"role": "tool", "tool_call_id": id_, "content": text_of({"content": said}) if said else str(row["content"])}


def _one(message: Message) -> Message:
    joined = Joined()
    joined.add(message)
    return joined.messages[0]


def _block(part: sqlite3.Row, noted: dict[str, Any]) -> dict[str, Any] | None:
    """Return a part as a block in Anthropic's format; None for one that only carries a note."""
    if noted.get("topLevelReasoningOnly"):
        return None
    raw = noted["raw"] if isinstance(noted.get("raw"), dict) else {}
    kind = str(raw.get("type") or noted.get("rawType") or part["part_type"])
    if kind in _CALLS or (part["part_type"] == "tool" and kind not in _RESULTS):
        given = raw.get("arguments", raw.get("input"))
        given = given if given is not None else _value(part["tool_input"])
        id_ = raw.get("id") or raw.get("call_id") or part["tool_call_id"]
        name = raw.get("name") or part["tool_name"]
        return {"type": "tool_use", "id": str(id_), "name": str(name), "input": _arguments(given)}
    if kind in _RESULTS:
        output = raw.get("output", raw.get("content", raw.get("text")))
        output = output if output is not None else _value(part["tool_output"]) or part["text_content"] or ""
        return {"type": "text", "text": _as_text(output)}
    if kind == "thinking":
        signature = raw.get("thinkingSignature") or raw.get("signature")
        thinking = str(raw.get("thinking") or part["text_content"] or "")
        return {"type": "thinking", "thinking": thinking, "signature": str(signature or "")}
    if kind == "image" and raw.get("data"):
        source = {"type": "base64", "media_type": str(raw.get("mimeType")), "data": str(raw["data"])}
        return {"type": "image", "source": source}
    text = raw.get("text") or part["text_content"]
    return {"type": "text", "text": str(text) if text else json.dumps(raw, ensure_ascii=False) if raw else ""}


def _value(text: Any) -> Any:
    """Return what a column holds as JSON; a text that is none stays as it is."""
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _arguments(given: Any) -> dict[str, Any]:
    value = _value(given)
    return value if isinstance(value, dict) else {} if value in (None, "") else {"input": value}


def _as_text(output: Any) -> str:
    if isinstance(output, list):
        return text_of({"content": output})
    return output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)


def _utc(time: Any) -> Any:
    """Return a time that SQLite wrote, in UTC and without saying so."""
    return f"{time.replace(' ', 'T')}+00:00" if isinstance(time, str) and " " in time else time
