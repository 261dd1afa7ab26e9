"""The clients on the official packages, against real HTTP."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from leporello.errors import (
    AuthenticationError,
    ContextTooLongError,
    EmptyAnswerError,
    MalformedAnswerError,
    ModelError,
    NetworkError,
    OutputLimitError,
    OverloadedError,
    QuotaError,
    RateLimitError,
    RequestRefusedError,
)
from leporello.llm import AnthropicClient, OpenAIClient
from leporello.llm.deadline import within
from leporello.messages.types import Message
from leporello.testing.model_server import WORDINGS, Failure, ModelServer, Step

KEY = "sk-test-" + "q8W3e7R1t5" * 4
HELLO: list[Message] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello there, model"}]
DIALECTS = ["openai", "anthropic"]

MEANINGS: dict[Failure, type[ModelError] | None] = {
    Failure.BAD_KEY: AuthenticationError,
    Failure.NO_CREDIT: QuotaError,
    Failure.NO_QUOTA: QuotaError,
    Failure.FORBIDDEN: AuthenticationError,
    Failure.UNKNOWN_MODEL: RequestRefusedError,
    Failure.TOO_LARGE: ContextTooLongError,
    Failure.RATE_LIMITED: RateLimitError,
    Failure.SERVER_ERROR: OverloadedError,
    Failure.UNAVAILABLE: OverloadedError,
    Failure.OVERLOADED: OverloadedError,
    Failure.CONTEXT_TOO_LONG: ContextTooLongError,
    Failure.OUTPUT_LIMIT: OutputLimitError,
    Failure.CONTENT_FILTER: RequestRefusedError,
    Failure.EMPTY_ANSWER: EmptyAnswerError,
    Failure.REASONING_ONLY: EmptyAnswerError,
    Failure.NOTHING_BEFORE_LENGTH: OutputLimitError,
    Failure.CUT_BY_LENGTH: None,
    Failure.MALFORMED_JSON: MalformedAnswerError,
    Failure.WRONG_CONTENT_TYPE: MalformedAnswerError,
    Failure.CLOSED_BEFORE_ANSWER: NetworkError,
    Failure.CLOSED_IN_ANSWER: NetworkError,
    Failure.BROKEN_STREAM: MalformedAnswerError,
    Failure.ERROR_IN_STREAM: MalformedAnswerError,
    Failure.SLOW_START: NetworkError,
    Failure.DRIPPING: NetworkError,
}
"""What each failure of a provider is to the caller; None: an answer all the same."""


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


def client(server: ModelServer, dialect: str, key: str = KEY) -> OpenAIClient | AnthropicClient:
    if dialect == "openai":
        return OpenAIClient(model="m", api_key=key, base_url=server.openai_url)
    return AnthropicClient(model="m", api_key=key, base_url=server.anthropic_url)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_answer_comes_with_its_usage(server: ModelServer, dialect: str) -> None:
    answer = client(server, dialect).complete(HELLO, max_tokens=50, timeout=20)
    assert (answer.text, answer.finish_reason, answer.model) == ("Hello there, model", "stop", "m")
    assert answer.usage["prompt_tokens"] > answer.usage["completion_tokens"] > 0


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_request_holds_what_was_asked_and_nothing_else(server: ModelServer, dialect: str) -> None:
    """No sampling parameters, no private notes, and the limit under the name that every server knows."""
    message: Any = {"role": "user", "content": "Hi", "_note": 1, "timestamp": "2026", "reasoning_content": "x"}
    client(server, dialect).complete([message], max_tokens=50, timeout=20)
    body = dict(server.requests[-1].body)
    assert body.pop("max_tokens") == 50
    assert body.pop("model") == "m"
    assert set(body) == {"messages"}
    assert set(body["messages"][0]) == {"role", "content"}


def test_openai_itself_is_asked_with_the_limit_that_reasoning_models_take() -> None:
    assert OpenAIClient(model="m", api_key="k")._limit_name() == "max_completion_tokens"
    assert OpenAIClient(model="m", api_key="k", base_url="http://127.0.0.1/v1")._limit_name() == "max_tokens"
    assert (
        OpenAIClient(model="m", api_key="k", base_url="https://api.openai.com.evil.org/v1")._limit_name()
        == "max_tokens"
    )


@pytest.mark.parametrize("dialect", DIALECTS)
def test_thinking_is_no_part_of_the_text(server: ModelServer, dialect: str) -> None:
    server.script(Step(text="<think>a</think>the answer", thinking="some thoughts"))
    assert client(server, dialect).complete(HELLO, max_tokens=50, timeout=20).text == "the answer"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_cut_answer_says_so(server: ModelServer, dialect: str) -> None:
    server.fail(Failure.CUT_BY_LENGTH)
    answer = client(server, dialect).complete(HELLO, max_tokens=50, timeout=20)
    assert answer.finish_reason == "length"
    assert "Hello there, model".startswith(answer.text)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_refusal_of_the_model_is_a_refusal(server: ModelServer, dialect: str) -> None:
    server.script(Step(text="", finish="content_filter"))
    with pytest.raises(RequestRefusedError):
        client(server, dialect).complete(HELLO, max_tokens=50, timeout=20)


def test_every_failure_has_a_meaning() -> None:
    assert set(MEANINGS) == set(Failure)


@pytest.mark.slow
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("failure", [failure for failure, kind in MEANINGS.items() if kind], ids=lambda f: f.value)
def test_each_failure_ends_in_the_right_error(server: ModelServer, dialect: str, failure: Failure) -> None:
    slow = failure in {Failure.SLOW_START, Failure.DRIPPING}
    server.fail(failure, seconds=30, retry_after=17)
    with pytest.raises(ModelError) as caught:
        client(server, dialect).complete(HELLO, max_tokens=50, timeout=0.7 if slow else 20)
    assert type(caught.value) is MEANINGS[failure]
    assert caught.value.provider == dialect
    assert client(server, dialect).complete(HELLO, max_tokens=50, timeout=20).text, "the next call works again"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_rate_limit_says_when_to_come_back(server: ModelServer, dialect: str) -> None:
    server.fail(Failure.RATE_LIMITED, retry_after=17)
    with pytest.raises(RateLimitError) as caught:
        client(server, dialect).complete(HELLO, max_tokens=50, timeout=20)
    assert caught.value.retry_after == 17


@pytest.mark.parametrize("wording", sorted(WORDINGS))
def test_every_wording_of_an_overflow_is_understood(server: ModelServer, wording: str) -> None:
    server.fail(Failure.CONTEXT_TOO_LONG, wording=wording)
    with pytest.raises(ContextTooLongError) as caught:
        client(server, "openai").complete(HELLO, max_tokens=50, timeout=20)
    unnamed = {"groq", "bedrock", "responses"}
    assert caught.value.limit == (None if wording in unnamed else 1024)


@pytest.mark.slow
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("failure", [Failure.SLOW_START, Failure.DRIPPING], ids=lambda f: f.value)
def test_the_time_limit_is_for_the_whole_call(server: ModelServer, dialect: str, failure: Failure) -> None:
    """A server that sends a byte now and then is never silent for long, and is cut off all the same."""
    server.fail(failure, seconds=60)
    with pytest.raises(NetworkError, match=r"did not answer within 0\.5 s"):
        client(server, dialect).complete(HELLO, max_tokens=50, timeout=0.5)


@pytest.mark.slow
def test_a_limit_between_two_bytes_would_not_do(server: ModelServer) -> None:
    """Planted: with the package's own limit, the same dripping answer is waited for as long as it takes."""
    server.fail(Failure.DRIPPING, seconds=1.5)
    messages: Any = HELLO
    with openai.OpenAI(api_key=KEY, base_url=server.openai_url, max_retries=0, timeout=1) as plain:
        assert plain.chat.completions.create(model="m", messages=messages).choices[0].message.content


def test_no_time_left_is_a_time_limit_too(server: ModelServer) -> None:
    asked = len(server.requests)
    with pytest.raises(NetworkError):
        client(server, "openai").complete(HELLO, max_tokens=50, timeout=0)
    assert len(server.requests) == asked


def test_a_call_leaves_no_thread_behind(server: ModelServer) -> None:
    server.fail(Failure.SLOW_START, seconds=60)
    with pytest.raises(NetworkError):
        client(server, "openai").complete(HELLO, max_tokens=50, timeout=0.3)
    assert "leporello-model-call" not in {thread.name for thread in threading.enumerate()}


def test_a_call_works_inside_an_event_loop(server: ModelServer) -> None:
    """A notebook, or an application that calls the synchronous API from a coroutine."""

    async def inside() -> str:
        return client(server, "openai").complete(HELLO, max_tokens=50, timeout=20).text

    assert asyncio.run(inside()) == "Hello there, model"


def test_nobody_listening_is_a_network_error() -> None:
    with ModelServer() as gone:
        url = gone.openai_url
    with pytest.raises(NetworkError, match="onnect"):
        OpenAIClient(model="m", api_key=KEY, base_url=url).complete(HELLO, max_tokens=50, timeout=20)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_key_travels_only_in_its_header(server: ModelServer, dialect: str) -> None:
    """Not in the repr, not in the error, not in what the error is chained to, not in the record."""
    asking = client(server, dialect)
    server.fail(Failure.BAD_KEY)
    with pytest.raises(AuthenticationError) as caught:
        asking.complete(HELLO, max_tokens=50, timeout=20)
    seen = [repr(asking), str(caught.value), repr(vars(caught.value)), repr(server.requests)]
    assert not [text for text in seen if KEY in text]
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_package_does_not_retry(server: ModelServer, dialect: str) -> None:
    asked = len(server.requests)
    server.fail(Failure.OVERLOADED)
    with pytest.raises(OverloadedError):
        client(server, dialect).complete(HELLO, max_tokens=50, timeout=20)
    assert len(server.requests) == asked + 1


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("content", ["lone \ud800 surrogate", "\x00 null", "🎭" * 10])
def test_odd_text_is_sent(server: ModelServer, dialect: str, content: str) -> None:
    assert client(server, dialect).complete([{"role": "user", "content": content}], max_tokens=900, timeout=20).text


def test_what_cannot_be_sent_is_refused(server: ModelServer) -> None:
    messages: list[Message] = [{"role": "user", "content": object()}]
    with pytest.raises(RequestRefusedError):
        client(server, "openai").complete(messages, max_tokens=50, timeout=20)


ANSWERS: list[tuple[dict[str, Any], type[ModelError]]] = [
    ({}, EmptyAnswerError),
    ({"choices": []}, EmptyAnswerError),
    ({"choices": None}, EmptyAnswerError),
    ({"choices": [{"message": None}]}, EmptyAnswerError),
    ({"choices": [{"message": {"content": None, "tool_calls": [{"id": "1"}]}}]}, EmptyAnswerError),
    ({"choices": [{"message": {"content": "", "refusal": "I can't help with that."}}]}, RequestRefusedError),
    ({"choices": [{"error": {"code": 502, "message": "Provider returned error"}}]}, OverloadedError),
]


@pytest.mark.parametrize(("answer", "kind"), ANSWERS, ids=[str(index) for index in range(len(ANSWERS))])
def test_answers_that_are_none(answer: dict[str, Any], kind: type[ModelError]) -> None:
    with pytest.raises(kind):
        OpenAIClient(model="m", api_key="k")._read(answer)


def test_an_error_inside_a_success_is_an_error() -> None:
    """OpenRouter answers 200 and puts the error of the provider behind it into the body."""
    with pytest.raises(RateLimitError):
        OpenAIClient(model="m", api_key="k")._decoded(b'{"error": {"code": 429, "message": "Rate limited upstream"}}')


def test_parts_are_read_and_thinking_parts_are_not() -> None:
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "the answer"}]
    answer = {"choices": [{"message": {"content": parts}, "finish_reason": "stop"}]}
    assert OpenAIClient(model="m", api_key="k")._read(answer).text == "the answer"


def test_a_result_and_an_error_cross_the_thread() -> None:
    async def fine() -> int:
        return 3

    async def broken() -> int:
        raise LookupError("mine")

    assert within(5, fine) == 3
    with pytest.raises(LookupError, match="mine"):
        within(5, broken)
