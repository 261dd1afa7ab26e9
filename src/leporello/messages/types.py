"""The shape of a conversation, and safe ways to read it.

A message is a plain dict in OpenAI's chat format. All its fields are kept, known or not:

    role               "system" | "developer" | "user" | "assistant" | "tool"
    content            text, a list of parts, or None (an assistant that only calls tools)
    name, timestamp    who said it, when (ISO-8601)
    tool_calls         on assistants: [{"id", "type": "function", "function": {"name", "arguments": "<JSON>"}}]
                       a custom tool's call as it comes is {"id", "type": "custom", "custom": {"name", "input"}}
    tool_call_id       on tools: the call that this answers
    reasoning_content  on assistants: thinking as plain text (unsigned)
    thinking_blocks    on assistants: thinking as signed blocks, when content is text

The system messages that a list begins with are the system prompt. One behind them is a message like any other and
stands where it was said.

A part is {"type": "text", "text"}, {"type": "image_url", "image_url": {"url"}}, {"type": "input_audio" | "file" |
"refusal", ...}, or on assistants {"type": "thinking", "thinking", "signature"} and
{"type": "redacted_thinking", "data"}.

Keys that begin with an underscore are private notes of a host; they and `cache_control` are no part of what was said.
The readers below never raise, whatever a broken message holds.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypedDict

from leporello.messages.custom_calls import function_of

if TYPE_CHECKING:
    from collections.abc import Sequence

Part: TypeAlias = dict[str, Any]
"""A part of a message: text, an image, a file, a sound or thinking."""

Dialect: TypeAlias = Literal["openai", "anthropic", "responses"]
"""The format of requests and answers."""


class Message(TypedDict, total=False):
    """A message: the fields that have a meaning here. A stored message keeps others too."""

    role: str
    content: Any
    name: str
    timestamp: str | float
    tool_calls: list[dict[str, Any]]
    tool_call_id: str
    reasoning_content: str
    thinking_blocks: list[Part]
    refusal: str | None
    cache_control: dict[str, Any]
    _anthropic: dict[str, Any]
    _responses: dict[str, Any]


SYSTEM_ROLES = frozenset({"system", "developer"})
ROLES = SYSTEM_ROLES | {"user", "assistant", "tool"}
THINKING_TYPES = frozenset({"thinking", "redacted_thinking"})
SEALED_TYPES = THINKING_TYPES | {
    *("reasoning", "compaction", "context_compaction", "program", "program_output", "item_reference"),
    *("additional_tools", "compaction_trigger", "configuration_update"),
}
"""Parts that only their provider can read or that others hang on: they stay as they are, or go with their message."""

ANTHROPIC_NOTE: Final = "_anthropic"  # the private key for what OpenAI's format has no place for
RESPONSES_NOTE: Final = "_responses"  # the same for items of the Responses API
IMAGE_TYPES = frozenset({"image_url", "image", "input_image"})


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """A tool call as its receiver needs it: parsed arguments, and the raw text they came from."""

    id: str
    name: str
    arguments: dict[str, Any]
    raw: str


def role_of(message: Any) -> str:
    """Return the role, or "" when there is none."""
    role = message.get("role") if isinstance(message, dict) else None
    return role if isinstance(role, str) else ""


def is_system(message: Any) -> bool:
    """Tell whether this is a system (or developer) message."""
    return role_of(message) in SYSTEM_ROLES


def leading_systems(messages: Sequence[Any]) -> int:
    """Return how many system messages a list begins with: those are the system prompt."""
    return next((at for at, message in enumerate(messages) if not is_system(message)), len(messages))


def last_speaker(messages: Sequence[Any]) -> int:
    """Return the place of the newest message that is not a system message, -1 without one."""
    return next((at for at in range(len(messages) - 1, -1, -1) if not is_system(messages[at])), -1)


def newest_of(messages: Sequence[Any], role: str) -> int:
    """Return the place of the newest message of a role, -1 without one."""
    return next((at for at in range(len(messages) - 1, -1, -1) if role_of(messages[at]) == role), -1)


def parts_of(message: Any) -> list[Part]:
    """Return the content as a list of parts; text becomes one text part, anything unreadable is left out."""
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    if not isinstance(content, list):
        return []
    return [{"type": "text", "text": p} if isinstance(p, str) else p for p in content if isinstance(p, (dict, str))]


def text_of(message: Any) -> str:
    """Return what a person would read: the text parts of the content, one per line, without thinking."""
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return content
    texts = (part.get("text") for part in parts_of(message) if not _is_thinking(part))
    return "\n".join(text for text in texts if isinstance(text, str))


def _is_thinking(part: Part) -> bool:
    kind = part.get("type")
    return isinstance(kind, str) and kind in THINKING_TYPES


def call_ids_of(message: Any) -> list[str]:
    """Return the ids of the tool calls, "" where there is none, without reading their arguments."""
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    ids = [call.get("id") for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    return [id_ if isinstance(id_, str) else "" for id_ in ids]


def tool_calls_of(message: Any) -> list[ToolCall]:
    """Return the tool calls that can be read; unreadable arguments become {}, with the text kept in `raw`."""
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    return [_tool_call(call) for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def _tool_call(call: dict[str, Any]) -> ToolCall:
    call = function_of(call) or call
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    name, raw = function.get("name"), function.get("arguments")
    raw = _written(raw) if isinstance(raw, dict) else raw
    raw = raw if isinstance(raw, str) else ""
    return ToolCall(
        id=call["id"] if isinstance(call.get("id"), str) else "",
        name=name if isinstance(name, str) else "",
        arguments=_parsed(raw),
        raw=raw,
    )


def _written(arguments: dict[Any, Any]) -> str:
    """Return arguments as JSON; "" for those that hold themselves, are nested too deeply or cannot be told as text."""
    try:
        return json.dumps(arguments, ensure_ascii=False, default=str, skipkeys=True)
    except Exception:  # noqa: BLE001 - `str` of a foreign object may raise anything, and a reader must not
        return ""


def _parsed(raw: str) -> dict[str, Any]:
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def tool_result(call: ToolCall | str, content: str) -> Message:
    """Return the message that answers a tool call."""
    return {"role": "tool", "tool_call_id": call if isinstance(call, str) else call.id, "content": content}
