"""The numbers in a provider's answer that a request is too long.

Each provider says it in its own words, and some also name the output limit, a rate limit or an error code in the same
breath. Only wordings that speak of the window count; anything else yields nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

SMALLEST_WINDOW = 1_024
LARGEST_WINDOW = 10_000_000
_MOST_CHARACTERS = 20_000  # an error page may be long; the sentence that matters is not

_N = r"(\d[\d,_]*)"
_MOST_DIGITS = 15  # of a window that there could be

_LIMITS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"exceed context limit: *\d[\d,_]* *\+ *\d[\d,_]* *> *{_N}",
        rf"too long: *\d[\d,_]* tokens? *> *{_N} *maximum",
        rf"context (?:length|window|size|limit)(?: is| of|:)? *(?:only )?\(?{_N}",
        rf"maximum (?:prompt|input|sequence) (?:length|size)(?: is| of|:)? *\(?{_N}",
        rf"(?:input|prompt) tokens? (?:count )?(?:exceeds?|exceeded) the (?:configured )?(?:limit|maximum) of {_N}",
        rf"token count of \d[\d,_]* exceeds the limit of {_N}",
        rf"input token count (?:\(\d[\d,_]*\) )?exceeds the maximum number of tokens allowed \(?{_N}",
        rf"input token count (?:is )?\(?\d[\d,_]*\)? but (?:the )?model only supports up to {_N}",
        rf"too large for model with {_N} maximum context length",
        rf"maximum model length of {_N}",
        rf"range of input length should be \[\d+, *{_N}\]",
        rf"exceeded model token limit: *{_N}",
        rf"tokens in the prompt cannot exceed {_N}",
        rf"limit for this model is {_N} tokens",
        rf"current length is \d[\d,_]* while limit is {_N}",
        rf"`inputs` (?:tokens \+ `max_new_tokens` must be <=|must have less than) *{_N}",
        rf"\"?n_ctx\"?: *{_N}",
    )
)
_ACTUALS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"exceed context limit: *{_N} *\+",
        rf"too long: *{_N}",
        rf"your messages resulted in *(?:about )?{_N}",  # the functions too, which the parts in brackets name apart
        rf"{_N} (?:in the messages|in your prompt|in the prompt|of text input|tokens from the input messages)",
        rf"(?:request contains|request has|you passed) *(?:about )?{_N}",
        rf"input token count (?:is )?\(?{_N}",
        rf"(?:prompt|input) token count of {_N}",
        rf"prompt contains {_N} tokens",
        rf"(?:prompt|input) \((?:length )?{_N}",
        rf"(?:prompt|input) length \({_N}",
        rf"request \({_N} tokens\) exceeds",
        rf"\(requested: *{_N}\)",
        rf"current length is {_N}",
        rf"given: *{_N}",
        rf"prompt cannot exceed \d[\d,_]* - received {_N}",
        rf"first {_N} tokens when",
        rf"\"?n_prompt_tokens\"?: *{_N}",
        rf"requested (?:a total of |about )?{_N} tokens",
    )
)


@dataclass(frozen=True, kw_only=True)
class OverflowNumbers:
    """What an overflow answer named: the window, and how long the input was."""

    limit: int | None = None
    actual: int | None = None


def overflow_numbers(text: Any) -> OverflowNumbers:
    """Read the window and the input's size from a provider's overflow answer, as far as it names them."""
    text = text[:_MOST_CHARACTERS] if isinstance(text, str) else ""
    limit = _first(_LIMITS, text)
    if limit is None or not SMALLEST_WINDOW <= limit <= LARGEST_WINDOW:
        return OverflowNumbers()
    return OverflowNumbers(limit=limit, actual=_first(_ACTUALS, text))


def window_from_error(text: Any) -> int | None:
    """Return the window that a provider's overflow answer names, or None; never an output or a rate limit."""
    return overflow_numbers(text).limit


def _first(patterns: tuple[re.Pattern[str], ...], text: str) -> int | None:
    match = next((found for pattern in patterns if (found := pattern.search(text))), None)
    digits = re.sub("[,_]", "", match[1]) if match else ""
    return int(digits) if 0 < len(digits) <= _MOST_DIGITS else None
