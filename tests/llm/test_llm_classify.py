"""Exceptions of the official packages, and of what lies below them, end in our vocabulary."""

import inspect
import json
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from hypothesis import example, given, strategies as st

from leporello import errors
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
from leporello.llm import classify
from leporello.llm.errors import _BY_NAME

REQUEST = httpx2.Request("POST", "http://127.0.0.1/v1/chat/completions")

# What each exception class means when its body says nothing. A class without a row means what its nearest base with one
# means; the roots have no row, so a new kind of error that is no HTTP status must be given one.
MEANINGS: dict[str, type[ModelError]] = {
    "APIConnectionError": NetworkError,
    "APITimeoutError": NetworkError,
    "APIResponseValidationError": MalformedAnswerError,
    "APIWebhookValidationError": MalformedAnswerError,
    "APIStatusError": RequestRefusedError,
    "BadRequestError": RequestRefusedError,
    "AuthenticationError": AuthenticationError,
    "PermissionDeniedError": AuthenticationError,
    "NotFoundError": RequestRefusedError,
    "RequestTimeoutError": NetworkError,
    "ConflictError": RequestRefusedError,
    "PreconditionFailedError": RequestRefusedError,
    "ContentTooLargeError": ContextTooLongError,
    "UnprocessableEntityError": RequestRefusedError,
    "RateLimitError": RateLimitError,
    "RequestHeaderFieldsTooLargeError": RequestRefusedError,
    "ClientClosedRequestError": NetworkError,
    "InternalServerError": OverloadedError,
    "RetryableError": OverloadedError,
    "CredentialsError": AuthenticationError,
    "WorkloadIdentityError": AuthenticationError,
    "SubjectTokenProviderError": AuthenticationError,
    "MutuallyExclusiveAuthError": AuthenticationError,
    "LengthFinishReasonError": OutputLimitError,
    "ContentFilterFinishReasonError": RequestRefusedError,
    "InvalidWebhookSignatureError": MalformedAnswerError,
    "WebSocketConnectionClosedError": NetworkError,
    "WebSocketQueueFullError": NetworkError,
}
ROOTS = {"OpenAIError", "AnthropicError", "APIError"}
STATUS = {"APIStatusError": 418, "InternalServerError": 500, "APIResponseValidationError": 200}


def exception_classes(package: ModuleType) -> Iterator[type[BaseException]]:
    """Yield every exception class that a package defines for its users."""
    seen: set[type[BaseException]] = set()
    for module in (package, package._exceptions):
        for name, value in inspect.getmembers(module, inspect.isclass):
            public = value.__module__.startswith(package.__name__) and not name.startswith("_")
            if public and issubclass(value, BaseException) and value not in seen:
                seen.add(value)
                yield value


def made(kind: type[BaseException]) -> BaseException:
    """Make an exception as its package would, with an answer that explains nothing."""
    status = STATUS.get(kind.__name__, getattr(kind, "status_code", 400))
    given_values: dict[str, Any] = {
        "message": "something",
        "request": REQUEST,
        "response": httpx2.Response(status if isinstance(status, int) else 400, request=REQUEST),
        "body": None,
        "completion": openai.types.chat.ChatCompletion.model_construct(usage=None),
        "unsent_messages": [],
    }
    wanted = inspect.signature(kind.__init__).parameters
    named = {name: value for name, value in given_values.items() if name in wanted}
    return kind(**named) if named else kind("something")


def meaning_of(kind: type[BaseException]) -> type[ModelError] | None:
    return next((MEANINGS[base.__name__] for base in kind.__mro__ if base.__name__ in MEANINGS), None)


CLASSES = [*exception_classes(openai), *exception_classes(anthropic)]


@pytest.mark.parametrize("kind", CLASSES, ids=[f"{c.__module__.split('.')[0]}-{c.__name__}" for c in CLASSES])
def test_every_exception_class_of_both_packages_has_a_meaning(kind: type[BaseException]) -> None:
    meaning = MalformedAnswerError if kind.__name__ in ROOTS else meaning_of(kind)
    assert meaning is not None, f"{kind} is new: say what it means"
    assert type(classify(made(kind))) is meaning


def test_the_enumeration_finds_the_classes() -> None:
    names = {kind.__name__ for kind in CLASSES}
    assert {"RateLimitError", "APITimeoutError", "LengthFinishReasonError", "OverloadedError", "OpenAIError"} <= names
    assert len(CLASSES) > 30


def test_a_class_that_is_left_out_is_noticed() -> None:
    """Planted: a class of a later version that nobody has classified."""

    class NewlyInventedError(openai.OpenAIError):
        pass

    assert meaning_of(NewlyInventedError) is None
    assert isinstance(classify(NewlyInventedError("?")), ModelError)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (TimeoutError("timed out"), NetworkError),
        (ConnectionResetError("reset by peer"), NetworkError),
        (httpx2.ReadTimeout("slow"), NetworkError),
        (httpx2.ConnectError("refused"), NetworkError),
        (httpx2.RemoteProtocolError("peer closed connection"), NetworkError),
        (httpx2.DecodingError("not gzip"), MalformedAnswerError),
        (json.JSONDecodeError("Expecting value", "", 0), MalformedAnswerError),
        (openai.OpenAIError("The api_key client option must be set either by passing api_key"), AuthenticationError),
        (ValueError("prompt is too long: 215000 tokens > 200000 maximum"), ContextTooLongError),
    ],
)
def test_an_exception_without_an_answer_has_a_meaning(error: Exception, kind: type[ModelError]) -> None:
    assert type(classify(error)) is kind


def test_a_model_error_stays_what_it_is() -> None:
    error = RateLimitError("slow down", retry_after=3)
    assert classify(error) is error


def test_an_error_of_aws_is_read() -> None:
    class ClientError(Exception):
        def __init__(self, response: dict[str, Any]) -> None:
            self.response = response
            super().__init__("An error occurred")

    said = {"Code": "ValidationException", "Message": "Input is too long for requested model."}
    error = ClientError({"Error": said, "ResponseMetadata": {"HTTPStatusCode": 400}})
    assert isinstance(classify(error), ContextTooLongError)


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("enforced_spend_limit_reached", 400, QuotaError),
        ("ramp_limit_exceeded", 429, RateLimitError),
        ("organization_on_hold", 400, AuthenticationError),
    ],
)
def test_the_codes_of_anthropic_are_read(code: str, status: int, kind: type[ModelError]) -> None:
    body = {"type": "error", "error": {"type": "e", "message": "m", "details": {"error_code": code}}}
    assert type(classify(status=status, body=body)) is kind


def test_the_cause_of_a_broken_connection_is_told() -> None:
    error = openai.APIConnectionError(request=REQUEST)
    error.__cause__ = httpx2.ConnectError("All connection attempts failed")
    assert "All connection attempts failed" in str(classify(error, provider="openai"))


def test_the_text_says_who_answered_what_and_what_to_do() -> None:
    error = classify(status=401, body={"error": {"message": "Nope"}}, provider="openrouter")
    assert str(error) == "openrouter answered 401: Nope (check the API key)"
    assert (error.provider, error.status) == ("openrouter", 401)


@pytest.mark.parametrize("body", [{"error": {"message": "Invalid key hunter2-hunter2"}}, "Invalid key hunter2-hunter2"])
def test_the_key_is_taken_out_of_the_text(body: Any) -> None:
    assert "hunter2" not in str(classify(status=401, body=body, secret="hunter2-hunter2"))
    assert "hunter2" in str(classify(status=401, body=body)), "planted: without the secret the text is as it came"


def test_known_shapes_of_keys_are_taken_out_of_the_text() -> None:
    key = "sk-proj-" + "aB3dE5fG7hJ9" * 4
    assert key not in str(classify(status=401, body={"error": {"message": f"Incorrect API key provided: {key}"}}))


def test_a_long_page_is_cut() -> None:
    error = classify(status=502, body="<html><style>p{}</style><p>" + "broken " * 1000 + "</p></html>")
    assert len(str(error)) < 700
    assert "<" not in str(error)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["error", "message", "code", "type", "detail", "x"]), inner, max_size=3)
    ),
    max_leaves=10,
)


@pytest.mark.slow
@given(status=st.none() | st.integers(100, 599), body=json_values | st.binary())
def test_whatever_comes_it_is_a_model_error(status: int | None, body: Any) -> None:
    assert isinstance(classify(status=status, body=body), ModelError)


@given(value=st.text(), text=st.text())
def test_whatever_retry_after_holds_it_is_read_or_left(value: str, text: str) -> None:
    error = classify(status=429, body={"error": {"message": text}}, headers={"retry-after": value})
    assert error.retry_after is None or error.retry_after >= 0


@pytest.mark.slow
@given(number=st.text("0123456789.", max_size=20), unit=st.sampled_from(["s", "ms", "m", "h", "seconds"]))
@example(number=".", unit="s")
@example(number="1.2.3", unit="s")
@pytest.mark.parametrize("words", ["Try again in {}.", "retryDelay: {}", "wait for ~{} {}"])
def test_whatever_number_stands_in_the_words_it_is_read_or_left(words: str, number: str, unit: str) -> None:
    text = words.format(f"{number}{unit}", f"{number} {unit}")
    error = classify(status=429, body={"error": {"message": text}})
    assert error.retry_after is None or error.retry_after >= 0


@pytest.mark.slow
def test_of_a_huge_body_the_beginning_is_read() -> None:
    body = {"error": {"message": "prompt tokens " * 1_000_000}}
    assert isinstance(classify(status=400, body=body), RequestRefusedError)
    assert isinstance(
        classify(status=400, body={"error": "prompt is too long " + "x" * 10_000_000}), ContextTooLongError
    )


def test_deep_bodies_end() -> None:
    deep: Any = "prompt is too long"
    for _ in range(5000):
        deep = {"error": deep}
    assert isinstance(classify(status=400, body=deep), RequestRefusedError)


def test_the_names_are_of_our_vocabulary() -> None:
    assert {kind.__name__ for kind in _BY_NAME.values()} <= set(vars(errors))
