"""Reads a model's answer, in any provider's format, as a message in OpenAI's format with its usage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from leporello.engine import Usage, normalise_usage
from leporello.errors import MalformedAnswerError
from leporello.messages import from_anthropic
from leporello.messages.responses import answer_of, kind_of
from leporello.messages.responses.items import CALLS

if TYPE_CHECKING:
    from leporello.messages import Message

INCOMPLETE = "_incomplete"  # the private key of an answer that broke off


@dataclass(frozen=True, kw_only=True)
class ModelAnswer:
    """An answer: its message, and the usage, model, finish reason and id that the provider gives."""

    message: Message
    usage: Usage | None = None
    model: str = ""
    finish: str = ""
    id: str = ""
    envelope: Mapping[str, Any] = field(default_factory=dict)
    """The fields of a response of the Responses API besides its output."""

    @property
    def incomplete(self) -> bool:
        """Whether it broke off, so that its calls must not be run."""
        return bool(self.message.get(INCOMPLETE))


def read_answer(response: Any) -> ModelAnswer:
    """Read a chat completion, an Anthropic message, a response or a plain assistant message; SDK object or dict."""
    answer = response if isinstance(response, dict) else as_dict(response)
    if "choices" in answer:
        return _from_openai(answer)
    if answer.get("object") == "response" or ("output" in answer and "role" not in answer):
        return from_response(answer)
    if answer.get("role") == "assistant":
        is_anthropic = answer.get("type") == "message" or "stop_reason" in answer
        return _from_anthropic(answer) if is_anthropic else ModelAnswer(message=without_empty_fields(answer))
    raise MalformedAnswerError(
        "this is no answer of a model: pass the response of chat.completions.create(), messages.create() or "
        f"responses.create(), or an assistant message, not {_named(response)}"
    )


def as_dict(value: Any) -> dict[str, Any]:
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


def without_empty_fields(message: Mapping[str, Any]) -> Message:
    """Return an answer's message without null fields and empty lists."""
    kept = {key: value for key, value in message.items() if value is not None and (value != [] or key == "content")}
    return cast("Message", {"role": "assistant", "content": message.get("content"), **kept})


def _from_openai(answer: dict[str, Any]) -> ModelAnswer:
    choices = answer.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, Mapping) else None
    if not isinstance(choice, Mapping) or not isinstance(message, Mapping):
        raise MalformedAnswerError(f"the answer holds no message{_reason(answer)}")
    return _answer(answer, without_empty_fields(message), choice.get("finish_reason"))


def _from_anthropic(answer: dict[str, Any]) -> ModelAnswer:
    content = answer.get("content")
    message = message_of_blocks(content if isinstance(content, list) else [])
    return _answer(answer, message, answer.get("stop_reason"))


def _answer(response: Mapping[str, Any], message: Message, finish: Any) -> ModelAnswer:
    """Return an answer with what every provider's response says beside its message."""
    return ModelAnswer(
        message=message,
        usage=usage_of(response.get("usage")),
        model=str(response.get("model") or ""),
        finish=str(finish or ""),
        id=str(response.get("id") or ""),
    )


def from_response(response: dict[str, Any]) -> ModelAnswer:
    """Read a response; one that failed raises what its error means."""
    if response.get("status") == "failed":
        from leporello.llm.errors import classify

        raise classify(status=400, body={"error": response.get("error")})
    output = response.get("output")
    if not isinstance(output, list) or not all(isinstance(item, Mapping) for item in output):
        raise MalformedAnswerError(f"the answer holds no list of items{_reason(response)}")
    message = answer_of([dict(item) for item in output])
    if any(kind_of(item) in CALLS and item.get("status") == "incomplete" for item in output):
        message = cast("Message", {**message, INCOMPLETE: True})
    envelope = {key: value for key, value in response.items() if key != "output"}
    return replace(_answer(response, message, _finish(response, message)), envelope=envelope)


def _finish(response: Mapping[str, Any], message: Message) -> str:
    """Return the finish reason of a response in the terms of chat completions; "" when it has not ended."""
    details = response.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, Mapping) else None
    if response.get("status") == "completed":
        return "tool_calls" if message.get("tool_calls") else "stop"
    if response.get("status") == "incomplete":
        return "length" if reason in (None, "max_output_tokens") else str(reason)
    return str(response.get("status") or "") if response.get("status") not in ("in_progress", "queued") else ""


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
