"""The auxiliary model that is configured in Hermes Agent, as a model that writes summaries."""

from __future__ import annotations

import threading
from concurrent.futures import Future, TimeoutError as WaitedTooLongError
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from leporello.engine import normalise_usage
from leporello.errors import EmptyAnswerError, NetworkError
from leporello.llm.client import Completion, visible_text
from leporello.llm.errors import classify

if TYPE_CHECKING:
    from leporello.messages import Message

TASK: Final = "compression"


@dataclass(frozen=True, kw_only=True)
class AuxiliaryModel:
    """Asks through Hermes Agent, which knows the keys; `runtime` is the main model, which it falls back to."""

    model: str
    runtime: dict[str, str] = field(default_factory=dict, repr=False)
    context_length: int = 0
    provider: str = "hermes"

    def complete(self, messages: list[Message], *, max_tokens: int, timeout: float) -> Completion:
        """Ask once; the time limit is for the whole call, with what Hermes Agent tries again in it."""
        try:
            answer = self._asked(messages, max_tokens, timeout).result(timeout)
        except WaitedTooLongError:
            raise NetworkError(f"no answer within {timeout:g} s", provider=self.provider) from None
        except Exception as error:  # noqa: BLE001 - the protocol promises a ModelError for whatever goes wrong
            raise classify(error, provider=self.provider, secret=self.runtime.get("api_key", "")) from None
        text = visible_text(answer.choices[0].message.content or "")
        if not text:
            raise EmptyAnswerError("the auxiliary model answered without text", provider=self.provider)
        usage = normalise_usage(getattr(answer, "usage", None))
        return Completion(text=text, usage=usage, model=getattr(answer, "model", "") or self.model)

    def _asked(self, messages: list[Message], max_tokens: int, timeout: float) -> Future[Any]:
        """Ask in a thread of its own: a call that hangs is left behind."""
        answer: Future[Any] = Future()
        threading.Thread(
            target=copy_context().run, args=(self._ask, answer, messages, max_tokens, timeout), daemon=True
        ).start()
        return answer

    def _ask(self, answer: Future[Any], messages: list[Message], max_tokens: int, timeout: float) -> None:
        try:
            from agent.auxiliary_client import call_llm  # type: ignore[import-not-found]

            asked = {"main_runtime": self.runtime} if self.runtime else {}
            answer.set_result(
                call_llm(task=TASK, messages=list(messages), max_tokens=max_tokens, timeout=timeout, **asked)
            )
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
            answer.set_exception(error)


def context_length_of(settings: dict[str, Any], main: int) -> int:
    """Return the window of the auxiliary model: the main model's, unless Hermes Agent names another model."""
    auxiliary = settings.get("auxiliary")
    named = auxiliary.get(TASK) if isinstance(auxiliary, dict) else None
    if not isinstance(named, dict) or not named.get("model"):
        return main
    window = named.get("context_length")
    return window if isinstance(window, int) else 0
