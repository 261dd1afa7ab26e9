"""What a provider refuses: keys, models, sequences of messages, sizes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING

from leporello.messages import violations
from leporello.messages.custom_calls import with_function_calls
from leporello.testing.model_server.answer import prompt_tokens
from leporello.testing.model_server.cache import wrong_marks
from leporello.testing.model_server.failures import REFUSALS, Failure, HTTPFailure, Planned, invalid, overflow

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leporello.testing.model_server.requests import ReceivedRequest

_SUMS = {"openai": "deepseek", "anthropic": "anthropic-sum", "responses": "responses"}
_SMALLEST_WINDOW = 1024
_OUTPUT_LIMIT = 4096


@dataclass(frozen=True, kw_only=True)
class Checks:
    """The limits of a model server; see `ModelServer` for what each means."""

    window: int | None
    output_limit: int | None
    wording: str
    reserves_output: bool
    models: Sequence[str] | None
    accepts_key: Callable[[str], bool]
    fails_inside: bool = False

    def refusal(self, request: ReceivedRequest, key: str) -> HTTPFailure | None:
        """Return why a request is refused, looked for in the order in which providers do."""
        return self.refused_before_size(request, key) or self._wrong_size(request)

    def refused_before_size(self, request: ReceivedRequest, key: str) -> HTTPFailure | None:
        """Return why a request is refused whatever its size is."""
        if not self.accepts_key(key):
            return REFUSALS[Failure.BAD_KEY]
        if request.unreadable:
            return invalid(f"We could not read your request: {request.unreadable}")
        return self._wrong_model(request) or _wrong_sequence(request) or _wrong_marks(request)

    def planned(self, request: ReceivedRequest, planned: Planned) -> HTTPFailure | None:
        """Return the HTTP error that a planned failure is, if it is one."""
        if planned.failure is Failure.RATE_LIMITED:
            return replace(REFUSALS[planned.failure], headers={"retry-after": f"{planned.retry_after:g}"})
        if planned.failure is Failure.CONTEXT_TOO_LONG:
            window = self.window or max(_SMALLEST_WINDOW, prompt_tokens(request) - 1)
            return self._overflow(request, window, max(prompt_tokens(request), window + 1), planned.wording)
        if planned.failure is Failure.OUTPUT_LIMIT:
            return self._too_much_output(request)
        return REFUSALS.get(planned.failure)

    def _wrong_model(self, request: ReceivedRequest) -> HTTPFailure | None:
        if not request.model:
            return invalid("model: Field required")
        if self.models is None or request.model in self.models:
            return None
        unknown = REFUSALS[Failure.UNKNOWN_MODEL]
        return replace(unknown, message=f"The model `{request.model}` does not exist or you do not have access to it.")

    def _wrong_size(self, request: ReceivedRequest) -> HTTPFailure | None:
        output = request.max_tokens or 0
        if request.dialect == "anthropic" and not output:
            return invalid("max_tokens: Field required")
        if self.output_limit is not None and output > self.output_limit:
            return self._too_much_output(request)
        if self.window is None:
            return None
        actual = prompt_tokens(request)
        if actual + (output if self.reserves_output else 0) <= self.window:
            return None
        return self._overflow(request, self.window, actual, self.wording)

    def _overflow(self, request: ReceivedRequest, window: int, actual: int, wording: str) -> HTTPFailure:
        own = _SUMS[request.dialect] if self.reserves_output else request.dialect
        words = wording or self.wording or own
        refusal = overflow(words, window=window, actual=actual, output=request.max_tokens or 0)
        inside = self.fails_inside and request.dialect == "responses"
        return replace(refusal, status=HTTPStatus.OK) if inside else refusal

    def _too_much_output(self, request: ReceivedRequest) -> HTTPFailure:
        asked, limit = request.max_tokens or 0, self.output_limit or _OUTPUT_LIMIT
        if request.dialect == "anthropic":
            return invalid(
                f"max_tokens: {asked} > {limit}, "
                f"which is the maximum allowed number of output tokens for {request.model}"
            )
        return invalid(
            f"max_tokens is too large: {asked}. This model supports at most {limit} completion tokens, "
            f"whereas you provided {asked}.",
            code="invalid_value",
        )


def _wrong_sequence(request: ReceivedRequest) -> HTTPFailure | None:
    if request.dialect == "responses":
        return request.refused if request.refused or request.items else invalid("Missing required parameter: 'input'.")
    found = violations(list(map(with_function_calls, request.messages)), request.dialect)
    if not found:
        return None
    place = f"messages.{found[0].index}" if found[0].index >= 0 else "messages"
    return invalid(f"{place}: {found[0].message}", code=found[0].code)


def _wrong_marks(request: ReceivedRequest) -> HTTPFailure | None:
    problem = wrong_marks(request)
    return invalid(problem) if problem else None
