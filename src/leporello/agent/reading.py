"""An answer as it is read, chunk by chunk, in either dialect: what a person sees of it, and how it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leporello.agent.events import TextPiece, ThinkingPiece

if TYPE_CHECKING:
    from collections.abc import Iterator

_THINKING_FIELDS = ("reasoning_content", "reasoning")
_ENDINGS = {
    "length": "the answer was cut off at the most tokens that it may have; ask for the rest",
    "content_filter": "the provider's content filter ended the answer",
}
_SAME_AS = {"max_tokens": "length", "model_context_window_exceeded": "length", "refusal": "content_filter"}


class AnswerReader:
    """Takes the chunks of one answer."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._said = self._thought = self._calls = False
        self._finish = ""

    @property
    def is_empty(self) -> bool:
        """Whether nothing came: no word, no call, not even an end."""
        return not (self._said or self._thought or self._calls or self._finish)

    def take(self, chunk: Any) -> Iterator[TextPiece | ThinkingPiece]:
        """Yield what a chunk adds to what a person reads."""
        thinking, text = self._openai(chunk) if hasattr(chunk, "choices") else self._anthropic(chunk)
        if isinstance(thinking, str) and thinking:
            self._thought = True
            yield ThinkingPiece(session_id=self._session_id, text=thinking)
        if isinstance(text, str) and text:
            self._said = True
            yield TextPiece(session_id=self._session_id, text=text)

    def remark(self) -> str:
        """Return what the user should know about how the answer ended; "" when it ended as answers do."""
        if not self._finish:
            return "the answer ended without its end mark; something may be missing"
        ending = _ENDINGS.get(_SAME_AS.get(self._finish, self._finish), "")
        return ending or ("" if self._said or self._calls else "the model ended its turn without a word")

    def _openai(self, chunk: Any) -> tuple[Any, Any]:
        if not chunk.choices:
            return None, None
        choice = chunk.choices[0]
        delta = choice.delta
        self._finish = choice.finish_reason or self._finish
        self._calls = self._calls or bool(getattr(delta, "tool_calls", None))
        thinking = next((text for name in _THINKING_FIELDS if (text := getattr(delta, name, None))), None)
        return thinking, getattr(delta, "content", None) or getattr(delta, "refusal", None)

    def _anthropic(self, event: Any) -> tuple[Any, Any]:
        kind = getattr(event, "type", "")
        if kind == "message_delta":
            self._finish = event.delta.stop_reason or self._finish
        elif kind == "content_block_start":
            self._calls = self._calls or event.content_block.type == "tool_use"
        elif kind == "content_block_delta":
            return getattr(event.delta, "thinking", None), getattr(event.delta, "text", None)
        return None, None
