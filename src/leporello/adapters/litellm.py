"""A callback for LiteLLM: what `acompletion` sends is folded; the list of the caller stays as it is.

    folding = FoldingCallback(lambda name: Session.open(name, model="gpt-5.4", engine="lcm"))
    litellm.callbacks.append(folding)
    answer = await litellm.acompletion(
        model="gpt-5.4", messages=messages, tools=[*tools, *folding.tools], metadata={"session_id": "my-chat"}
    )

A request without a `session_id` is sent as it is.
"""

from __future__ import annotations

import asyncio
from itertools import takewhile
from typing import TYPE_CHECKING, Any, cast

from litellm.integrations.custom_logger import CustomLogger  # type: ignore[import-not-found]

from leporello.adapters.history import NamedHistories, usage_of
from leporello.lcm.tools import SCHEMAS
from leporello.messages import is_system, text_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from leporello.adapters.history import HistorySession
    from leporello.messages import Message
    from leporello.session import Session

_ID = "litellm_call_id"
_CHAT = ("acompletion", "completion")


class FoldingCallback(CustomLogger):  # type: ignore[misc] # LiteLLM is not installed where types are checked
    """Folds the messages of each request of a named conversation, and records the answers.

    open_session   opens the session of a conversation, by its name
    recall         whether `tools` holds the tools of the lossless engine; False with another engine
    """

    def __init__(self, open_session: Callable[[str], Session], *, recall: bool = True) -> None:
        super().__init__()
        self._conversations = NamedHistories(open_session)
        schemas = SCHEMAS if recall else ()
        self.tools: list[dict[str, Any]] = [{"type": "function", "function": schema} for schema in schemas]

    def session(self, conversation: str) -> Session:
        """Return the session of a conversation: what it used and cost, its engine, its branches."""
        return self._conversations[conversation].session

    def close(self) -> None:
        """Close the sessions."""
        self._conversations.close()

    def answer(self, conversation: str, call: Any) -> str | None:
        """Return the engine's answer to a call of one of its tools; None if it is a call of another tool."""
        name = call.function.name
        if name not in {tool["function"]["name"] for tool in self.tools}:
            return None
        return self._conversations[conversation].answer(call.id, name, call.function.arguments)

    async def async_pre_call_deployment_hook(self, kwargs: dict[str, Any], call_type: Any) -> dict[str, Any] | None:
        """Send the folded messages."""
        history = self._history(kwargs, call_type)
        if history is None or not kwargs.get("messages"):
            return None
        return {**kwargs, "messages": await asyncio.to_thread(self._folded, history, kwargs)}

    async def async_post_call_success_deployment_hook(
        self, request_data: dict[str, Any], response: Any, call_type: Any
    ) -> None:
        """Record an answer that came as a whole."""
        await self._record(self._history(request_data, call_type), response, request_data.get(_ID))

    async def async_log_success_event(self, kwargs: dict[str, Any], response_obj: Any, *_: Any) -> None:
        """Record an answer that was streamed, when it is complete."""
        named = {**kwargs, "metadata": (kwargs.get("litellm_params") or {}).get("metadata")}
        await self._record(self._history(named, kwargs.get("call_type")), response_obj, kwargs.get(_ID))

    async def async_post_call_failure_deployment_hook(
        self, request_data: Any, exception: Exception, call_type: Any, **_: Any
    ) -> None:
        """Fold after the provider found a request too long, so that the same one can be sent again."""
        history = self._history(request_data, call_type)
        if history is not None:
            await asyncio.to_thread(history.recover, exception, by=request_data.get(_ID))

    async def _record(self, history: HistorySession | None, response: Any, by: Any) -> None:
        choices = getattr(response, "choices", None)
        if history is not None and history.waits(by) and choices and hasattr(choices[0], "message"):
            usage = _usage(getattr(response, "usage", None))
            await asyncio.to_thread(history.record, _openai(choices[0].message), usage, by=by)

    def _history(self, kwargs: Any, call_type: Any) -> HistorySession | None:
        name = kwargs.get("litellm_session_id") or (kwargs.get("metadata") or {}).get("session_id")
        is_chat = getattr(call_type, "value", call_type) in _CHAT
        return self._conversations[str(name)] if name and is_chat else None

    def _folded(self, history: HistorySession, kwargs: dict[str, Any]) -> list[Any]:
        given: list[Any] = kwargs["messages"]
        messages = [_openai(one) for one in given]
        head = len(list(takewhile(is_system, messages)))
        system = "\n\n".join(map(text_of, messages[:head]))
        tools = [tool for tool in kwargs.get("tools") or () if tool not in self.tools]
        sent = history.request(messages[head:], tools, system, by=kwargs.get(_ID))
        return given[:head] + [message if place is None else given[head + place] for message, place in sent]


def _openai(message: Any) -> Message:
    """Return a message as a dict: callers append the objects that LiteLLM returns, too."""
    return cast("Message", message if isinstance(message, dict) else message.model_dump(exclude_none=True))


def _usage(usage: Any) -> dict[str, Any] | None:
    if usage is None:
        return None
    details = usage.prompt_tokens_details
    cached = getattr(details, "cached_tokens", None) or 0
    written = getattr(usage, "cache_creation_input_tokens", None) or 0
    return usage_of(usage.prompt_tokens, usage.completion_tokens, cached, written)
