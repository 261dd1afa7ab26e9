"""One compaction under way: announced when it begins, reported when it ends; the same for every engine of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from leporello.engine import CompactionReport
from leporello.events import FOLDED, CompactionStarted, SummaryFellBack
from leporello.redact import redact
from leporello.summary.refire import Targets, fires_at, targets
from leporello.summary.sizes import Sizes, unfoldable, zone_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from leporello.engine import ContextEngine, Status
    from leporello.messages import Message


class SummaryCosts(Protocol):
    """What was spent on summaries, and how the model fared."""

    @property
    def model_calls(self) -> int:
        """How many calls were made."""

    @property
    def cost_usd(self) -> float | None:
        """What they cost, None when a price is not known."""

    @property
    def fallback(self) -> str:
        """Why the model did not do its part; "" when it did."""

    @property
    def retry_in(self) -> float | None:
        """In how many seconds it is tried again."""


class CompactionRun:
    """What came in, and what the compaction must achieve; `prompt_tokens` is the size of the request, 0 if unknown."""

    def __init__(
        self,
        engine: ContextEngine,
        session_id: str,
        messages: Sequence[Message],
        prompt_tokens: int,
        *,
        focus: str,
        forced: bool,
        answer_tokens: int | None,
        clock: Callable[[], float],
    ) -> None:
        self._engine, self._session_id = engine, session_id
        self._clock, self._started = clock, clock()
        self._messages = len(messages)
        self.sizes: Sizes = Sizes()
        self.tokens: int = self.sizes.total(messages)
        self._prompt_tokens = max(prompt_tokens, self.tokens)
        self._limits: dict[str, Any] = {
            "threshold": engine.threshold_tokens,
            "window": engine.context_length,
            "answer": answer_tokens,
        }
        self.asked: bool = forced or bool(focus)
        """Whether a person or an overflow asked for it, so that it folds whatever can be folded."""
        self.targets: Targets = targets(self.tokens, self._prompt_tokens, **self._limits, asked=self.asked)
        focused = f"asked for, with focus on {redact(focus)}" if focus else ""
        engine.emit(
            CompactionStarted(
                session_id=session_id,
                reason=focused or ("asked for" if forced else "the window is filling"),
                messages=self._messages,
                tokens=self.tokens,
                prompt_tokens=prompt_tokens,
            )
        )

    def finish(
        self,
        result: Sequence[Message],
        status: Status,
        reason: str,
        spent: SummaryCosts | None,
        cut: Iterable[int] = (),
    ) -> int:
        """Report the compaction, and return how large a request must be for the next one.

        `cut` are the places of unread messages that had to be shortened.
        """
        summary, masked = zone_tokens(result, self.sizes) if status in FOLDED else (0, 0)
        report = CompactionReport(
            status=status,
            reason=reason,
            tokens_before=self.tokens,
            tokens_after=self.sizes.total(result),
            messages_before=self._messages,
            messages_after=len(result),
            model_calls=spent.model_calls if spent else 0,
            seconds=self._clock() - self._started,
            cost_usd=spent.cost_usd if spent else None,
            unfoldable=unfoldable(result, self.sizes, self.targets.goal, cut=cut),
            summary_tokens=summary,
            masked_tokens=masked,
        )
        self._engine.last_compaction = report
        self._engine.compression_count += report.folded
        if spent and spent.fallback:
            self._engine.emit(
                SummaryFellBack(session_id=self._session_id, error=spent.fallback, retry_in=spent.retry_in)
            )
        self._engine.emit(report.finished(self._session_id))
        return fires_at(report, self._prompt_tokens, **self._limits)
