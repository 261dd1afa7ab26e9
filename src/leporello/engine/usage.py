"""Provider usage in one form.

OpenAI and its many compatible servers count cached tokens inside the prompt; Anthropic counts them beside it. Here
`prompt_tokens` is always everything the model read, and `input_tokens` the part of it that came from no cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias, TypedDict

_Path: TypeAlias = tuple[str, ...]

MOST_TOKENS: Final = 10**12
"""No model call uses more; a larger number in an answer is none."""

_READ: Final[tuple[_Path, ...]] = (
    ("cache_read_tokens",),
    ("cache_read_input_tokens",),
    ("prompt_tokens_details", "cached_tokens"),
    ("input_tokens_details", "cached_tokens"),
    ("prompt_cache_hit_tokens",),
    ("cached_tokens",),
    ("cachedContentTokenCount",),
    ("cached_content_token_count",),
)
_WRITTEN: Final[tuple[_Path, ...]] = (
    ("cache_write_tokens",),
    ("cache_creation_input_tokens",),
    ("prompt_tokens_details", "cache_write_tokens"),
    ("prompt_tokens_details", "cache_creation_tokens"),
    ("input_tokens_details", "cache_write_tokens"),
)
_WRITTEN_APART: Final[tuple[_Path, ...]] = (
    ("cache_creation", "ephemeral_5m_input_tokens"),
    ("cache_creation", "ephemeral_1h_input_tokens"),
)
_PROMPT: Final[tuple[_Path, ...]] = (("prompt_tokens",), ("promptTokenCount",), ("prompt_token_count",))
_OUTPUT: Final[tuple[_Path, ...]] = (
    ("completion_tokens",),
    ("output_tokens",),
    ("candidatesTokenCount",),
    ("candidates_token_count",),
)
_THOUGHTS: Final[tuple[_Path, ...]] = (("thoughtsTokenCount",), ("thoughts_token_count",))
_REASONING: Final[tuple[_Path, ...]] = (
    ("reasoning_tokens",),
    ("completion_tokens_details", "reasoning_tokens"),
    ("output_tokens_details", "reasoning_tokens"),
)


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
    usage = _mapping(raw)
    read = _first(usage, _READ)
    write = _first(usage, _WRITTEN) or sum(_int(_dig(usage, path)) for path in _WRITTEN_APART)
    output = _first(usage, _OUTPUT)
    thoughts = _first(usage, _THOUGHTS)
    reasoning = thoughts or _first(usage, _REASONING)
    completion = output + thoughts  # Gemini counts thinking beside the answer, the others inside it
    prompt = _prompt(usage, read, write)
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        total_tokens=prompt + completion,
        input_tokens=max(0, prompt - read - write),
        output_tokens=completion,
        cache_read_tokens=read,
        cache_write_tokens=write,
        reasoning_tokens=reasoning,
    )


def _prompt(usage: Mapping[str, Any], read: int, write: int) -> int:
    """Return everything the model read, whichever way the provider counts."""
    if (prompt := _first(usage, _PROMPT)) > 0:
        return prompt
    tokens = _int(usage.get("input_tokens"))
    counted_inside = isinstance(usage.get("input_tokens_details"), Mapping)  # OpenAI's Responses API
    return tokens if counted_inside else tokens + read + write


def _mapping(raw: Any) -> Mapping[str, Any]:
    dump = getattr(raw, "model_dump", None)
    if callable(dump):
        raw = dump()
    fields = raw if isinstance(raw, Mapping) else getattr(raw, "__dict__", {})
    return {key: _plain(value) for key, value in fields.items()}


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, (int, float, str, Mapping)) else _mapping(value)


def _first(usage: Mapping[str, Any], paths: tuple[_Path, ...]) -> int:
    """Return the first positive number that one of the paths leads to."""
    for path in paths:
        if path[0] in usage and (number := _int(_dig(usage, path))) > 0:
            return number
    return 0


def _dig(usage: Mapping[str, Any], path: _Path) -> Any:
    value: Any = usage
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _int(value: Any) -> int:
    """Return a count of tokens; what cannot be one is zero."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return int(value) if is_number and 0 <= value <= MOST_TOKENS else 0
