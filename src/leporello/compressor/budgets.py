"""The numbers of the compressor, all derived from the main model's window."""

from __future__ import annotations

from dataclasses import dataclass

SUMMARY_SHARE = 0.20
MIN_SUMMARY_TOKENS = 2_000
MAX_SUMMARY_TOKENS = 12_000
MAX_SUMMARY_SHARE_OF_WINDOW = 0.05
SMALLEST_SUMMARY_TOKENS = 256
ENOUGH_CONTENT = int(MAX_SUMMARY_TOKENS / SUMMARY_SHARE)  # tokens; more of them allow no longer summary


@dataclass(frozen=True, kw_only=True)
class CompressorBudgets:
    """What one window allows."""

    threshold_tokens: int
    tail_token_budget: int
    max_summary_tokens: int

    @classmethod
    def of(cls, context_length: int, *, threshold: float, target_ratio: float) -> CompressorBudgets:
        """Derive the budgets from a window; without one (0) nothing fires and only the largest summary is bounded."""
        threshold_tokens = int(context_length * threshold)
        of_window = int(context_length * MAX_SUMMARY_SHARE_OF_WINDOW) if context_length else MAX_SUMMARY_TOKENS
        return cls(
            threshold_tokens=threshold_tokens,
            tail_token_budget=int(threshold_tokens * target_ratio),
            max_summary_tokens=max(min(of_window, MAX_SUMMARY_TOKENS), SMALLEST_SUMMARY_TOKENS),
        )

    def summary_tokens(self, content_tokens: int) -> int:
        """Return how long the summary of content of this length may be."""
        return min(max(int(content_tokens * SUMMARY_SHARE), MIN_SUMMARY_TOKENS), self.max_summary_tokens)
