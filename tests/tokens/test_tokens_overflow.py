# ruff: noqa: E501 - the providers' own sentences stay whole
"""Providers' own words about an overflow are understood, and nothing else is mistaken for one."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from leporello.tokens import OverflowNumbers, overflow_numbers, window_from_error

NAMED = [
    (
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 130531 tokens.",
        128_000,
        130_531,
    ),
    (
        "This model's maximum context length is 128000 tokens. However, you requested 130531 tokens (126435 in the messages, 4096 in the completion). Please reduce the length of the messages or completion.",
        128_000,
        126_435,
    ),
    (
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 150123 tokens (149000 in the messages, 1123 in the functions).",
        128_000,
        150_123,
    ),
    (
        "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 311220 tokens.",
        272_000,
        311_220,
    ),
    ("prompt is too long: 215000 tokens > 200000 maximum", 200_000, 215_000),
    (
        '{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 1000100 tokens > 1000000 maximum"}}',
        1_000_000,
        1_000_100,
    ),
    (
        "input length and `max_tokens` exceed context limit: 190000 + 21333 > 200000, decrease input length or `max_tokens`",
        200_000,
        190_000,
    ),
    ("The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", 1_048_576, 1_200_000),
    ("The input token count exceeds the maximum number of tokens allowed (1048576).", 1_048_576, None),
    (
        "Unable to submit request because the input token count is 33000 but model only supports up to 32768.",
        32_768,
        33_000,
    ),
    ("the request exceeds the available context size (8192 tokens), try increasing it", 8_192, None),
    ("request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it", 8_192, 9_000),
    ('{"error":{"type":"exceed_context_size_error","n_prompt_tokens":9000,"n_ctx":8192}}', 8_192, 9_000),
    (
        "The decoder prompt (length 5000) is longer than the maximum model length of 4096. Make sure that `max_model_len` is ok.",
        4_096,
        5_000,
    ),
    (
        "'max_tokens' or 'max_completion_tokens' is too large: 5000. This model's maximum context length is 4096 tokens and your request has 3000 input tokens (5000 > 4096 - 3000).",
        4_096,
        3_000,
    ),
    (
        "You passed 5000 input tokens and requested 1000 output tokens. However, the model's context length is only 4096 tokens, resulting in a maximum input length of 3096 tokens.",
        4_096,
        5_000,
    ),
    (
        "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
        32_768,
        40_000,
    ),
    ("input length (9000 tokens) exceeds the maximum context length (8192)", 8_192, 9_000),
    (
        "This endpoint's maximum context length is 131072 tokens. However, you requested about 140000 tokens (135000 of text input, 5000 in the output). Please reduce the length of either one.",
        131_072,
        135_000,
    ),
    (
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193. Given: 9000 `inputs` tokens and 512 `max_new_tokens`",
        8_193,
        9_000,
    ),
    ("too many tokens: size limit exceeded by 1000 tokens. The limit for this model is 128000 tokens.", 128_000, None),
    (
        "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000. Try using a shorter prompt",
        4_081,
        5_000,
    ),
    ("Invalid request: Your request exceeded model token limit: 131072", 131_072, None),
    ("This model's maximum prompt length is 131072 but the request contains 140000 tokens.", 131_072, 140_000),
    ("<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 129024]", 129_024, None),
    ("Invalid request: Your request exceeded model token limit: 262144 (requested: 270000)", 262_144, 270_000),
    (
        "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough.",
        4_096,
        5_000,
    ),
    ("The input (9000 tokens) is longer than the model's context length (8192 tokens).", 8_192, 9_000),
    (
        "Requested token count exceeds the model's maximum context length of 8192 tokens. You requested a total of 9000 tokens: 8000 tokens from the input messages and 1000 tokens for the completion.",
        8_192,
        8_000,
    ),
    ("prompt token count of 140000 exceeds the limit of 128000", 128_000, 140_000),
    ("The prompt is too long: 140000, model maximum context length: 131071", 131_071, 140_000),
    ("Please reduce the length of the messages. Current length is 9000 while limit is 8192", 8_192, 9_000),
    ("Prompt length (9000) exceeds maximum input length (8192)", 8_192, 9_000),
    ("Your prompt exceeds the maximum context length (131,072 tokens)", 131_072, None),
]

NOT_NAMED = [
    "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "Input is too long for requested model.",
    "prompt too long; exceeded max context length by 5000 tokens",
    "invalid params, context window exceeds limit (2013)",
    "The maximum tokens you requested exceeds the model limit of 4096. Try again with a lower maximum tokens value.",
    "max_tokens: 64000 > 8192, which is the maximum allowed number of output tokens for claude-3-5-sonnet",
    "max_tokens is too large: 32000. This model supports at most 16384 completion tokens, whereas you provided 32000.",
    "Range of max_tokens should be [1, 8192]",
    "too many tokens: max tokens must be less than or equal to 4096, the maximum output for this model - received 10000.",
    "Request too large for model `x` on tokens per minute (TPM): Limit 6000, Requested 7000",
    "This model's maximum context length is 512 tokens.",
    "This model's maximum context length is 99999999999 tokens.",
    "",
]


@pytest.mark.parametrize(("text", "limit", "actual"), NAMED)
def test_the_window_and_the_size_are_read(text: str, limit: int, actual: int | None) -> None:
    assert overflow_numbers(text) == OverflowNumbers(limit=limit, actual=actual)
    assert window_from_error(text) == limit


@pytest.mark.parametrize("text", NOT_NAMED)
def test_output_limits_rate_limits_and_codes_are_no_window(text: str) -> None:
    assert window_from_error(text) is None


def test_both_checks_reject_taking_the_largest_number() -> None:
    def largest(text: str) -> int:
        return max((int(word) for word in text.split() if word.isdigit()), default=0)

    assert any(largest(text) != limit for text, limit, _ in NAMED)
    assert any(largest(text) for text in NOT_NAMED)


@pytest.mark.slow
@given(st.text(max_size=300))
def test_no_text_raises_and_every_window_is_plausible(text: str) -> None:
    limit = window_from_error(text)
    assert limit is None or 1_024 <= limit <= 10_000_000


def test_an_endless_page_is_read_quickly_and_what_is_no_text_is_nothing() -> None:
    assert window_from_error("context length of " * 200_000) is None
    assert window_from_error(None) is None


@pytest.mark.parametrize(
    "text", ["maximum context length is {} tokens", "too long: {} tokens > 8192 maximum", "n_ctx: {}"]
)
def test_a_number_of_any_length_is_read_or_left_alone(text: str) -> None:
    assert overflow_numbers(text.format("8" * 5_004)).actual is None
