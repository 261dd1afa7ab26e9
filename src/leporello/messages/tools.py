"""Tool schemas: OpenAI's format to Anthropic's and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leporello.messages.types import ANTHROPIC_NOTE

if TYPE_CHECKING:
    from collections.abc import Sequence

_SAME = ("description", "strict")


def tools_to_anthropic(tools: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return OpenAI tools, wrapped or bare, as Anthropic's; tools that are Anthropic's already pass as they are."""
    return [_to_anthropic(tool) for tool in tools]


def _to_anthropic(tool: dict[str, Any]) -> dict[str, Any]:
    function = tool.get("function") if tool.get("type") == "function" else tool if "parameters" in tool else None
    if not isinstance(function, dict):
        return {key: value for key, value in tool.items() if not key.startswith("_")}
    schema = function.get("parameters") or {"type": "object", "properties": {}}
    converted = {"name": function.get("name"), "input_schema": schema}
    converted.update({key: function[key] for key in _SAME if function.get(key) is not None})
    converted.update(tool.get(ANTHROPIC_NOTE) or {})
    if tool.get("cache_control"):
        converted["cache_control"] = tool["cache_control"]
    return converted


def tools_from_anthropic(tools: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return Anthropic tools as OpenAI's; tools that the provider runs itself pass as they are."""
    return [_from_anthropic(tool) for tool in tools]


def _from_anthropic(tool: dict[str, Any]) -> dict[str, Any]:
    if "input_schema" not in tool:
        return dict(tool)
    function = {"name": tool.get("name"), "parameters": tool["input_schema"]}
    function.update({key: tool[key] for key in _SAME if key in tool})
    converted: dict[str, Any] = {"type": "function", "function": function}
    known = {"name", "input_schema", "cache_control", *_SAME}
    if extra := {key: value for key, value in tool.items() if key not in known}:
        converted[ANTHROPIC_NOTE] = extra
    if "cache_control" in tool:
        converted["cache_control"] = tool["cache_control"]
    return converted
