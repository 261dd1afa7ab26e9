"""What happened, for progress displays, logs and telemetry: frozen events and the sinks that take them."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

FOLDED: Final = ("folded", "fallback")
"""The outcomes of a compaction that made another window: with the model, or without it although there is one."""

_log = logging.getLogger("leporello")
_FORGING = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")  # a text of a provider must not look like another line


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened in one conversation; `str(event)` is a line for people."""

    session_id: str = ""


@dataclass(frozen=True, kw_only=True)
class CompactionStarted(Event):
    """An engine began to fold.

    `tokens` is the plain estimate of the messages alone, what `CompactionFinished` calls `tokens_before`;
    `prompt_tokens` the size of the whole request that led to it (system prompt, tools and messages, by the provider's
    count as far as there is one), 0 when it is unknown.
    """

    reason: str
    messages: int
    tokens: int
    prompt_tokens: int = 0

    def __str__(self) -> str:
        return f"folding {self.messages} messages, {self.prompt_tokens or self.tokens:,} tokens ({self.reason})"


@dataclass(frozen=True, kw_only=True)
class CompactionFinished(Event):
    """A fold came to an end, with whatever outcome `status` names.

    `tokens_before` and `tokens_after` are the plain estimate of the messages alone, without tools. The other pair,
    `prompt_tokens_before` and `prompt_tokens_after`, is the size of the whole request as a session counts it, 0 when it
    is unknown. `model_calls` and `cost_usd` are for the summaries of this fold, those that were written in the
    background before it too. `summary_tokens` and `masked_tokens` are zones of the new window: the summary, or the
    blocks, and the turns whose long tool outputs are one line each; 0 where there are no such zones. A session counts
    them like the whole request.
    """

    status: str
    reason: str
    messages_before: int
    messages_after: int
    tokens_before: int
    tokens_after: int
    seconds: float
    model_calls: int
    cost_usd: float | None
    prompt_tokens_before: int = 0
    prompt_tokens_after: int = 0
    summary_tokens: int = 0
    masked_tokens: int = 0

    @property
    def folded(self) -> bool:
        """Whether there is another window now."""
        return self.status in FOLDED

    @property
    def tokens(self) -> tuple[int, int]:
        """The tokens before and after: of the whole request if that is known, else of the messages alone."""
        whole = self.prompt_tokens_before, self.prompt_tokens_after
        return whole if all(whole) else (self.tokens_before, self.tokens_after)

    def __str__(self) -> str:
        before, after = self.tokens
        cost = f", ${self.cost_usd:.4f}" if self.cost_usd else ""
        why = f" ({self.reason})" if self.reason else ""
        sizes = {"summary": self.summary_tokens, "masked zone": self.masked_tokens}
        zones = ", ".join(f"{name} {tokens:,}" for name, tokens in sizes.items() if tokens)
        return (
            f"{self.status}: {self.messages_before} → {self.messages_after} messages, "
            f"{before:,} → {after:,} tokens{f' ({zones})' if zones else ''}, "
            f"{self.seconds:.2f} s, {self.model_calls} model call{'' if self.model_calls == 1 else 's'}{cost}{why}"
        )


@dataclass(frozen=True, kw_only=True)
class SummaryFellBack(Event):
    """The summariser failed; the extractive one took its place. `retry_in` is None when a change of key is needed."""

    error: str
    retry_in: float | None

    def __str__(self) -> str:
        when = (
            f"the model is tried again in {self.retry_in:.0f} s"
            if self.retry_in is not None
            else "the model is tried again when its key or configuration changes"
        )
        return f"the summariser failed ({self.error}); an extractive summary was used, {when}"


@dataclass(frozen=True, kw_only=True)
class Notice(Event):
    """Something the user should know once."""

    text: str

    def __str__(self) -> str:
        return self.text


Sink: TypeAlias = Callable[[Event], None]


def log_event(event: Event) -> None:
    """Log an event: the sink in use when there is no other."""
    level = logging.WARNING if isinstance(event, SummaryFellBack) else logging.INFO
    if not _log.isEnabledFor(level):
        return
    _log.log(level, "%s", _FORGING.sub(lambda found: f"<U+{ord(found[0]):04X}>", str(event)))
