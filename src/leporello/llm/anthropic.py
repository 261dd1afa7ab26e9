"""Models behind Anthropic's messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leporello.engine import normalise_usage
from leporello.errors import RequestRefusedError
from leporello.llm.sdk import SdkClient
from leporello.messages import anthropic_request
from leporello.messages.types import text_of

if TYPE_CHECKING:
    from leporello.llm.client import Completion
    from leporello.messages.types import Message

ANTHROPIC_URL = "https://api.anthropic.com"
_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
}


class AnthropicClient(SdkClient):
    """Ask a model through the `anthropic` package, which is loaded by the first call."""

    def __init__(
        self,
        *,
        model: str,
        api_key: str,
        provider: str = "anthropic",
        base_url: str | None = None,
        context_length: int = 0,
    ) -> None:
        super().__init__(
            model=model,
            api_key=api_key,
            provider=provider,
            base_url=base_url or ANTHROPIC_URL,
            context_length=context_length,
        )

    def _load(self) -> tuple[Any, Any]:
        from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient

        return AsyncAnthropic, DefaultAsyncHttpxClient

    async def _ask(self, make: Any, messages: list[Message], max_tokens: int) -> bytes:
        request = anthropic_request(messages)
        async with make() as client:
            endpoint = client.messages.with_raw_response
            answer = await endpoint.create(model=self.model, max_tokens=max_tokens, **request)
            body: bytes = await answer.http_response.aread()
        return body

    def _read(self, answer: dict[str, Any]) -> Completion:
        reason = str(answer.get("stop_reason") or "end_turn")
        if reason == "refusal":
            raise RequestRefusedError(f"{self.provider} refused to answer", provider=self.provider)
        usage = normalise_usage(answer.get("usage"))
        return self._completion(text_of(answer), usage, answer.get("model"), _FINISH.get(reason, reason))
