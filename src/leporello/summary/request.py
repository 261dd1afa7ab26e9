"""What is asked of a summariser, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from leporello.llm.client import no_usage
from leporello.redact import EMPTY

if TYPE_CHECKING:
    from leporello.engine import Usage
    from leporello.errors import ModelError
    from leporello.redact import Redacted, RedactedMessage

Clock: TypeAlias = Callable[[], float]
Sleep: TypeAlias = Callable[[float], None]


@dataclass(frozen=True, kw_only=True)
class SummaryRequest:
    """One summary to make, of what was redacted as a whole before anything is taken from it.

    `messages` are made of originals: a tool output that was cleared before it came here cannot be summarised.
    `previous` is the earlier summary that this one updates and replaces, `focus` the topic to keep in most detail,
    `memory` what the host's memory knows already. With `complete` the model reads long tool outputs to the last word
    instead of a digest. With `names_listed` a list behind
    the summary tells the names of no file, and those that only stood in outputs.
    """

    messages: Sequence[RedactedMessage]
    budget_tokens: int
    previous: Redacted = EMPTY
    focus: Redacted = EMPTY
    memory: Redacted = EMPTY
    complete: bool = False
    names_listed: bool = False


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A summary in the template, never longer than its budget, and how it came about.

    `fallback` says in words for the user why the model could not do its part ("" when it did, and when no model was
    configured). `partly_extractive` tells that some or all of the text was made without a model although there is one;
    `note` says why when nothing failed: a limit of calls or of time. `retry_in` is the number of seconds until the
    model is tried again; None when nothing failed, and after a failure that only another key or configuration can end.
    `cost_usd` is None when the price of a call is not known.
    """

    text: Redacted
    model_calls: int = 0
    cost_usd: float | None = 0.0
    usage: Usage = field(default_factory=no_usage)
    fallback: Redacted = EMPTY
    partly_extractive: bool = False
    retry_in: float | None = None
    note: str = ""
    error: ModelError | None = field(default=None, compare=False)
