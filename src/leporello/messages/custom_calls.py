"""Calls of custom tools, which take a text: as function calls, in which form everything here reads them, and back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from leporello.messages.types import Message

INPUT: Final = "input"
_NOTE: Final = "_custom"


def function_of(call: dict[str, Any]) -> dict[str, Any] | None:
    """Return the call of a custom tool as one of a function, noted as such; None for any other call."""
    custom = call.get("custom")
    if not isinstance(custom, dict) or not isinstance(custom.get(INPUT), str) or isinstance(call.get("function"), dict):
        return None
    rest = {key: value for key, value in call.items() if key not in ("custom", "type")}
    arguments = json.dumps({INPUT: custom[INPUT]}, ensure_ascii=False)
    return {**rest, "type": "function", "function": {"name": custom.get("name"), "arguments": arguments}, _NOTE: True}


def with_function_calls(message: Any) -> Any:
    """Return a message with the calls of custom tools as calls of functions; anything else unchanged."""
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    if not isinstance(calls, list):
        return message
    return {**message, "tool_calls": [(isinstance(call, dict) and function_of(call)) or call for call in calls]}


def with_custom_calls(message: Message) -> Message:
    """Return a message with the calls of custom tools as its provider writes them; the same one without any."""
    calls: Any = message.get("tool_calls")
    if not isinstance(calls, list) or not any(isinstance(call, dict) and call.get(_NOTE) for call in calls):
        return message
    return cast("Message", {**message, "tool_calls": [_custom_of(call) for call in calls]})


def _custom_of(call: Any) -> Any:
    """Return a call that is noted as one of a custom tool in that form; any other one, and a broken one, unchanged."""
    try:
        function = call["function"] if call.get(_NOTE) else {}
        given = json.loads(function["arguments"])[INPUT]
        custom = {"name": function["name"], INPUT: given}
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError):
        return call
    rest = {key: value for key, value in call.items() if key not in ("function", "type", _NOTE)}
    return {**rest, "type": "custom", "custom": custom} if isinstance(given, str) else call
