"""Databases of hermes-lcm: a table of messages, each stored once and kept; nodes are summaries of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from leporello.transcripts.columns import parsed, selected
from leporello.transcripts.model import Skipped, Transcript, timed

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from leporello.messages import Message
    from leporello.transcripts.model import OnSkip

_MESSAGE: Final = (
    *("store_id", "source", "conversation_id", "role", "content", "tool_call_id", "tool_calls", "tool_name"),
    "timestamp",
)
_ELSEWHERE: Final = ("[Externalized ", "[GC'd externalized ")
"""How a message begins whose content is in a file beside the database."""


def knows(columns: Mapping[str, set[str]]) -> bool:
    """Tell whether these are the tables of such a database."""
    return {"store_id", "session_id", "tool_calls"} <= columns.get("messages", set())


def read(
    connection: sqlite3.Connection, columns: Mapping[str, set[str]], path: Path, on_skip: OnSkip
) -> Iterator[Transcript]:
    """Yield the sessions, the oldest first."""
    sessions = connection.execute("SELECT session_id FROM messages GROUP BY session_id ORDER BY min(store_id)")
    wanted = selected(_MESSAGE, columns["messages"])
    for (session,) in sessions.fetchall():
        query = f"SELECT {wanted} FROM messages WHERE session_id = ? ORDER BY store_id"  # noqa: S608 - names of our own
        messages: list[Message] = []
        meta: dict[str, Any] = {}
        for row in connection.execute(query, (session,)):
            messages.append(_message(row))
            meta |= {key: row[key] for key in ("source", "conversation_id") if row[key] and key not in meta}
        elsewhere = sum(str(message.get("content")).startswith(_ELSEWHERE) for message in messages)
        if elsewhere:
            reason = f"{elsewhere} messages of {session} are references: what they say is in files beside the database"
            on_skip(Skipped(file=str(path), line=0, reason=reason))
        yield Transcript(name=str(session), format="hermes-lcm", messages=messages, meta=meta)


def _message(row: sqlite3.Row) -> Message:
    message: Message = {"role": str(row["role"]), "content": _content(row["content"])}
    if calls := parsed(row["tool_calls"], list):
        message["tool_calls"] = calls
    if row["tool_call_id"]:
        message["tool_call_id"] = str(row["tool_call_id"])
    return timed(message, row["timestamp"])


def _content(text: Any) -> Any:
    """Return the parts of a message that came as a list; they are stored as JSON with sorted keys."""
    if not isinstance(text, str) or not text.startswith("[{"):
        return text
    parts = parsed(text, list)
    are_parts = all(isinstance(part, dict) and isinstance(part.get("type"), str) for part in parts)
    return parts if are_parts and json.dumps(parts, ensure_ascii=False, sort_keys=True) == text else text
