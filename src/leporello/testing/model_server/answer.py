"""An answer before it takes the shape of a dialect."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leporello.engine import Usage, normalise_usage
from leporello.tokens import count_request, count_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leporello.testing.model_server.requests import ReceivedRequest
    from leporello.testing.model_server.script import Step

_PIECES = 4


class ServedUsage(Usage, total=False):
    """Usage with the part of the cache writes that is kept for an hour."""

    cache_write_1h_tokens: int


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A step with all that a response holds besides: ids, the model's name, what was counted."""

    number: int
    model: str
    text: str
    thinking: str
    tool_calls: list[tuple[str, str, dict[str, Any]]]
    finish: str
    usage: Usage
    items: Sequence[Mapping[str, Any]] = ()


def answer_to(request: ReceivedRequest, step: Step, number: int) -> Answer:
    """Make the answer to a request; like a provider's, it is no longer than was asked for."""
    text, finish = _cut(step.text, step.finish_reason, request.max_tokens)
    calls = [
        (use.id or f"call_{number}_{place}", use.name, dict(use.arguments)) for place, use in enumerate(step.tool_calls)
    ]
    usage = counted(request, text, step.thinking, calls)
    return Answer(
        number=number,
        model=request.model,
        text=text,
        thinking=step.thinking,
        tool_calls=calls,
        finish=finish,
        usage=usage,
        items=step.items,
    )


def counted(request: ReceivedRequest, text: str, thinking: str, calls: list[tuple[str, str, dict[str, Any]]]) -> Usage:
    """Count a request and its answer, with no cache in between."""
    said = sum(count_text(name + json.dumps(arguments)) for _, name, arguments in calls)
    reasoning = count_text(thinking)
    return normalise_usage(
        {
            "prompt_tokens": prompt_tokens(request),
            "completion_tokens": count_text(text) + said + reasoning,
            "reasoning_tokens": reasoning,
        }
    )


def prompt_tokens(request: ReceivedRequest) -> int:
    """Count what a request makes the model read."""
    return count_request(request.messages, tools=request.tools)


def pieces(text: str) -> list[str]:
    """Cut a text into the few pieces that a stream sends it in."""
    size = -(-len(text) // _PIECES)
    return [text[start : start + size] for start in range(0, len(text), size)] if text else []


def _cut(text: str, finish: str, max_tokens: int | None) -> tuple[str, str]:
    tokens = count_text(text)
    if max_tokens is None or tokens <= max_tokens:
        return text, finish
    return text[: len(text) * max_tokens // tokens], "length"
