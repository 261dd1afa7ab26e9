"""A model behind bounds of calls and time, with one retry, and an account of what was used."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeVar

from leporello.engine import normalise_usage
from leporello.errors import ContextTooLongError, MalformedAnswerError, ModelError, NetworkError, OutputLimitError
from leporello.llm.client import cost_of, no_usage
from leporello.redact import redact
from leporello.summary.answers import NotShorterError
from leporello.tokens import count_messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from leporello.engine import Usage
    from leporello.llm.client import LLM, Completion
    from leporello.messages.types import Message
    from leporello.summary.request import Clock, Sleep

T = TypeVar("T")

ASSUMED_WINDOW = 32_768
"""The window of an unknown model: small enough for nearly every model that is served today."""

MIN_WINDOW = 2_048
LONGEST_WAIT = 10.0
"""A Retry-After of more seconds than this is not waited for."""

_SHORTEST_CALL = 1.0
_CAUTIOUS_OUTPUT = 4_096
_LARGER_OUTPUT = 2
_CLIENT_ERRORS = range(400, 500)


class Calls:
    """Ask a model within limits; after a failure, or at a limit, it is closed and every further question is None."""

    def __init__(
        self,
        llm: LLM,
        *,
        clock: Clock,
        sleep: Sleep,
        max_calls: int,
        deadline: float,
        timeout: float,
        window: int = 0,
    ) -> None:
        self._llm = llm
        self._clock = clock
        self._sleep = sleep
        self._max_calls = max_calls
        self._deadline = deadline
        self._allowed_seconds = deadline - clock()
        self._timeout = timeout
        self._output_limit: int | None = None
        self._output_factor = 1
        self.window: int = window or llm.context_length or ASSUMED_WINDOW
        self.made: int = 0
        self.answers: int = 0
        self.weakness: str = ""
        self.usage: Usage = no_usage()
        self.cost_usd: float | None = 0.0
        self.error: ModelError | None = None

    @property
    def open(self) -> bool:
        """Whether another call is possible: nothing has failed, and neither calls nor time are used up."""
        return self.left > 0

    @property
    def left(self) -> int:
        """How many more calls are possible."""
        closed = self.error is not None or self._seconds_left() < _SHORTEST_CALL
        return 0 if closed else max(0, self._max_calls - self.made)

    @property
    def bounds(self) -> str:
        """What bounds the calls, in words."""
        return f"at most {self._max_calls} calls in {self._allowed_seconds:.0f} s are made for a summary"

    def ask(self, messages: list[Message], *, max_tokens: int, read: Callable[[Completion], T]) -> T | None:
        """Return what `read` makes of the answer, or None when the model cannot or can no longer be asked.

        A retryable error, also one that `read` raises, leads to one more try. A prompt that is too long is the
        caller's to correct: that error is raised.
        """
        for last in (False, True):
            if not self.open:
                return None
            try:
                answer = read(self._complete(messages, max_tokens))
            except ContextTooLongError:
                raise
            except ModelError as error:
                if not last and self._may_retry(error, max_tokens):
                    continue
                self._give_up(error)
                return None
            self.answers += 1
            return answer
        return None

    def shrink(self, error: ContextTooLongError) -> None:
        """Believe the window that the provider named, or a good part of what was believed before."""
        smaller = self.window // 2 if error.limit is None else min(error.limit, self.window * 3 // 4)
        self.window = max(min(MIN_WINDOW, self.window), smaller)

    def close(self, error: ModelError) -> None:
        """Ask no more."""
        self.error = error

    def _complete(self, messages: list[Message], max_tokens: int) -> Completion:
        self.made += 1
        allowed = min(self._output_tokens(max_tokens, messages), self._output_limit or sys.maxsize)
        timeout = min(self._timeout, self._seconds_left())
        try:
            completion = self._llm.complete(messages, max_tokens=allowed, timeout=timeout)
        except (ModelError, AssertionError):
            raise
        except Exception as error:
            # A foreign client may raise anything, and the conversation must survive it.
            raise ModelError(redact(f"{type(error).__name__}: {error}"), provider=self._llm.provider) from error
        if not isinstance(getattr(completion, "text", None), str):
            raise MalformedAnswerError(f"{self._llm.model} answered with no text but {type(completion).__name__}")
        self._account(completion)
        return completion

    def _output_tokens(self, max_tokens: int, messages: list[Message]) -> int:
        """Return how long an answer may be: as asked for, or several times as long while the window allows it."""
        if self._output_factor == 1:
            return max_tokens
        return min(max_tokens * self._output_factor, max(max_tokens, self.window - count_messages(messages)))

    def _account(self, completion: Completion) -> None:
        for key, value in normalise_usage(completion.usage).items():
            self.usage[key] = self.usage[key] + value  # type: ignore[literal-required]
        price = cost_of(self._llm, completion)
        self.cost_usd = None if price is None or self.cost_usd is None else self.cost_usd + price

    def _may_retry(self, error: ModelError, max_tokens: int) -> bool:
        if isinstance(error, OutputLimitError):
            return self._asks_differently(error, max_tokens)
        if not error.retryable:
            return False
        wait = error.retry_after or 0.0
        if wait > min(LONGEST_WAIT, self._seconds_left() - _SHORTEST_CALL):
            return False
        if wait > 0:
            self._sleep(wait)
        return True

    def _asks_differently(self, error: OutputLimitError, max_tokens: int) -> bool:
        """Ask for a shorter answer when the provider refuses its length, for a longer one after thinking used it up."""
        if error.status in _CLIENT_ERRORS and self._output_limit is None:
            self._output_limit = min(_CAUTIOUS_OUTPUT, max_tokens // 2)
            return True
        if error.status not in _CLIENT_ERRORS and self._output_factor == 1:
            self._output_factor = _LARGER_OUTPUT
            return True
        return False

    def _give_up(self, error: ModelError) -> None:
        """Close after a failure of the model, but not for one weak answer nor for our own limit of time."""
        if isinstance(error, NotShorterError):
            self.weakness = error.problem
        elif not (self.answers and isinstance(error, NetworkError) and self._seconds_left() < _SHORTEST_CALL):
            self.error = error

    def _seconds_left(self) -> float:
        return min(self._allowed_seconds, max(0.0, self._deadline - self._clock()))
