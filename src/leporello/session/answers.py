"""What a model answered, whoever's object it comes in: a message in OpenAI's format, and its usage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leporello.engine import Usage, normalise_usage
from leporello.errors import MalformedAnswerError
from leporello.messages import from_anthropic

if TYPE_CHECKING:
    from leporello.messages import Message

INCOMPLETE = "_incomplete"  # the private note on an answer that broke off


@dataclass(frozen=True, kw_only=True)
class Answered:
    """An answer: its message, and what the provider said about it."""

    message: Message
    usage: Usage | None = None
    model: str = ""
    finish: str = ""
    id: str = ""

    @property
    def incomplete(self) -> bool:
        """Whether it broke off, so that its calls must not be run."""
        return bool(self.message.get(INCOMPLETE))


def read_answer(response: Any) -> Answered:
    """Read a chat completion, an Anthropic message or a plain assistant message; SDK object or dict."""
    answer = response if isinstance(response, dict) else plain(response)
    if "choices" in answer:
        return _from_openai(answer)
    if answer.get("role") == "assistant":
        is_anthropic = answer.get("type") == "message" or "stop_reason" in answer
        return _from_anthropic(answer) if is_anthropic else Answered(message=without_nothing(answer))
    raise MalformedAnswerError(
        "this is no answer of a model: pass the response of chat.completions.create() or messages.create(), "
        f"or an assistant message, not {_named(response)}"
    )


def plain(value: Any) -> dict[str, Any]:
    """Return an SDK object as the dict that the provider sent."""
    if isinstance(value, Mapping):
        return dict(value)
    dump = getattr(value, "model_dump", None)
    if not callable(dump):
        raise MalformedAnswerError(f"an answer is an object of the provider's package or a dict, not {_named(value)}")
    dumped = dump(mode="json", exclude_unset=True, warnings=False)
    return dumped if isinstance(dumped, dict) else {}


def usage_of(raw: Any) -> Usage | None:
    """Return a provider's count in one form; None when it says nothing."""
    usage = normalise_usage(raw) if raw else None
    return usage if usage and usage["total_tokens"] else None


def without_nothing(message: Mapping[str, Any]) -> Message:
    """Return an answer's message without fields that say nothing: null, and empty lists of calls and annotations."""
    kept = {key: value for key, value in message.items() if value is not None and (value != [] or key == "content")}
    return {"role": "assistant", "content": message.get("content"), **kept}


def _from_openai(answer: dict[str, Any]) -> Answered:
    choices = answer.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, Mapping) else None
    if not isinstance(choice, Mapping) or not isinstance(message, Mapping):
        raise MalformedAnswerError(f"the answer holds no message{_reason(answer)}")
    return Answered(
        message=without_nothing(message),
        usage=usage_of(answer.get("usage")),
        model=str(answer.get("model") or ""),
        finish=str(choice.get("finish_reason") or ""),
        id=str(answer.get("id") or ""),
    )


def _from_anthropic(answer: dict[str, Any]) -> Answered:
    content = answer.get("content")
    return Answered(
        message=message_of_blocks(content if isinstance(content, list) else []),
        usage=usage_of(answer.get("usage")),
        model=str(answer.get("model") or ""),
        finish=str(answer.get("stop_reason") or ""),
        id=str(answer.get("id") or ""),
    )


def message_of_blocks(blocks: list[Any]) -> Message:
    """Return the message of an Anthropic answer's blocks."""
    strange = next((block for block in blocks if not isinstance(block, Mapping)), None)
    if strange is not None:
        raise MalformedAnswerError(f"the answer holds a block that is none: {_named(strange)}")
    said = [{key: value for key, value in block.items() if value is not None} for block in blocks]
    (message,) = from_anthropic({"messages": [{"role": "assistant", "content": said}]})
    return message


def _reason(answer: dict[str, Any]) -> str:
    error = answer.get("error")
    return f": {str(error)[:200]}" if error else ""


def _named(value: Any) -> str:
    return f"a value of type {type(value).__name__}" if not isinstance(value, Mapping) else f"keys {sorted(value)[:8]}"
