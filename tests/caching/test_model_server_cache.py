"""The model server has a prompt cache: the official clients see reads and writes, and refused marks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anthropic
import openai
import pytest

from leporello.caching import apply_anthropic_cache_control
from leporello.engine import normalise_usage
from leporello.messages import to_anthropic
from leporello.testing.model_server import ModelServer, PromptCache, as_counted

if TYPE_CHECKING:
    from collections.abc import Iterator

LONG = "word " * 3_000
TALK: list[Any] = [{"role": "system", "content": LONG}, {"role": "user", "content": "one"}]
GROWN: list[Any] = [*TALK, {"role": "assistant", "content": "two"}, {"role": "user", "content": "three"}]
MARK = {"type": "ephemeral"}


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server(clock: Clock) -> Iterator[ModelServer]:
    with ModelServer(usage=PromptCache(clock)) as running:
        yield running


def ask_openai(server: ModelServer, messages: list[Any], model: str = "gpt-5.5") -> Any:
    with openai.OpenAI(api_key="k", base_url=server.openai_url, max_retries=0) as client:
        return client.chat.completions.create(model=model, messages=messages).usage


def ask_anthropic(server: ModelServer, messages: list[Any], **more: Any) -> Any:
    request, _ = to_anthropic(messages)
    with anthropic.Anthropic(api_key="k", base_url=server.anthropic_url, max_retries=0) as client:
        return client.messages.create(model="claude-sonnet-5", max_tokens=99, **request, **more).usage


def marked(messages: list[Any], ttl: str = "5m") -> list[Any]:
    return apply_anthropic_cache_control(messages, cache_ttl=ttl, native_anthropic=True)


def test_openai_reports_cached_tokens(server: ModelServer) -> None:
    first, second = (ask_openai(server, messages) for messages in (TALK, GROWN))
    assert first.prompt_tokens_details.cached_tokens == 0
    assert second.prompt_tokens_details.cached_tokens >= 1_024
    assert second.prompt_tokens_details.cached_tokens % 128 == 0


def test_newer_openai_models_report_writes(server: ModelServer) -> None:
    first, second = (normalise_usage(ask_openai(server, messages, "gpt-5.6")) for messages in (TALK, GROWN))
    assert (first["cache_read_tokens"], first["cache_write_tokens"]) == (0, first["prompt_tokens"] - 3)
    assert second["cache_read_tokens"] == first["cache_write_tokens"]


def test_openais_explicit_mode_caches_at_breakpoints_alone(server: ModelServer) -> None:
    system = {"type": "text", "text": LONG, "prompt_cache_breakpoint": {"mode": "explicit"}}
    marked = [{"role": "system", "content": [system]}, TALK[1]]
    options: Any = {"mode": "explicit"}
    with openai.OpenAI(api_key="k", base_url=server.openai_url, max_retries=0) as client:
        for messages, written in ((TALK, False), (marked, True)):
            answer: Any = client.chat.completions.create(
                model="gpt-5.6", messages=messages, prompt_cache_options=options
            )
            assert bool(answer.usage.prompt_tokens_details.cache_write_tokens) == written


def test_anthropic_reports_reads_and_writes_beside_the_input(server: ModelServer) -> None:
    first, second = (ask_anthropic(server, marked(messages)) for messages in (TALK, GROWN))
    assert first.cache_creation_input_tokens > 2_000
    assert second.cache_read_input_tokens == first.cache_creation_input_tokens
    assert second.input_tokens < 10
    assert normalise_usage(second)["prompt_tokens"] > normalise_usage(first)["prompt_tokens"]


def test_anthropic_tells_an_hours_writes_apart(server: ModelServer) -> None:
    usage = ask_anthropic(server, marked(TALK, "1h"))
    assert usage.cache_creation.ephemeral_1h_input_tokens == usage.cache_creation_input_tokens > 0
    assert usage.cache_creation.ephemeral_5m_input_tokens == 0


@pytest.mark.slow
def test_claude_behind_openais_dialect_keeps_anthropics_rules(server: ModelServer) -> None:
    """As a router serves it: unmarked nothing is cached, marked it is."""
    assert ask_openai(server, TALK, "anthropic/claude-sonnet-5").prompt_tokens_details.cached_tokens == 0
    assert ask_openai(server, TALK, "anthropic/claude-sonnet-5").prompt_tokens_details.cached_tokens == 0
    for _ in range(2):
        usage = ask_openai(server, apply_anthropic_cache_control(TALK), "anthropic/claude-sonnet-5")
    assert usage.prompt_tokens_details.cached_tokens > 2_000


@pytest.mark.slow
def test_streams_report_the_same(server: ModelServer) -> None:
    request, _ = to_anthropic(marked(TALK))
    with anthropic.Anthropic(api_key="k", base_url=server.anthropic_url, max_retries=0) as client:
        plain = client.messages.create(model="claude-sonnet-5", max_tokens=9, **request).usage
        with client.messages.stream(model="claude-sonnet-5", max_tokens=9, **request) as stream:
            streamed = stream.get_final_message().usage
    assert streamed.cache_read_input_tokens == plain.cache_creation_input_tokens


def test_a_mark_on_the_request_marks_its_last_block(server: ModelServer) -> None:
    for _ in range(2):
        usage = ask_anthropic(server, TALK, cache_control=MARK)
    assert usage.cache_read_input_tokens > 2_000


def test_five_minutes_later_it_is_gone(server: ModelServer, clock: Clock) -> None:
    ask_anthropic(server, marked(TALK))
    clock.now = 300.0
    assert ask_anthropic(server, marked(TALK)).cache_read_input_tokens == 0


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
def test_a_fifth_mark_is_refused_with_400(server: ModelServer, dialect: str) -> None:
    five = [{"role": "user", "content": [{"type": "text", "text": str(n), "cache_control": MARK} for n in range(5)]}]
    with pytest.raises((anthropic.BadRequestError, openai.BadRequestError), match=r"maximum of 4 blocks.*Found 5"):
        _ = ask_anthropic(server, five) if dialect == "anthropic" else ask_openai(server, five, "claude-sonnet-5")


def test_it_can_be_left_out() -> None:
    with ModelServer(usage=as_counted) as server:
        for _ in range(2):
            assert ask_openai(server, TALK).prompt_tokens_details.cached_tokens == 0


def test_it_is_there_unasked() -> None:
    with ModelServer() as server:
        for _ in range(2):
            usage = ask_openai(server, TALK)
        assert usage.prompt_tokens_details.cached_tokens > 0
