"""What a model is to Leporello: something that turns messages into one text, or says why it did not."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from leporello.engine import Usage, normalise_usage
from leporello.prices import cost, cost_at
from leporello.prices.table import own_price

if TYPE_CHECKING:
    from leporello.messages.types import Message

_TAG = r"think|thinking|thought|reasoning"
_LEADING_BLOCKS = re.compile(rf"\A\s*(?:<({_TAG})>.*?</\1>\s*)+", re.DOTALL | re.IGNORECASE)
_CLOSED_ONLY = re.compile(
    rf"\A(?:(?!<(?:{_TAG})>).)*?^[ \t]*</(?:{_TAG})>[ \t]*$", re.DOTALL | re.IGNORECASE | re.MULTILINE
)
_OPEN_ONLY = re.compile(rf"\A\s*<(?:{_TAG})>.*\Z", re.DOTALL | re.IGNORECASE)


def no_usage() -> Usage:
    """Return the usage of a call that was not counted."""
    return normalise_usage({})


@dataclass(frozen=True, kw_only=True)
class Completion:
    """A model's answer: the text a person would read, never its thinking."""

    text: str
    usage: Usage = field(default_factory=no_usage)
    model: str = ""
    finish_reason: str = "stop"


class LLM(Protocol):
    """A model that can be asked; `context_length` is 0 when it is unknown.

    `complete` returns an answer with text in it, or raises a subclass of `leporello.errors.ModelError`, and nothing
    else. `timeout` bounds the whole call in seconds, not the wait between two bytes.
    """

    @property
    def model(self) -> str:
        """The model's name on its route."""

    @property
    def provider(self) -> str:
        """The route: who answers."""

    @property
    def context_length(self) -> int:
        """The window in tokens, 0 when unknown."""

    def complete(self, messages: list[Message], *, max_tokens: int, timeout: float) -> Completion:
        """Ask once, without retries."""


def cost_of(llm: LLM, completion: Completion) -> float | None:
    """Return the US dollars of an answer, or None when its price is not known.

    The user's own prices come first; they name the model as it is asked for, and an answer may name its version.
    """
    own = getattr(llm, "own_prices", None)
    if own and (price := own_price(llm.model, llm.provider, own)) is not None:
        return cost_at(completion.usage, price)
    return cost(completion.usage, completion.model or llm.model, llm.provider)


def visible_text(text: str) -> str:
    """Return what is left of an answer without its thinking.

    Servers that do not separate thinking put it into the text as a block in front of the answer. Some chat templates
    write the opening tag into the prompt, so that only the closing one arrives, on a line of its own; an answer that
    was cut off while thinking has only the opening one. Tags further down belong to the answer: it may speak of them.
    """
    for thinking in (_LEADING_BLOCKS, _CLOSED_ONLY, _OPEN_ONLY):
        text = thinking.sub("", text, count=1)
    return text.strip()
