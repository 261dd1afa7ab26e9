"""Messages to other programs' formats: what a provider takes, and a session log that Claude Code goes on with."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid5

from leporello.messages import anthropic_request, is_system, leading_systems, repair, role_of, text_of, without_private
from leporello.messages.fixed import SYSTEM_TEXT
from leporello.transcripts.model import seconds_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from leporello.messages import Message

_UNSENT: Final = frozenset({"timestamp", "annotations"})
_SPACE: Final = UUID("5d0a54a3-6c5e-4a5c-9d0f-0c1d1b2f9a77")
_VERSION: Final = "2.1.0"
"""The version of Claude Code whose log format this is."""


def openai_conversation(messages: Sequence[Message]) -> dict[str, Any]:
    """Return messages as a chat completion takes them; what a provider would refuse is repaired."""
    valid = repair(list(messages)).messages
    sent = [{name: value for name, value in without_private(one).items() if name not in _UNSENT} for one in valid]
    return {"messages": sent}


def anthropic_conversation(messages: Sequence[Message]) -> dict[str, Any]:
    """Return messages as Anthropic's API takes them, the system prompt beside them; what is invalid is repaired."""
    return anthropic_request(repair(list(messages)).messages)


def claude_code_session(name: str) -> str:
    """Return the id of a session for a conversation: its name if that is such an id, else one made of the name."""
    try:
        return str(UUID(name))
    except ValueError:
        return str(uuid5(_SPACE, name))


def claude_code_folder(project: str) -> str:
    """Return how Claude Code calls the folder, below `projects`, in which it keeps the logs of a project."""
    return re.sub(r"[^a-zA-Z0-9]", "-", project)


def claude_code_log(messages: Sequence[Message], session: str, project: str, model: str = "") -> Iterator[str]:
    """Write a session log of Claude Code, one record on a line; the system prompt is left out, as it is in its logs."""
    valid = repair(list(messages)).messages
    parent: str | None = None
    time = 0.0
    for number, message in enumerate(valid[leading_systems(valid) :]):
        time = max(seconds_of(message) or 0.0, time)
        uuid = str(uuid5(UUID(session), str(number)))
        yield json.dumps(
            {
                "parentUuid": parent,
                "isSidechain": False,
                "userType": "external",
                "cwd": project,
                "sessionId": session,
                "version": _VERSION,
                "type": "assistant" if role_of(message) == "assistant" else "user",
                "message": _said(message, f"msg_{uuid.replace('-', '')[:24]}", model),
                "uuid": uuid,
                "timestamp": datetime.fromtimestamp(time, UTC)
                .isoformat(timespec="milliseconds")
                .replace("+00:00", "Z"),
            }
        )
        parent = uuid


def _said(message: Message, id_: str, model: str) -> dict[str, Any]:
    if is_system(message):
        return {"role": "user", "content": SYSTEM_TEXT.format(text_of(message))}
    (turn,) = anthropic_request([message])["messages"]
    if turn["role"] == "user":
        return {"role": "user", "content": turn["content"]}
    content = turn["content"] if isinstance(turn["content"], list) else [{"type": "text", "text": turn["content"]}]
    content = [block for block in content if block.get("type") != "thinking" or block.get("signature")]
    calls = any(block.get("type") == "tool_use" for block in content)
    usage = {"input_tokens": 0, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 0}
    return {
        "id": id_,
        "type": "message",
        "role": "assistant",
        "model": model or "unknown",
        "content": content,
        "stop_reason": "tool_use" if calls else "end_turn",
        "stop_sequence": None,
        "usage": usage,
    }
