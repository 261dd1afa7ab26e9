"""What a compaction must achieve, and when the next one may come: the same for every engine of ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leporello.engine import CompactionReport

SMALLEST_SHARE_FOR_MESSAGES = 0.25  # of the threshold, when system prompt and tools alone nearly fill it
WORTH = 0.10  # of the threshold: what a compaction must free to be worth a new prefix
MODEL_WORTH = 0.01  # of the messages: what a compaction must free to be worth a model call
GROWTH = 0.5  # of the threshold: how much a request grows before the next compaction, at least up to the threshold
SAFE_SHARE = 0.85  # of the window: above it any conversation is folded, whatever its engine says
ANSWER_SHARE, LONGEST_ANSWER = 0.125, 4_096  # of the window and tokens: what an answer takes when it is unknown

NOTHING_OLDER = "nothing stands before your newest message that could be folded"


@dataclass(frozen=True, kw_only=True)
class Targets:
    """What one compaction must achieve, in tokens of its messages.

    `goal`: below the threshold. `most`: what the model's window holds beside the answer. `least`: what must become
    free, 1 when any is enough. `goal` and `most` are None without a window.
    """

    goal: int | None
    most: int | None
    least: int

    @property
    def is_optional(self) -> bool:
        """Whether the compaction is left undone when it frees little."""
        return self.least > 1

    def beside_unread(self, unread: int, rest: int) -> int | None:
        """Return how large a window may become of which this much is unread, and `rest` is what should stand beside it.

        That is the goal, in general. What is unread cannot be folded: where it leaves less than `rest`, the window may
        be as much larger as the model allows.
        """
        if self.goal is None or self.most is None:
            return None
        return max(self.goal, min(self.most, unread + rest))

    @property
    def not_worth_it(self) -> str:
        """The reason for leaving a compaction undone that frees too little."""
        if not self.is_optional:
            return "the result would not have been shorter"
        return f"it would free fewer than {self.least:,} tokens, a tenth of the threshold"


def targets(
    messages: int, prompt: int, *, threshold: int, window: int, answer: int | None = None, asked: bool = False
) -> Targets:
    """Return what a compaction must achieve.

    `messages` and `prompt` are the tokens of the messages and of the whole request, `answer` the longest answer. What
    the request has beyond its messages (tools, the provider's own way of counting) is taken off the threshold and off
    the window. `asked`: a person or an overflow asked for it, so that it folds whatever can be folded; so does one
    without which the request would not fit into the window.
    """
    if not threshold:
        return Targets(goal=None, most=None, least=1)
    beside = max(0, prompt - messages)
    limit = request_limit(window, answer)
    optional = not asked and threshold <= max(prompt, messages) <= limit
    return Targets(
        goal=max(threshold - 1 - beside, int(threshold * SMALLEST_SHARE_FOR_MESSAGES)),
        most=max(0, limit - beside),
        least=max(1, int(threshold * WORTH)) if optional else 1,
    )


def request_limit(window: int, answer: int | None = None) -> int:
    """Return how many tokens a request may have: the model's window less the answer."""
    return window - min(answer or min(int(window * ANSWER_SHARE), LONGEST_ANSWER), window // 2)


def fires_at(report: CompactionReport, was: int, *, threshold: int, window: int, answer: int | None = None) -> int:
    """Return how large a request must be for the next compaction; 0 when the threshold alone decides.

    `was` is the size of the request that was compacted. If that left less room below the threshold than the growth
    between two compactions, the window grows beyond the threshold, but not above its safe share; and always by what a
    compaction must free to be worth it, so that none runs every turn and growth always leads to the next one. The
    first request that does not fit into the window fires in any case.
    """
    now = was - max(0, report.tokens_before - report.tokens_after)
    least = now + int(threshold * WORTH) + 1
    later = max(least, min(now + int(threshold * GROWTH), int(window * SAFE_SHARE)))
    limit = request_limit(window, answer)
    later = later if now > limit else min(later, limit + 1)
    return later if later > threshold else 0
