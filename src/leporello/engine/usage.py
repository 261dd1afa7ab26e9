"""Provider usage in one form.

OpenAI and its many compatible servers count cached tokens inside the prompt; Anthropic counts them beside it. Here
`prompt_tokens` is always everything the model read, and `input_tokens` the part of it that came from no cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypedDict

MOST_TOKENS: Final = 10**12
"""No model call uses more; a larger number in an answer is none."""

# Names of the counts, a count inside of another value with a dot; the first one that is there and not zero counts.
_READ: Final = (
    "cache_read_tokens",
    "cache_read_input_tokens",
    "prompt_tokens_details.cached_tokens",
    "input_tokens_details.cached_tokens",
    "prompt_cache_hit_tokens",
    "cached_tokens",
    "cachedContentTokenCount",
    "cached_content_token_count",
)
_WRITTEN: Final = (
    "cache_write_tokens",
    "cache_creation_input_tokens",
    "prompt_tokens_details.cache_write_tokens",
    "prompt_tokens_details.cache_creation_tokens",
    "input_tokens_details.cache_write_tokens",
)
_WRITTEN_APART: Final = ("cache_creation.ephemeral_5m_input_tokens", "cache_creation.ephemeral_1h_input_tokens")
_PROMPT: Final = ("prompt_tokens", "promptTokenCount", "prompt_token_count")
_OUTPUT: Final = ("completion_tokens", "output_tokens", "candidatesTokenCount", "candidates_token_count")
_THOUGHTS: Final = ("thoughtsTokenCount", "thoughts_token_count")
_REASONING: Final = (
    "reasoning_tokens",
    "completion_tokens_details.reasoning_tokens",
    "output_tokens_details.reasoning_tokens",
)
_DETAILS: Final = "input_tokens_details."  # only OpenAI's Responses API has them


class Usage(TypedDict):
    """What one model call used."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int


def normalise_usage(raw: Any) -> Usage:
    """Read the usage of an OpenAI, Anthropic, OpenRouter, DeepSeek or Gemini answer (a mapping or an SDK object).

    What is missing counts as zero; what is already in this form stays as it is.
    """
    counts = _counts(raw)
    read = _first(counts, _READ)
    write = _first(counts, _WRITTEN) or sum(counts.get(name, 0) for name in _WRITTEN_APART)
    thoughts = _first(counts, _THOUGHTS)
    completion = _first(counts, _OUTPUT) + thoughts  # Gemini counts thinking beside the answer, the others inside it
    beside = 0 if _DETAILS in counts else read + write  # Anthropic counts what it cached beside the rest
    prompt = _first(counts, _PROMPT) or counts.get("input_tokens", 0) + beside
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        total_tokens=prompt + completion,
        input_tokens=max(0, prompt - read - write),
        output_tokens=completion,
        cache_read_tokens=read,
        cache_write_tokens=write,
        reasoning_tokens=thoughts or _first(counts, _REASONING),
    )


def _first(counts: Mapping[str, int], names: tuple[str, ...]) -> int:
    """Return the first of these counts that is not zero."""
    return next((counts[name] for name in names if counts.get(name)), 0)


def _counts(raw: Any, inside: str = "") -> dict[str, int]:
    """Return the counts of tokens in a usage by name; what cannot be one is left out.

    A value with counts inside has its own name too, with a dot at the end.
    """
    dump = getattr(raw, "model_dump", None)
    fields = dump() if callable(dump) else raw
    found: dict[str, int] = {}
    for name, value in (fields if isinstance(fields, Mapping) else getattr(fields, "__dict__", {})).items():
        if isinstance(value, (int, float)):
            if not isinstance(value, bool) and 0 <= value <= MOST_TOKENS:
                found[f"{inside}{name}"] = int(value)
        elif not inside and value is not None and not isinstance(value, str):
            found |= {f"{name}.": 0, **_counts(value, f"{name}.")}
    return found
