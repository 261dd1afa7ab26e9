"""Tool schemas as the Responses API takes them: a function is written flat."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


def tools_to_responses(tools: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return chat tools as the Responses API's; tools that are so already pass as they are."""
    return [_flat(tool) for tool in tools]


def _flat(tool: dict[str, Any]) -> dict[str, Any]:
    function = tool.get("function")
    if not isinstance(function, dict):
        bare = {"type": "function", "strict": False, **tool} if "type" not in tool and "parameters" in tool else tool
        return {key: value for key, value in bare.items() if not key.startswith("_")}
    rest = {key: value for key, value in tool.items() if key not in ("type", "function") and not key.startswith("_")}
    return {"type": "function", "strict": False, **function, **rest}
