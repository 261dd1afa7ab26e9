"""A capability for Pydantic AI's agents: what is sent to the model is folded, the agent's history stays as it is.

    folding = FoldingCapability(lambda name: Session.open(name, model="gpt-5.4", engine="lcm"))
    agent = Agent("openai:gpt-5.4", capabilities=[folding])
    result = await agent.run("Fix the failing tests", conversation_id="my-chat")

Every conversation of the agent is one of that name.
"""

from __future__ import annotations

import asyncio
import base64
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from pydantic_ai.capabilities import AbstractCapability  # type: ignore[import-not-found]
from pydantic_ai.exceptions import RetryModelRequest  # type: ignore[import-not-found]
from pydantic_ai.messages import (  # type: ignore[import-not-found]
    BinaryContent,
    CompactionPart,
    ImageUrl,
    ModelRequest,
    ModelResponse,
    RetryFeedbackPart,
    RetryPromptPart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.tools import Tool  # type: ignore[import-not-found]
from pydantic_ai.toolsets import FunctionToolset  # type: ignore[import-not-found]

from leporello.adapters.history import NamedHistories, usage_of
from leporello.lcm.tools import SCHEMAS
from leporello.messages import role_of, text_of, tool_calls_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from leporello.adapters.history import HistorySession
    from leporello.messages import Message
    from leporello.session import Session

Place: TypeAlias = tuple[int, int]
"""Where a message of ours is in the framework's history: the index of the message, and that of the part in it."""


class FoldingCapability(AbstractCapability):  # type: ignore[misc] # Pydantic AI is not installed where types are checked
    """Folds the messages of each request, answers the tools of the engine, and recovers once from an overflow.

    open_session   opens the session of a conversation, by its name
    recall         whether the model gets the tools of the lossless engine; False with another engine
    """

    def __init__(self, open_session: Callable[[str], Session], *, recall: bool = True) -> None:
        super().__init__()
        self._conversations = NamedHistories(open_session)
        self._tools = [self._recall_tool(schema) for schema in SCHEMAS] if recall else []

    def session(self, conversation: str) -> Session:
        """Return the session of a conversation: what it used and cost, its engine, its branches."""
        return self._conversations[conversation].session

    def close(self) -> None:
        """Close the sessions."""
        self._conversations.close()

    def get_toolset(self) -> Any:
        """Give the model the engine's tools."""
        return FunctionToolset(self._tools) if self._tools else None

    async def prepare_model_request(self, ctx: Any, request_context: Any) -> Any:
        """Send the folded messages."""
        history = self._conversations[ctx.conversation_id]
        messages = await asyncio.to_thread(self._folded, history, request_context, ctx.run_id)
        return replace(request_context, messages=messages)

    async def after_model_request(self, ctx: Any, *, request_context: Any, response: Any) -> Any:
        """Record the answer."""
        history = self._conversations[ctx.conversation_id]
        used = response.usage
        usage = usage_of(used.input_tokens, used.output_tokens, used.cache_read_tokens, used.cache_write_tokens)
        await asyncio.to_thread(history.record, _answer(response), usage, by=ctx.run_id)
        return response

    async def on_model_request_error(self, ctx: Any, *, request_context: Any, error: Exception) -> NoReturn:
        """Let the request be folded and sent again if it was too long for the provider."""
        history = self._conversations[ctx.conversation_id]
        if await asyncio.to_thread(history.recover, error.__cause__ or error, by=ctx.run_id):
            raise RetryModelRequest from error
        raise error

    def _folded(self, history: HistorySession, request: Any, run: str) -> list[Any]:
        given = [(place, message) for place, message in _messages(request.messages) if message]
        told = request.model_request_parameters
        instructions = [part.content for part in told.instruction_parts or ()]
        system = "\n\n".join([*(part.content for part in _system(request.messages)), *instructions])
        own = {tool.name for tool in self._tools}
        tools = [_openai_tool(tool) for tool in told.function_tools if tool.name not in own]
        sent = history.request([message for _, message in given], tools, system, by=run)
        return _rebuilt(request.messages, [(message, None if at is None else given[at][0]) for message, at in sent])

    def _recall_tool(self, schema: dict[str, Any]) -> Any:
        async def answered(ctx: Any, **arguments: Any) -> str:
            history = self._conversations[ctx.conversation_id]
            return await asyncio.to_thread(history.answer, ctx.tool_call_id, schema["name"], arguments)

        return Tool.from_schema(answered, schema["name"], schema["description"], schema["parameters"], takes_ctx=True)


def _openai_tool(tool: Any) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description or "", "parameters": tool.parameters_json_schema}
    return {"type": "function", "function": function}


def _system(messages: Sequence[Any]) -> list[Any]:
    """Return the system prompts at the very beginning, which stay there whatever is folded."""
    first = messages[0].parts if messages and isinstance(messages[0], ModelRequest) else ()
    return [part for part in first if isinstance(part, SystemPromptPart)]


def _messages(history: Sequence[Any]) -> Iterator[tuple[Place, Message | None]]:
    """Yield what each part of the history says in OpenAI's format; None for one that says nothing by itself."""
    for index, message in enumerate(history):
        if isinstance(message, ModelResponse):
            yield (index, 0), _answer(message)
            continue
        for number, part in enumerate(message.parts):
            leads = index == 0 and isinstance(part, SystemPromptPart)
            yield (index, number), None if leads else _said(part)


def _said(part: Any) -> Message | None:
    match part:
        case SystemPromptPart():
            return {"role": "system", "content": part.content}
        case UserPromptPart():
            return {"role": "user", "content": _content(part.content)}
        case ToolReturnPart() | RetryPromptPart(tool_name=str()):
            text = part.model_response_str() if isinstance(part, ToolReturnPart) else part.model_response()
            return {"role": "tool", "tool_call_id": part.tool_call_id, "content": text}
        case RetryPromptPart() | RetryFeedbackPart():
            return {"role": "user", "content": part.model_response()}
        case CompactionPart():
            return {"role": "user", "content": part.content or ""}
        case _:
            return None


def _content(content: Any) -> Any:
    return content if isinstance(content, str) else [_content_part(one) for one in content]


def _content_part(one: Any) -> dict[str, Any]:
    if isinstance(one, str):
        return {"type": "text", "text": one}
    if isinstance(one, ImageUrl):
        return {"type": "image_url", "image_url": {"url": one.url}}
    if isinstance(one, BinaryContent):
        address = f"data:{one.media_type};base64,{base64.b64encode(one.data).decode()}"
        if one.is_image:
            return {"type": "image_url", "image_url": {"url": address}}
        return {"type": "file", "file": {"filename": one.identifier, "file_data": address}}
    return {"type": "text", "text": getattr(one, "content", None) or f"[{one.kind}: {getattr(one, 'url', '')}]"}


def _answer(response: Any) -> Message:
    """Return an answer of the model; what a provider's own tools did is in the framework's history alone."""
    parts = response.parts
    message: Message = {"role": "assistant", "content": "".join(p.content for p in parts if isinstance(p, TextPart))}
    if thoughts := [part.content for part in parts if isinstance(part, ThinkingPart) and part.content]:
        message["reasoning_content"] = "\n\n".join(thoughts)
    if calls := [part for part in parts if isinstance(part, ToolCallPart)]:
        message["tool_calls"] = [
            {
                "id": call.tool_call_id,
                "type": "function",
                "function": {"name": call.tool_name, "arguments": call.args_as_json_str()},
            }
            for call in calls
        ]
    return message


def _rebuilt(history: Sequence[Any], sent: Sequence[tuple[Message, Place | None]]) -> list[Any]:
    """Return the framework's messages to send: those of its history, and new ones for what the engine wrote."""
    names = {
        call.tool_call_id: call.tool_name for one in history for call in one.parts if isinstance(call, ToolCallPart)
    }
    requests: list[Any] = list(_system(history))
    whose: set[int] = {0} if requests else set()
    result: list[Any] = []

    def close() -> None:
        if requests:
            result.append(_request(history, requests, whose))
        requests.clear()
        whose.clear()

    for message, place in sent:
        if place is not None and isinstance(history[place[0]], ModelResponse):
            close()
            result.append(history[place[0]])
        elif role_of(message) == "assistant":
            close()
            result.append(_response(message))
        elif place is None:
            requests.append(_part(message, names))
        else:
            whose.add(place[0])
            requests.append(history[place[0]].parts[place[1]])
    close()
    return result


def _request(history: Sequence[Any], parts: Sequence[Any], whose: set[int]) -> Any:
    """Return one request with these parts; with all that the newest one of the history has that they come from.

    A part that says nothing by itself, such as a change of the settings, stays with its request.
    """
    if not whose:
        return ModelRequest(parts=list(parts))
    newest = history[max(whose)]
    known = {id(part) for part in parts}
    silent = [part for part in newest.parts if _said(part) is None]
    if known == {id(part) for part in newest.parts} - {id(part) for part in silent}:
        return newest
    return replace(newest, parts=[*parts, *silent])


def _part(message: Message, names: dict[str, str]) -> Any:
    """Return the part for a message that the engine wrote or changed."""
    text = text_of(message)
    if role_of(message) == "tool":
        call = str(message.get("tool_call_id", ""))
        return ToolReturnPart(tool_name=names.get(call, ""), content=text, tool_call_id=call)
    return SystemPromptPart(text) if role_of(message) == "system" else UserPromptPart(text)


def _response(message: Message) -> Any:
    text = text_of(message)
    calls = [
        ToolCallPart(tool_name=call.name, args=call.arguments, tool_call_id=call.id) for call in tool_calls_of(message)
    ]
    return ModelResponse(parts=[*([TextPart(text)] if text else []), *calls])
