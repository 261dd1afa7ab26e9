"""Every way in which a provider fails, and what it sends then."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leporello.messages import Dialect


class Failure(enum.Enum):
    """A way to fail; hand it to `ModelServer.fail` or put it into a script."""

    BAD_KEY = "bad_key"
    NO_CREDIT = "no_credit"
    NO_QUOTA = "no_quota"
    FORBIDDEN = "forbidden"
    UNKNOWN_MODEL = "unknown_model"
    TOO_LARGE = "too_large"
    RATE_LIMITED = "rate_limited"
    SERVER_ERROR = "server_error"
    UNAVAILABLE = "unavailable"
    OVERLOADED = "overloaded"
    CONTEXT_TOO_LONG = "context_too_long"
    OUTPUT_LIMIT = "output_limit"
    CONTENT_FILTER = "content_filter"
    EMPTY_ANSWER = "empty_answer"
    REASONING_ONLY = "reasoning_only"
    CUT_BY_LENGTH = "cut_by_length"
    NOTHING_BEFORE_LENGTH = "nothing_before_length"
    MALFORMED_JSON = "malformed_json"
    WRONG_CONTENT_TYPE = "wrong_content_type"
    CLOSED_BEFORE_ANSWER = "closed_before_answer"
    CLOSED_IN_ANSWER = "closed_in_answer"
    BROKEN_STREAM = "broken_stream"
    ERROR_IN_STREAM = "error_in_stream"
    SLOW_START = "slow_start"
    DRIPPING = "dripping"


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A failure with its details: `seconds` of slowness, `retry_after` of a rate limit, `wording` of an overflow."""

    failure: Failure
    seconds: float = 1.0
    retry_after: float = 1.0
    wording: str = ""


@dataclass(frozen=True, kw_only=True)
class HTTPFailure:
    """An HTTP error before it takes the shape of a dialect; `body` is set where a provider has a shape of its own."""

    status: int
    type: str
    message: str
    code: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: Any = None

    def in_dialect(self, dialect: Dialect) -> Any:
        """Return the body as OpenAI or Anthropic would send it."""
        if self.body is not None:
            return self.body
        if dialect == "anthropic":
            return {
                "type": "error",
                "error": {"type": self.type, "message": self.message},
                "request_id": "req_loopback",
            }
        return {"error": {"message": self.message, "type": self.type, "param": None, "code": self.code}}


def invalid(message: str, code: str | None = None) -> HTTPFailure:
    """Return the refusal of a request that is wrong."""
    return HTTPFailure(status=400, type="invalid_request_error", message=message, code=code)


REFUSALS = {
    Failure.BAD_KEY: HTTPFailure(
        status=401, type="authentication_error", message="Incorrect API key provided.", code="invalid_api_key"
    ),
    Failure.NO_CREDIT: HTTPFailure(status=402, type="billing_error", message="Insufficient Balance"),
    Failure.NO_QUOTA: HTTPFailure(
        status=429,
        type="insufficient_quota",
        message="You exceeded your current quota, please check your plan and billing details.",
        code="insufficient_quota",
    ),
    Failure.FORBIDDEN: HTTPFailure(
        status=403, type="permission_error", message="Your API key does not have permission to use this resource."
    ),
    Failure.UNKNOWN_MODEL: HTTPFailure(
        status=404, type="not_found_error", message="The model does not exist.", code="model_not_found"
    ),
    Failure.TOO_LARGE: HTTPFailure(
        status=413, type="request_too_large", message="Request exceeds the maximum size of 32 MB."
    ),
    Failure.RATE_LIMITED: HTTPFailure(
        status=429, type="rate_limit_error", message="Rate limit reached.", code="rate_limit_exceeded"
    ),
    Failure.SERVER_ERROR: HTTPFailure(status=500, type="api_error", message="The server had an error."),
    Failure.UNAVAILABLE: HTTPFailure(status=503, type="api_error", message="Service unavailable."),
    Failure.OVERLOADED: HTTPFailure(status=529, type="overloaded_error", message="Overloaded"),
    Failure.CONTENT_FILTER: HTTPFailure(
        status=400,
        type="invalid_request_error",
        message="The response was filtered because the prompt triggered the content management policy.",
        code="content_filter",
    ),
}
"""The failures that are an HTTP error and nothing else."""


def overflow(wording: str, *, window: int, actual: int, output: int) -> HTTPFailure:
    """Return a provider's refusal of a request that is longer than its window, in that provider's words."""
    if wording not in WORDINGS:
        raise ValueError(f"unknown wording {wording!r}: use one of {', '.join(sorted(WORDINGS))}")
    status, text = WORDINGS[wording]
    message = text.format(window=window, actual=actual, output=output, total=actual + output)
    refusal = HTTPFailure(status=status, type="invalid_request_error", message=message, code="context_length_exceeded")
    return _in_own_shape(wording, refusal, window, actual)


def _in_own_shape(wording: str, refusal: HTTPFailure, window: int, actual: int) -> HTTPFailure:
    """Give a refusal the body that this provider wraps it in, where that is not the dialect's."""
    shapes: dict[str, Any] = {
        "gemini": [{"error": {"code": 400, "message": refusal.message, "status": "INVALID_ARGUMENT"}}],
        "vllm": {"object": "error", "message": refusal.message, "type": "BadRequestError", "param": None, "code": 400},
        "mistral": {"object": "error", "message": refusal.message, "type": "invalid_request_error", "code": "3051"},
        "xai": {"code": "Client specified an invalid argument", "error": refusal.message},
        "lmstudio": {"error": refusal.message},
        "bedrock": {"message": refusal.message},
        "openrouter": {"error": {"message": refusal.message, "code": 400, "metadata": {"provider_name": None}}},
        "llama.cpp": {
            "error": {
                "code": 400,
                "message": refusal.message,
                "type": "exceed_context_size_error",
                "n_prompt_tokens": actual,
                "n_ctx": window,
            }
        },
    }
    if wording not in shapes:
        return refusal
    return HTTPFailure(status=refusal.status, type=refusal.type, message=refusal.message, body=shapes[wording])


_COUNTED = "This model's maximum context length is {window} tokens. However, "
_EXCEEDS = "Your input exceeds the context window of this model. Please adjust your input and try again."
WORDINGS = {
    "openai": (400, _COUNTED + "your messages resulted in {actual} tokens. Please reduce the length of the messages."),
    "anthropic": (400, "prompt is too long: {actual} tokens > {window} maximum"),
    "responses": (400, _EXCEEDS),
    "anthropic-sum": (
        400,
        (
            "input length and `max_tokens` exceed context limit: {actual} + {output} > {window}, "
            "decrease input length or `max_tokens` and try again"
        ),
    ),
    "deepseek": (
        400,
        _COUNTED + "you requested {total} tokens ({actual} in the messages, {output} in the completion). "
        "Please reduce the length of the messages or completion.",
    ),
    "vllm": (
        400,
        _COUNTED + "you requested {output} output tokens and your prompt contains at least {actual} input tokens, "
        "for a total of at least {total} tokens. Please reduce the length of the input prompt.",
    ),
    "openrouter": (
        400,
        (
            "This endpoint's maximum context length is {window} tokens. However, you requested about {total} tokens "
            "({actual} of text input, {output} in the output). Please reduce the length of either one."
        ),
    ),
    "gemini": (
        400,
        "The input token count ({actual}) exceeds the maximum number of tokens allowed ({window}).",
    ),
    "mistral": (
        400,
        "Prompt contains {actual} tokens and 0 draft tokens, too large for model with {window} maximum context length",
    ),
    "xai": (400, "This model's maximum prompt length is {window} but the request contains {actual} tokens."),
    "groq": (400, "Please reduce the length of the messages or completion."),
    "bedrock": (400, "Input is too long for requested model."),
    "llama.cpp": (
        400,
        "the request exceeds the available context size. try increasing the context size or enable context shift",
    ),
    "lmstudio": (
        400,
        (
            "The number of tokens to keep from the initial prompt is greater than the context length "
            "(n_keep: {actual}>= n_ctx: {window}). Try to load the model with a larger context length, "
            "or provide a shorter input"
        ),
    ),
}
"""How providers say that a request does not fit, with the status they say it with."""
