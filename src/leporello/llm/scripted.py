"""A model that says what a test tells it to, and remembers what it was asked."""

from __future__ import annotations

import copy
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from leporello.engine import normalise_usage
from leporello.errors import ContextTooLongError, EmptyAnswerError, ModelError, NetworkError
from leporello.llm.client import Completion, visible_text
from leporello.messages.types import Message, text_of
from leporello.tokens import count_messages, count_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Answer: TypeAlias = "str | Completion | ModelError | Callable[[list[Message]], Answer]"


@dataclass(frozen=True, kw_only=True)
class ScriptedCall:
    """One call that a `ScriptedLLM` received."""

    messages: list[Message]
    max_tokens: int
    timeout: float

    @property
    def prompt(self) -> str:
        """The text of all messages, one after the other."""
        return "\n\n".join(text_of(message) for message in self.messages)


class FakeClock:
    """A clock that moves only when it is told to; call it for the time."""

    def __init__(self, now: float = 0.0) -> None:
        self.now: float = now

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Move on (or, with a negative number, back)."""
        self.now += seconds


class ScriptedLLM:
    """Play answers in order; a single answer, or `then`, is given to every further call.

    An answer is a text (what the provider said: its thinking is removed and an empty one is refused, as the real
    clients do), a `Completion` (handed out as it is), a `ModelError` (raised), or a function of the messages that
    returns one of these or raises. A call beyond the end of the script is an `AssertionError`: the test asked for less
    than it got.

    With `context_length`, a longer prompt is refused as a provider would. With `clock`, every call moves it on by
    `seconds`; a call that takes longer than its timeout moves it by the timeout and raises `NetworkError`.
    """

    def __init__(
        self,
        answers: Answer | Iterable[Answer] = (),
        *,
        then: Answer | None = None,
        model: str = "scripted",
        provider: str = "scripted",
        context_length: int = 0,
        seconds: float = 0.0,
        clock: FakeClock | None = None,
    ) -> None:
        self.model = model
        self.provider = provider
        self.context_length = context_length
        self.calls: list[ScriptedCall] = []
        if isinstance(answers, (str, Completion, ModelError)) or callable(answers):
            self._answers: list[Answer] = []
            self._then: Answer | None = answers
        else:
            self._answers = list(answers)
            self._then = then
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()

    @property
    def prompts(self) -> list[str]:
        """The text of every prompt so far."""
        return [call.prompt for call in self.calls]

    def complete(self, messages: list[Message], *, max_tokens: int, timeout: float) -> Completion:
        """Record the call and play the next answer."""
        answer = self._next(ScriptedCall(messages=copy.deepcopy(messages), max_tokens=max_tokens, timeout=timeout))
        self._refuse_too_long(messages)
        self._spend(timeout)
        while not isinstance(answer, (str, Completion, ModelError)):
            answer = answer(copy.deepcopy(messages))
        if isinstance(answer, ModelError):
            raise answer
        return self._completion(answer, messages) if isinstance(answer, str) else answer

    def _next(self, call: ScriptedCall) -> Answer:
        with self._lock:
            self.calls.append(call)
            if self._answers:
                return self._answers.pop(0)
        if self._then is None:
            raise AssertionError(
                f"the script of this ScriptedLLM has ended, but call {len(self.calls)} came: "
                "add an answer, or pass then= for all further calls"
            )
        return self._then

    def _refuse_too_long(self, messages: list[Message]) -> None:
        if self.context_length and (tokens := count_messages(messages)) > self.context_length:
            raise ContextTooLongError(
                f"the prompt has {tokens} tokens, the window of {self.model} {self.context_length}",
                limit=self.context_length,
                actual=tokens,
                provider=self.provider,
                status=400,
            )

    def _spend(self, timeout: float) -> None:
        if self._clock is None:
            return
        self._clock.advance(min(self._seconds, timeout))
        if self._seconds > timeout:
            raise NetworkError(f"{self.model} did not answer within {timeout:g} s", provider=self.provider)

    def _completion(self, said: str, messages: list[Message]) -> Completion:
        text = visible_text(said)
        if not text:
            raise EmptyAnswerError(f"{self.model} answered without text", provider=self.provider)
        usage = normalise_usage({"prompt_tokens": count_messages(messages), "completion_tokens": count_text(said)})
        return Completion(text=text, usage=usage, model=self.model)
