"""What one compaction did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Status: TypeAlias = Literal["folded", "unchanged", "refused", "fallback"]
"""What came of a compaction."""


@dataclass(frozen=True, kw_only=True)
class CompactionReport:
    """What one compaction did, for the host, the user and the log.

    `status` is "folded", "unchanged" (nothing to do), "refused" (a result was not good enough to use) or "fallback"
    (folded, but without the model that was asked for). `unfoldable` holds the indexes of messages in the result that
    alone keep it above the threshold. `tokens_before` and `tokens_after` are the plain estimate of the messages alone,
    without tools. `model_calls` and `cost_usd` are for all summaries that it used, those written in the background too;
    `cost_usd` is None when a price is not known.
    """

    status: Status
    reason: str = ""
    tokens_before: int = 0
    tokens_after: int = 0
    messages_before: int = 0
    messages_after: int = 0
    model_calls: int = 0
    seconds: float = 0.0
    cost_usd: float | None = None
    unfoldable: tuple[int, ...] = ()

    @property
    def saved(self) -> float:
        """The share of tokens that the compaction saved, 0 to 1."""
        return 1 - self.tokens_after / self.tokens_before if self.tokens_before else 0.0
