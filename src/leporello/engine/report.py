"""What one compaction did."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal, TypeAlias

from leporello.events import FOLDED, CompactionFinished

Status: TypeAlias = Literal["folded", "unchanged", "refused", "fallback"]
"""What came of a compaction."""


@dataclass(frozen=True, kw_only=True)
class CompactionReport:
    """What one compaction did, for the host, the user and the log.

    `status` is "folded", "unchanged" (nothing to do), "refused" (a result was not good enough to use) or "fallback"
    (folded, but without the model that was asked for). `unfoldable` holds the indexes of messages in the result that
    alone keep it above the threshold. `tokens_before` and `tokens_after` are the plain estimate of the messages alone,
    without tools. `model_calls` and `cost_usd` are for all summaries that it used, those written in the background too;
    `cost_usd` is None when a price is not known. `summary_tokens` and `masked_tokens` are what the summary, or the
    blocks, and the masked zone take in the result of our own engines.
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
    summary_tokens: int = 0
    masked_tokens: int = 0

    @property
    def folded(self) -> bool:
        """Whether there is another window now."""
        return self.status in FOLDED

    @property
    def saved(self) -> float:
        """The share of tokens that the compaction saved, 0 to 1."""
        return 1 - self.tokens_after / self.tokens_before if self.tokens_before else 0.0

    def finished(self, session_id: str, before: int = 0, after: int = 0) -> CompactionFinished:
        """Return the event that tells of it; `before` and `after` are the tokens of the whole request, if known."""
        fields = {key: value for key, value in asdict(self).items() if key != "unfoldable"}
        return CompactionFinished(
            session_id=session_id, prompt_tokens_before=before, prompt_tokens_after=after, **fields
        )
