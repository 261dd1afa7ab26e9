"""What our two engines share: when they fire, the model of their summaries, and the last fold again.

A host must go on with the list that `compress()` returns. One that keeps its own list instead hands over everything
again at the next request, and a fold from scratch would be due every time. So the last fold is applied again to such a
list (`last_fold.py`), and whether the shorter list is folded once more is decided as if the host had used it.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Self

from leporello.engine import ContextEngine, normalise_usage
from leporello.errors import UnusedFoldWarning, warn_caller
from leporello.events import Notice
from leporello.messages import repair
from leporello.summary.last_fold import LastFold
from leporello.summary.run import CompactionRun
from leporello.summary.summariser import Summariser
from leporello.tokens import count_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from leporello.engine import Status
    from leporello.llm import LLM
    from leporello.messages import Message
    from leporello.summary.last_fold import Reapplied
    from leporello.summary.run import SummaryCosts

UNUSED = (
    "the list that compress() returned was not used: the conversation went on with the longer list from before. "
    "Keep the result (messages = engine.compress(messages, ...)) and append to it. Until then the last fold is "
    "applied again to every list that is handed over."
)


class SummarisingEngine(ContextEngine):
    """An engine that replaces older messages by summaries; a subclass says how in `_fold`."""

    def __init__(
        self,
        llm: LLM | None,
        *,
        max_calls: int,
        deadline_seconds: float,
        timeout_seconds: float,
        answer_tokens: int | None,
        clock: Callable[[], float],
    ) -> None:
        self._summariser = Summariser(
            llm, clock=clock, max_calls=max_calls, deadline_seconds=deadline_seconds, timeout_seconds=timeout_seconds
        )
        self._answer_tokens = answer_tokens
        self._clock = clock
        self._session_id = ""
        self._last_fold = LastFold()
        self._fires_at = 0
        """The tokens that a request must have for the next fold; 0 leaves it to the threshold."""
        self._asked_about = 0
        """The tokens of the request that the engine was asked about last."""
        self._warned = False

    @property
    def folds_at(self) -> int:
        """The tokens of the request that is folded next: the threshold, or more after a fold that left little room."""
        return max(self.threshold_tokens, self._fires_at) if self.threshold_tokens else 0

    def on_session_reset(self) -> None:
        """Forget the conversation that ended."""
        super().on_session_reset()
        self.last_compaction = None
        self._forget_folds()

    def use_model(self, llm: LLM | None) -> None:
        """Make summaries with another model or key from now on; errors of the one before are forgotten."""
        self._summariser.configure(llm)

    def update_from_response(self, usage: dict[str, Any]) -> None:
        """Take the provider's count; an empty one says nothing and changes nothing."""
        counted = normalise_usage(usage)
        if counted["total_tokens"]:
            self.last_prompt_tokens: int = counted["prompt_tokens"]
            self.last_completion_tokens: int = counted["completion_tokens"]
            self.last_total_tokens: int = counted["total_tokens"]

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """Fire at the threshold, and after a fold only when the window has grown again."""
        tokens = self.last_prompt_tokens if prompt_tokens is None else prompt_tokens
        self._asked_about = max(tokens, 0)
        return 0 < self.threshold_tokens <= tokens and tokens >= self._fires_at

    def compress(
        self,
        messages: list[Message],
        current_tokens: int | None = None,
        focus_topic: str | None = None,
        force: bool = False,
        memory_context: str = "",
    ) -> list[Message]:
        """Replace older messages by summaries, and return the new list."""
        again = self._last_fold.reapplied(messages)
        if again is not None:
            self._note_unused(messages)
            return self._fold_again(again, current_tokens, focus_topic, force=force, memory_context=memory_context)
        run = CompactionRun(
            self,
            self._session_id,
            messages,
            max(current_tokens or 0, self._asked_about),
            focus=focus_topic or "",
            forced=force,
            answer_tokens=self._answer_tokens,
            clock=self._clock,
        )
        return self._fold(run, messages, focus_topic or "", memory_context)

    def go_on_from(self, parent: Self) -> None:
        """Go on on a fork from where the engine of its parent stands: its last fold is not made anew at once."""
        self._fires_at = parent._fires_at
        self.last_prompt_tokens = parent.last_prompt_tokens

    def get_status(self) -> dict[str, Any]:
        """Return the counters and how the summariser is doing."""
        return {**super().get_status(), "summariser": self._summariser.status()}

    @abstractmethod
    def _fold(self, run: CompactionRun, messages: list[Message], focus: str, memory: str) -> list[Message]:
        """Fold a list, and return what `_finish` returns."""

    def _finish(
        self,
        run: CompactionRun,
        result: Sequence[Message],
        status: Status,
        reason: str,
        spent: SummaryCosts | None = None,
        *,
        cut: Iterable[int] = (),
    ) -> list[Message]:
        """Report a compaction, set the size at which the next may come, and return the result."""
        self._asked_about = 0
        self._fires_at = run.finish(result, status, reason, spent, cut)
        return list(result)

    def _fold_again(
        self, again: Reapplied, current_tokens: int | None, focus_topic: str | None, *, force: bool, memory_context: str
    ) -> list[Message]:
        """Return a list with the last fold in its place, folded once more when that is due or was asked for."""
        own = count_messages(again.messages)
        now = max(own, max(current_tokens or 0, self._asked_about) - again.saved_tokens)
        if not (self.should_compress(now) or focus_topic or force):
            self.last_compaction = again.report(own)
            return self._repaired(again.messages)
        folds = self.compression_count
        result = self.compress(again.messages, now if current_tokens else None, focus_topic, force, memory_context)
        report = self.last_compaction
        if self.compression_count > folds and report is not None:
            saved = again.saved_tokens + report.tokens_before - report.tokens_after
            self._last_fold.remember(again.given, result, saved)
        return result

    def _note_unused(self, messages: list[Message]) -> None:
        """Say once that a fold was not used; without a listener, as a warning at the line that called the engine."""
        if self._warned:
            return
        self._warned = True
        self.emit(Notice(session_id=self._session_id, text=UNUSED))
        if self.on_event is None:
            warn_caller(UNUSED, UnusedFoldWarning)

    def _repaired(self, messages: list[Message]) -> list[Message]:
        """Return a valid list."""
        return list(repair(messages).messages)

    def _forget_folds(self) -> None:
        """Turn to another conversation."""
        self._last_fold.forget()
        self._fires_at = 0
        self._asked_about = 0
