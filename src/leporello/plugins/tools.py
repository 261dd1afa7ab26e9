"""The tools that an engine offers to the model: put into the tool list, and answered."""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING, Any

from leporello.engine import ForeignCall, call_fitting
from leporello.errors import PluginWarning

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leporello.engine import ContextEngine
    from leporello.messages import Message


def merge_tools(
    tools: Iterable[dict[str, Any]] | None, engine: ContextEngine
) -> tuple[list[dict[str, Any]], frozenset[str]]:
    """Return the tools with the engine's behind them, and the names of those that the engine answers.

    A schema may be bare or wrapped as `{"type": "function", …}`. One without a name is left out, and so is one whose
    name is taken: calls of that name go where they went before. Both are said in a PluginWarning.
    """
    merged = list(tools or ())
    taken = {_name(tool) for tool in merged}
    owned: set[str] = set()
    for schema in engine.get_tool_schemas():
        name = _name(schema)
        if not name:
            _warn(f"engine '{engine.name}' offers a tool without a name; it is left out: {str(schema)[:100]}")
        elif name in taken:
            _warn(
                f"engine '{engine.name}' offers a tool '{name}', but there is one of that name already; it is left out"
            )
        else:
            merged.append(schema if "function" in schema else {"type": "function", "function": schema})
            taken.add(name)
            owned.add(name)
    return merged, frozenset(owned)


def dispatch(engine: ContextEngine, name: str, args: dict[str, Any], messages: list[Message], **more: Any) -> str:
    """Let the engine answer a call of one of its tools; a failure becomes an error that the model can read."""
    call = ForeignCall()
    try:
        with call:
            answer: Any = call_fitting(engine.handle_tool_call, name, args, messages=messages, **more)
            return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False, default=str)
    except BaseException as error:
        if not call.blames(error):
            raise
        return json.dumps({"error": f"Tool '{name}' failed: {type(error).__name__}: {error}"}, ensure_ascii=False)


def _name(tool: Any) -> str:
    """Return the name of a bare, an OpenAI-wrapped or an Anthropic tool; "" when there is none."""
    if not isinstance(tool, dict):
        return ""
    inner = tool.get("function")
    name = (inner if isinstance(inner, dict) else tool).get("name")
    return name if isinstance(name, str) else ""


def _warn(text: str) -> None:
    warnings.warn(text, PluginWarning, stacklevel=3)
