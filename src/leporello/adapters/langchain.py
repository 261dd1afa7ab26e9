"""A middleware for LangChain's agents: what is sent to the model is folded, the agent's own state stays as it is.

    middleware = FoldingMiddleware(lambda thread: Session.open(thread, model="gpt-5.4", engine="lcm"))
    agent = create_agent(model, tools=[...], middleware=[middleware], checkpointer=...)

Every thread of the agent is a conversation of that name.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from langchain.agents.middleware import AgentMiddleware  # type: ignore[import-not-found]
from langchain_core.messages import AIMessage, ToolMessage, convert_to_messages, convert_to_openai_messages  # type: ignore[import-not-found]
from langchain_core.tools import StructuredTool  # type: ignore[import-not-found]
from langchain_core.utils.function_calling import convert_to_openai_tool  # type: ignore[import-not-found]
from langgraph.config import get_config  # type: ignore[import-not-found]

from leporello.adapters.history import HistorySession, NamedHistories, usage_of
from leporello.lcm.tools import SCHEMAS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from leporello.messages import Message
    from leporello.session import Session

DEFAULT_THREAD = "langchain"


class FoldingMiddleware(AgentMiddleware):  # type: ignore[misc] # LangChain is not installed where types are checked
    """Folds the messages of each request, answers the tools of the engine, and recovers once from an overflow.

    open_session   opens the session of a thread, by its name
    recall         whether the model gets the tools of the lossless engine; False with another engine
    """

    def __init__(self, open_session: Callable[[str], Session], *, recall: bool = True) -> None:
        super().__init__()
        self._threads = NamedHistories(open_session)
        self.tools: list[Any] = [_recall_tool(schema) for schema in SCHEMAS] if recall else []

    def session(self, thread: str = DEFAULT_THREAD) -> Session:
        """Return the session of a thread: what it used and cost, its engine, its branches."""
        return self._threads[thread].session

    def close(self) -> None:
        """Close the sessions."""
        self._threads.close()

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Send the folded messages; once more if they are still too long for the provider."""
        by = object()
        try:
            response = handler(self._folded(request, by))
        except Exception as error:
            if not self._here().recover(error, by=by):
                raise
            response = handler(self._folded(request, by))
        self._record(response, by)
        return response

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """Do the same, with the work of the session in a thread beside the loop."""
        by = object()
        try:
            response = await handler(await asyncio.to_thread(self._folded, request, by))
        except Exception as error:
            if not await asyncio.to_thread(self._here().recover, error, by=by):
                raise
            response = await handler(await asyncio.to_thread(self._folded, request, by))
        await asyncio.to_thread(self._record, response, by)
        return response

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Return the engine's answer to a call of its own tools."""
        answer = self._answered(request)
        return handler(request) if answer is None else answer

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """Do the same."""
        answer = await asyncio.to_thread(self._answered, request)
        return await handler(request) if answer is None else answer

    def _folded(self, request: Any, by: object) -> Any:
        here = self._here()
        system = "" if request.system_message is None else request.system_message.text
        tools = [convert_to_openai_tool(tool) for tool in request.tools if tool not in self.tools]
        sent = here.request(_openai(request.messages), tools, system, by=by)
        messages = [
            convert_to_messages([message])[0] if place is None else request.messages[place] for message, place in sent
        ]
        return request.override(messages=messages)

    def _record(self, response: Any, by: object) -> None:
        results = [response] if isinstance(response, AIMessage) else response.result
        answer = next(message for message in results if isinstance(message, AIMessage))
        self._here().record(_openai([answer])[0], _usage(answer.usage_metadata), by=by)

    def _answered(self, request: Any) -> Any:
        """Return the engine's answer to a call; None if it is a call of another tool."""
        call = request.tool_call
        if call["name"] not in {tool.name for tool in self.tools}:
            return None
        answer = self._here().answer(call["id"], call["name"], call["args"])
        return ToolMessage(answer, tool_call_id=call["id"], name=call["name"])

    def _here(self) -> HistorySession:
        """Return the session of the thread that is running."""
        return self._threads[str(get_config().get("configurable", {}).get("thread_id") or DEFAULT_THREAD)]


def _recall_tool(schema: dict[str, Any]) -> Any:
    def never(**_: Any) -> str:
        raise AssertionError("the middleware answers this tool")

    return StructuredTool(
        name=schema["name"], description=schema["description"], args_schema=schema["parameters"], func=never
    )


def _openai(messages: Sequence[Any]) -> list[Message]:
    return cast("list[Message]", convert_to_openai_messages(list(messages)))


def _usage(usage: Any) -> dict[str, Any] | None:
    if not usage:
        return None
    cache = usage.get("input_token_details") or {}
    return usage_of(
        usage["input_tokens"], usage["output_tokens"], cache.get("cache_read", 0), cache.get("cache_creation", 0)
    )
