"""One vocabulary for what providers answer.

`classify` reads an exception of the official packages, or a status with a body, and returns the `ModelError` that says
what to do about it. It knows the providers' wordings, because many of them send one status for several causes, and the
same cause with several. The order of the rules matters:

1. Refusals that look like something else: a window that the account does not have, and a request larger than a
   minute's allowance, arrive as rate limits but only a shorter input helps; an empty account arrives as 400, 402, 403
   or 429, and waiting does not fill it.
2. Rate limits, keys and refused content.
3. Sizes. An output limit is never an input overflow: folding the conversation for it would not help, and would be done
   again and again. Where a provider adds input and output, `wordings.Sum` decides.
4. What the status alone says.
"""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from leporello.errors import (
    AuthenticationError,
    ContextTooLongError,
    MalformedAnswerError,
    ModelError,
    NetworkError,
    OutputLimitError,
    OverloadedError,
    QuotaError,
    RateLimitError,
    RequestRefusedError,
)
from leporello.llm import wordings
from leporello.llm.refusal import Refusal, read_exception, read_response
from leporello.messages.visible import one_line
from leporello.redact import redact
from leporello.tokens.overflow import overflow_numbers

if TYPE_CHECKING:
    from collections.abc import Mapping

_LONGEST_QUOTE = 500
_SHORTEST_KEY = 8
"""What local servers are sent in place of a key is a word, not a secret."""

_BY_NAME: dict[str, type[ModelError]] = {
    "APITimeoutError": NetworkError,
    "APIConnectionError": NetworkError,
    "TimeoutException": NetworkError,
    "TransportError": NetworkError,
    "StreamError": NetworkError,
    "TimeoutError": NetworkError,
    "OSError": NetworkError,
    "WebSocketConnectionClosedError": NetworkError,
    "WebSocketQueueFullError": NetworkError,
    "RetryableError": OverloadedError,
    "APIResponseValidationError": MalformedAnswerError,
    "APIWebhookValidationError": MalformedAnswerError,
    "InvalidWebhookSignatureError": MalformedAnswerError,
    "DecodingError": MalformedAnswerError,
    "JSONDecodeError": MalformedAnswerError,
    "UnicodeDecodeError": MalformedAnswerError,
    "UnicodeEncodeError": RequestRefusedError,
    "TypeError": RequestRefusedError,
    "CredentialsError": AuthenticationError,
    "SubjectTokenProviderError": AuthenticationError,
    "WorkloadIdentityError": AuthenticationError,
    "MutuallyExclusiveAuthError": AuthenticationError,
    "LengthFinishReasonError": OutputLimitError,
    "ContentFilterFinishReasonError": RequestRefusedError,
}
"""What exceptions without a status mean, by the name of the class or of one of its bases; both packages use these."""

_HINTS: dict[type[ModelError], str] = {
    AuthenticationError: "check the API key",
    QuotaError: "add credit or use another provider",
}


def classify(
    problem: BaseException | None = None,
    *,
    status: int | None = None,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
    provider: str = "",
    secret: str = "",
    now: float | None = None,
) -> ModelError:
    """Return what an exception, or a status with its body, means.

    `secret` (the key that was used) and known shapes of secrets are taken out of the text. `now` is the time that a
    Retry-After date is compared with; the present, if it is not given.
    """
    if isinstance(problem, ModelError):
        return problem
    moment = time.time() if now is None else now
    if problem is not None:
        refusal = read_exception(problem, moment)
    else:
        refusal = read_response(status, body, headers or {}, moment)
    kind, numbers = _kind(refusal)
    text = _sentence(refusal, kind, provider, secret)
    if issubclass(kind, ContextTooLongError):
        return kind(text, limit=numbers[0], actual=numbers[1], provider=provider, status=refusal.status)
    return kind(text, provider=provider, status=refusal.status, retry_after=refusal.retry_after)


_Kind = tuple[type[ModelError], tuple[int | None, int | None]]
_NO_NUMBERS = (None, None)


def _kind(refusal: Refusal) -> _Kind:
    """Decide, first rule first."""
    for rule in (_disguised, _known_exception, _not_about_size, _about_size):
        if (kind := rule(refusal)) is not None:
            return kind
    return _by_status(refusal), _NO_NUMBERS


def _disguised(refusal: Refusal) -> _Kind | None:
    if wordings.LONG_CONTEXT_TIER.search(refusal.clues):
        return ContextTooLongError, (wordings.STANDARD_WINDOW, None)
    if allowance := wordings.LARGER_THAN_THE_MINUTE.search(refusal.clues):
        return ContextTooLongError, (int(allowance[1]), int(allowance[2]))
    if refusal.status == HTTPStatus.PAYMENT_REQUIRED or wordings.QUOTA.search(refusal.clues):
        return QuotaError, _NO_NUMBERS
    if wordings.QUOTA_OR_RATE.search(refusal.clues):
        refilled = refusal.retry_after is not None or wordings.REFILLED_BY_WAITING.search(refusal.clues)
        return RateLimitError if refilled else QuotaError, _NO_NUMBERS
    return None


def _known_exception(refusal: Refusal) -> _Kind | None:
    if refusal.status is not None:
        return None
    return next(((kind, _NO_NUMBERS) for name, kind in _BY_NAME.items() if name in refusal.causes), None)


def _not_about_size(refusal: Refusal) -> _Kind | None:
    status, clues = refusal.status, refusal.clues
    if status == HTTPStatus.TOO_MANY_REQUESTS or (status is None and wordings.RATE.search(clues)):
        return RateLimitError, _NO_NUMBERS
    if status in {None, 400, 403} and wordings.REFUSED_CONTENT.search(clues):
        return RequestRefusedError, _NO_NUMBERS
    if status in {401, 403} or (status in {None, 400, 404} and wordings.AUTHENTICATION.search(clues)):
        return AuthenticationError, _NO_NUMBERS
    return None


def _about_size(refusal: Refusal) -> _Kind | None:
    if total := wordings.read_sum(refusal.clues):
        if total.is_output:
            return OutputLimitError, _NO_NUMBERS
        return ContextTooLongError, (total.window, total.input)
    if wordings.OUTPUT.search(refusal.clues):
        return OutputLimitError, _NO_NUMBERS
    if refusal.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE or wordings.CONTEXT.search(refusal.clues):
        return ContextTooLongError, _window(refusal.clues)
    return None


def _window(clues: str) -> tuple[int | None, int | None]:
    named = overflow_numbers(clues)
    return named.limit, named.actual


def _by_status(refusal: Refusal) -> type[ModelError]:
    if refusal.status is None:
        return OverloadedError if wordings.OVERLOADED.search(refusal.clues) else MalformedAnswerError
    if refusal.status in {408, 499}:
        return NetworkError
    return OverloadedError if refusal.status >= HTTPStatus.INTERNAL_SERVER_ERROR else RequestRefusedError


def _sentence(refusal: Refusal, kind: type[ModelError], provider: str, secret: str) -> str:
    who = provider or "the model's provider"
    answered = f"{who} answered {refusal.status}" if refusal.status else who
    hint = f" ({_HINTS[kind]})" if kind in _HINTS else ""
    return f"{answered}: {_without_secrets(refusal.said, secret)}{hint}"


def _without_secrets(said: str, secret: str) -> str:
    text = redact(one_line(said.replace(secret, "[key]") if len(secret) >= _SHORTEST_KEY else said))
    return text if len(text) <= _LONGEST_QUOTE else text[:_LONGEST_QUOTE] + " …"
