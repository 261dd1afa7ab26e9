"""The summariser that both engines use: a model while there is one that works, the extractive summariser otherwise.

What happens after a failure depends on what would end it:

    refused key        the model waits for another key or configuration: `configure`
    no credit left     it is tried again after an hour; credit may be refilled unnoticed
    anything else      it is tried again after 60 s, and after every further failure in a row twice as long, up to
                       600 s; a longer Retry-After of the provider is respected, up to an hour

A success ends the row. Every waiting time ends, also when the clock is set back.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from leporello.errors import AuthenticationError, ModelError, QuotaError
from leporello.redact import redact
from leporello.summary.calls import Calls
from leporello.summary.model import extractive_text, summarise_with_model
from leporello.summary.request import Clock, Sleep, Summary, SummaryRequest

if TYPE_CHECKING:
    from leporello.llm.client import LLM
    from leporello.redact import Redacted

__all__ = ["Summariser", "Summary", "SummaryRequest"]

FIRST_COOLDOWN, LONGEST_COOLDOWN = 60.0, 600.0
QUOTA_COOLDOWN = 3_600.0


@dataclass(frozen=True, kw_only=True)
class _Trouble:
    """A failure that still counts: the model rests for `seconds` from `since`, None until it is configured anew."""

    error: ModelError
    since: float
    seconds: float | None
    in_a_row: int = 1


class Summariser:
    """Make summaries, with a model while it works and without one while it does not.

    At most `max_calls` calls and `deadline_seconds` are spent on a summary, and `timeout_seconds` on a call. `clock`
    and `sleep` are for tests and for hosts that bring their own.
    """

    def __init__(
        self,
        llm: LLM | None = None,
        *,
        clock: Clock = time.monotonic,
        sleep: Sleep = time.sleep,
        max_calls: int = 24,
        deadline_seconds: float = 120.0,
        timeout_seconds: float = 60.0,
    ) -> None:
        self._llm = llm
        self._clock = clock
        self._sleep = sleep
        self._max_calls = max_calls
        self._deadline_seconds = deadline_seconds
        self._timeout_seconds = timeout_seconds
        self._trouble: _Trouble | None = None
        self._window = 0

    @property
    def llm(self) -> LLM | None:
        """The model in use, or None."""
        return self._llm

    def configure(self, llm: LLM | None) -> None:
        """Use another model, key or configuration from now on; what went wrong with the one before no longer counts.

        Handing over the same object again changes nothing.
        """
        if llm is not self._llm:
            self._llm, self._trouble, self._window = llm, None, 0

    def summarise(
        self, request: SummaryRequest, *, max_calls: int | None = None, deadline_seconds: float | None = None
    ) -> Summary:
        """Return a summary, whatever the model does; tighter limits can be set for this one."""
        if self._llm is None:
            return Summary(text=extractive_text(request))
        if self._trouble is not None and self._resting(self._trouble):
            text = extractive_text(request)
            return self._explained(Summary(text=text, partly_extractive=True, error=self._trouble.error), self._trouble)
        calls = self._max_calls if max_calls is None else min(max_calls, self._max_calls)
        seconds = self._deadline_seconds if deadline_seconds is None else min(deadline_seconds, self._deadline_seconds)
        return self._asked(self._llm, request, calls, seconds)

    def status(self) -> dict[str, Any]:
        """Return what a display needs: the model, the last failure, and when the model is tried again.

        `retry_in` is None when nothing is wrong, and when only another key or configuration helps.
        """
        trouble = self._trouble
        return {
            "model": self._llm.model if self._llm else "",
            "provider": self._llm.provider if self._llm else "",
            "available": self._llm is not None and (trouble is None or not self._resting(trouble)),
            "last_error": _words(trouble.error) if trouble else "",
            "failures_in_a_row": trouble.in_a_row if trouble else 0,
            "retry_in": self._retry_in(trouble) if trouble else None,
        }

    def _asked(self, llm: LLM, request: SummaryRequest, max_calls: int, seconds: float) -> Summary:
        calls = Calls(
            llm,
            clock=self._clock,
            sleep=self._sleep,
            max_calls=max_calls,
            deadline=self._clock() + seconds,
            timeout=self._timeout_seconds,
            window=self._window,
        )
        summary = summarise_with_model(calls, request)
        self._window = calls.window
        if summary.error is not None:
            self._trouble = self._failed(summary.error)
            return self._explained(summary, self._trouble)
        if calls.answers:
            self._trouble = None
        return summary

    def _failed(self, error: ModelError) -> _Trouble:
        in_a_row = self._trouble.in_a_row + 1 if self._trouble else 1
        # What is kept until the model works again must not hold the frames of the call, and with them the conversation.
        error.__traceback__ = error.__context__ = error.__cause__ = None
        return _Trouble(error=error, since=self._clock(), seconds=_cooldown(error, in_a_row), in_a_row=in_a_row)

    def _explained(self, summary: Summary, trouble: _Trouble) -> Summary:
        return replace(summary, fallback=_words(trouble.error), retry_in=self._retry_in(trouble))

    def _resting(self, trouble: _Trouble) -> bool:
        retry_in = self._retry_in(trouble)
        return retry_in is None or retry_in > 0

    def _retry_in(self, trouble: _Trouble) -> float | None:
        if trouble.seconds is None:
            return None
        now = self._clock()
        if now < trouble.since:
            # The clock was set back: the rest begins anew instead of lasting as long as the clock was wrong.
            self._trouble = replace(trouble, since=now)
            return trouble.seconds
        return max(0.0, trouble.since + trouble.seconds - now)


def _cooldown(error: ModelError, in_a_row: int) -> float | None:
    if isinstance(error, AuthenticationError):
        return None
    if isinstance(error, QuotaError):
        return QUOTA_COOLDOWN
    growing = min(LONGEST_COOLDOWN, FIRST_COOLDOWN * 2.0 ** min(in_a_row - 1, 10))
    return max(growing, min(error.retry_after or 0.0, QUOTA_COOLDOWN))


def _words(error: ModelError) -> Redacted:
    return redact(str(error) or type(error).__name__)
