"""What the hooks of plugins are told during a turn, and what of their answers is used; the tools of plugins."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from leporello.agent.tools.tool import Tool, simple_tool
from leporello.engine import call_fitting
from leporello.messages import text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from leporello.messages import ToolCall
    from leporello.plugins.context import PluginTool
    from leporello.plugins.hooks import Hooks
    from leporello.session import Session


class TurnHooks:
    """Calls the hooks of plugins for one agent."""

    def __init__(self, hooks: Hooks, session: Session) -> None:
        self._hooks = hooks
        self._session = session
        self._began = False
        self._asked = ""

    def begin(self, content: str | list[dict[str, Any]]) -> str | list[dict[str, Any]]:
        """Tell that the user said something; returns it, with the context that hooks add at its end."""
        if not self._began:
            self._began = True
            self._call("on_session_start")
        self._asked = text_of({"role": "user", "content": content})
        if "pre_llm_call" not in self._hooks:
            return content
        history = deepcopy(self._session.window)
        is_first = not any(message["role"] == "user" for message in history)
        answers = self._call(
            "pre_llm_call", user_message=self._asked, conversation_history=history, is_first_turn=is_first
        )
        added = [text for answer in answers if (text := _context(answer))]
        if not added:
            return content
        if isinstance(content, str):
            return "\n\n".join([content, *added])
        return [*content, *({"type": "text", "text": text} for text in added)]

    def before_tool(self, call: ToolCall) -> str:
        """Tell which tool is called; returns why a hook refuses it, "" if none does."""
        answers = self._call("pre_tool_call", **_told(call))
        refusals = [one for one in answers if isinstance(one, dict) and one.get("action") == "block"]
        return str(refusals[0].get("message") or "no reason was given.") if refusals else ""

    def after_tool(self, call: ToolCall, result: str, seconds: float) -> None:
        """Tell what a tool returned."""
        self._call("post_tool_call", **_told(call), result=result, duration_ms=round(seconds * 1_000))

    def end(self, *, completed: bool, interrupted: bool) -> None:
        """Tell that the turn is over."""
        if completed and "post_llm_call" in self._hooks:
            self._call(
                "post_llm_call",
                user_message=self._asked,
                assistant_response=self._session.answer,
                conversation_history=deepcopy(self._session.window),
            )
        self._call("on_session_end", completed=completed, interrupted=interrupted)

    def _call(self, event: str, **values: Any) -> list[Any]:
        if event not in self._hooks:
            return []
        common = {"session_id": self._session.id, "model": self._session.model, "platform": "agent", "task_id": ""}
        return self._hooks.call(event, **common, **values)


def plugin_tools(tools: Iterable[PluginTool], taken: Iterable[Tool] = ()) -> list[Tool]:
    """Return the tools of plugins for an agent; one whose name is taken is left out.

    The user is not asked before they run: enabling a plugin means running its code.
    """
    names = {tool.name for tool in taken}
    return [
        simple_tool(tool.name, tool.description, _runs(tool.handler), tool.parameters)
        for tool in tools
        if tool.name not in names
    ]


def _runs(handler: Callable[..., Any]) -> Callable[..., str]:
    def run(**arguments: Any) -> str:
        answer = call_fitting(handler, arguments)
        return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False, default=str)

    return run


def _told(call: ToolCall) -> dict[str, Any]:
    return {"tool_name": call.name, "args": call.arguments, "tool_call_id": call.id}


def _context(answer: Any) -> str:
    """Return what a hook adds to the user's message: a text, or one in `context`."""
    text = answer.get("context") if isinstance(answer, dict) else answer
    return text.strip() if isinstance(text, str) else ""
