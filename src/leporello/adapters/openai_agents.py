"""Folds the input of each request of the OpenAI Agents SDK; the items that its session keeps stay as they are.

folding = Folding(Session.open("my-chat", model="gpt-5.4", engine="lcm"))
agent = Agent(..., tools=[*tools, *folding.tools])
await Runner.run(agent, text, session=..., hooks=folding.hooks, run_config=folding.run_config)
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from agents import FunctionTool, RunConfig, RunHooks  # type: ignore[import-not-found]
from agents.run import CallModelData, ModelInputData  # type: ignore[import-not-found]

from leporello.adapters.history import HistorySession, usage_of
from leporello.lcm.tools import SCHEMAS
from leporello.messages.responses import items_of, messages_of

if TYPE_CHECKING:
    from leporello.messages import Message
    from leporello.session import Session


class Folding:
    """Folds the requests of the runs of one conversation; with `recall` the model gets the lossless engine's tools."""

    def __init__(self, session: Session, *, recall: bool = True) -> None:
        self._history = HistorySession(session)
        self.tools: list[Any] = [self._recall_tool(schema) for schema in SCHEMAS] if recall else []
        self.hooks: Any = _Hooks(self._history)
        self.run_config: RunConfig = RunConfig(call_model_input_filter=self.fold)

    @property
    def session(self) -> Session:
        """The session: what it used and cost, its engine, its branches."""
        return self._history.session

    async def fold(self, data: CallModelData[Any]) -> ModelInputData:
        """Return the folded input, for `RunConfig(call_model_input_filter=...)`."""
        given = data.model_data
        items = await asyncio.to_thread(self._folded, given.input, given.instructions or "", id(data.agent))
        return ModelInputData(input=items, instructions=given.instructions)

    def close(self) -> None:
        """Close the session, and those of its branches."""
        self._history.close()

    def _folded(self, items: list[Any], instructions: str, agent: int) -> list[Any]:
        messages = messages_of(items)
        sent = self._history.request(messages, [], instructions, by=agent)
        return items_of([message if place is None else messages[place] for message, place in sent])

    def _recall_tool(self, schema: dict[str, Any]) -> FunctionTool:
        async def answered(context: Any, arguments: str) -> str:
            return await asyncio.to_thread(self._history.answer, context.tool_call_id, schema["name"], arguments)

        return FunctionTool(
            name=schema["name"],
            description=schema["description"],
            params_json_schema=schema["parameters"],
            on_invoke_tool=answered,
            strict_json_schema=False,
        )


class _Hooks(RunHooks):  # type: ignore[misc] # the SDK is not installed where types are checked
    """Records every answer of the model."""

    def __init__(self, history: HistorySession) -> None:
        self._history = history

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        """Record an answer as the next input will hold it."""
        answer: list[Message] = messages_of(response.to_input_items())
        if answer:
            await asyncio.to_thread(self._history.record, answer[-1], _usage(response.usage), by=id(agent))


def _usage(usage: Any) -> dict[str, Any] | None:
    return usage_of(usage.input_tokens, usage.output_tokens, usage.input_tokens_details.cached_tokens or 0)
