"""Models behind OpenAI's chat completions: OpenAI itself, OpenRouter, and every server that speaks like them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from leporello.engine import normalise_usage
from leporello.errors import RequestRefusedError
from leporello.llm.errors import classify
from leporello.llm.sdk import SdkClient
from leporello.messages.types import text_of

if TYPE_CHECKING:
    from leporello.llm.client import Completion
    from leporello.messages.types import Message

OPENAI_URL = "https://api.openai.com/v1"
OPENROUTER_URL = "https://openrouter.ai/api/v1"
_OFFICIAL_HOST = "api.openai.com"


class OpenAIClient(SdkClient):
    """Ask a model through the `openai` package, which is loaded by the first call."""

    def __init__(
        self,
        *,
        model: str,
        api_key: str,
        provider: str = "openai",
        base_url: str | None = None,
        context_length: int = 0,
    ) -> None:
        super().__init__(
            model=model,
            api_key=api_key,
            provider=provider,
            base_url=base_url or OPENAI_URL,
            context_length=context_length,
        )

    def _load(self) -> tuple[Any, Any]:
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient
        from openai.resources.chat import AsyncCompletions  # noqa: F401 - the client would load it with the first call

        return AsyncOpenAI, DefaultAsyncHttpxClient

    async def _ask(self, make: Any, messages: list[Message], max_tokens: int) -> bytes:
        limit: dict[str, Any] = {self._limit_name(): max_tokens}
        async with make() as client:
            chat = client.chat.completions.with_raw_response
            answer = await chat.create(model=self.model, messages=messages, **limit)
            body: bytes = await answer.http_response.aread()
        return body

    def _limit_name(self) -> str:
        """Return the parameter that bounds the output.

        OpenAI's reasoning models refuse `max_tokens`; most other servers ignore `max_completion_tokens`, and an ignored
        limit is an answer of any length.
        """
        official = urlsplit(self.base_url or "").hostname == _OFFICIAL_HOST
        return "max_completion_tokens" if official else "max_tokens"

    def _read(self, answer: dict[str, Any]) -> Completion:
        choices = answer.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
        message = choice.get("message")
        message = message if isinstance(message, dict) else {}
        finish = str(choice.get("finish_reason") or "stop")
        if choice.get("error"):  # OpenRouter: the provider behind it failed in the middle of the answer
            raise classify(body={"error": choice["error"]}, provider=self.provider, secret=self._api_key)
        if finish == "content_filter" or message.get("refusal"):
            reason = message.get("refusal") or "its content filter stopped the answer"
            raise RequestRefusedError(f"{self.provider} refused to answer: {reason}", provider=self.provider)
        return self._completion(text_of(message), normalise_usage(answer.get("usage")), answer.get("model"), finish)
