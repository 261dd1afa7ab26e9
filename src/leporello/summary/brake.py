"""How small a compaction must make a window, and when the next one may come: the same for every engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leporello.engine import CompactionReport

SMALLEST_SHARE_FOR_MESSAGES = 0.25  # of the threshold, when system prompt and tools alone nearly fill it
LITTLE = 0.05  # a compaction that saves a smaller share brought little
ROOMY = 0.25  # of the threshold: room enough until the next compaction
LEAST_GROWTH = 0.05  # of the threshold
SAFE_SHARE = 0.85  # of the window


def goal_for(messages_tokens: int, prompt_tokens: int, threshold: int) -> int | None:
    """Return how many tokens the messages of a result may have, or None without a threshold.

    What the provider counts beyond the messages (tools, its own way of counting) is taken off the threshold.
    """
    if not threshold:
        return None
    beside = max(0, prompt_tokens - messages_tokens)
    return max(threshold - 1 - beside, int(threshold * SMALLEST_SHARE_FOR_MESSAGES))


def fires_at(report: CompactionReport, was: int, *, threshold: int, window: int) -> int:
    """Return how large a window must be for the next compaction; 0 when the threshold alone decides.

    `was` is the size of the request that was compacted. After a compaction that left little room the window may grow
    beyond the threshold, by half of it, but not above its safe share; and always by a little, so that none runs every
    turn and growth always releases the brake.
    """
    now = was - max(0, report.tokens_before - report.tokens_after)
    if threshold - now >= threshold * ROOMY and report.saved >= LITTLE:
        return 0
    least = now + int(threshold * LEAST_GROWTH) + 1
    most = min(now + threshold // 2, int(window * SAFE_SHARE))
    return max(least, most)
