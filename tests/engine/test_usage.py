"""Provider usage in one form: the prompt is everything the model read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from anthropic.types import Usage as AnthropicUsage
from openai.types import CompletionUsage
from openai.types.completion_usage import PromptTokensDetails

from leporello.engine import normalise_usage

# (usage as answered, prompt, completion, cache read, cache write, input that came from no cache, reasoning)
SHAPES: dict[str, tuple[Any, tuple[int, int, int, int, int, int]]] = {
    "openai chat": (
        {
            "prompt_tokens": 1000,
            "completion_tokens": 50,
            "total_tokens": 1050,
            "prompt_tokens_details": {"cached_tokens": 800},
            "completion_tokens_details": {"reasoning_tokens": 30},
        },
        (1000, 50, 800, 0, 200, 30),
    ),
    "openai responses": (
        {
            "input_tokens": 1000,
            "output_tokens": 50,
            "total_tokens": 1050,
            "input_tokens_details": {"cached_tokens": 800},
            "output_tokens_details": {"reasoning_tokens": 30},
        },
        (1000, 50, 800, 0, 200, 30),
    ),
    "anthropic": (
        {
            "input_tokens": 20,
            "output_tokens": 50,
            "cache_read_input_tokens": 800,
            "cache_creation_input_tokens": 180,
        },
        (1000, 50, 800, 180, 20, 0),
    ),
    "anthropic, writes by time to live": (
        {
            "input_tokens": 20,
            "output_tokens": 50,
            "cache_read_input_tokens": 0,
            "cache_creation_input_tokens": None,
            "cache_creation": {"ephemeral_5m_input_tokens": 100, "ephemeral_1h_input_tokens": 80},
        },
        (200, 50, 0, 180, 20, 0),
    ),
    "anthropic, nothing cached": ({"input_tokens": 20, "output_tokens": 5}, (20, 5, 0, 0, 20, 0)),
    "openrouter": (
        {
            "prompt_tokens": 1000,
            "completion_tokens": 50,
            "total_tokens": 1050,
            "cost": 0.01,
            "prompt_tokens_details": {"cached_tokens": 700, "cache_write_tokens": 100, "audio_tokens": 0},
        },
        (1000, 50, 700, 100, 200, 0),
    ),
    "deepseek": (
        {
            "prompt_tokens": 1000,
            "completion_tokens": 50,
            "prompt_cache_hit_tokens": 600,
            "prompt_cache_miss_tokens": 400,
        },
        (1000, 50, 600, 0, 400, 0),
    ),
    "gemini": (
        {
            "promptTokenCount": 1000,
            "candidatesTokenCount": 40,
            "thoughtsTokenCount": 10,
            "cachedContentTokenCount": 300,
            "totalTokenCount": 1050,
        },
        (1000, 50, 300, 0, 700, 10),
    ),
    "a local server that reports nothing": (None, (0, 0, 0, 0, 0, 0)),
    "no numbers": ({"prompt_tokens": float("nan"), "completion_tokens": float("inf")}, (0, 0, 0, 0, 0, 0)),
    "nonsense": ({"prompt_tokens": "many", "completion_tokens": -3, "total_tokens": True}, (0, 0, 0, 0, 0, 0)),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_comes_out_in_one_form(shape: str) -> None:
    raw, (prompt, completion, read, write, uncached, reasoning) = SHAPES[shape]
    assert normalise_usage(raw) == {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "input_tokens": uncached,
        "output_tokens": completion,
        "cache_read_tokens": read,
        "cache_write_tokens": write,
        "reasoning_tokens": reasoning,
    }


@pytest.mark.parametrize("shape", SHAPES)
def test_the_one_form_stays_as_it_is(shape: str) -> None:
    usage = normalise_usage(SHAPES[shape][0])
    assert normalise_usage(usage) == usage


def test_objects_of_the_official_clients_are_read() -> None:
    openai = CompletionUsage(
        prompt_tokens=10,
        completion_tokens=2,
        total_tokens=12,
        prompt_tokens_details=PromptTokensDetails(cached_tokens=4),
    )
    anthropic = AnthropicUsage(input_tokens=6, output_tokens=2, cache_read_input_tokens=4)
    assert normalise_usage(openai)["input_tokens"] == normalise_usage(anthropic)["input_tokens"] == 6
    assert normalise_usage(openai)["prompt_tokens"] == normalise_usage(anthropic)["prompt_tokens"] == 10


def test_plain_objects_are_read() -> None:
    details = SimpleNamespace(cached_tokens=4)
    usage = SimpleNamespace(prompt_tokens=10, completion_tokens=2, prompt_tokens_details=details)
    assert normalise_usage(usage)["cache_read_tokens"] == 4
