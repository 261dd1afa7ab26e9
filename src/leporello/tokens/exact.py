"""An exact counter, when a tokenizer is installed."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@cache
def exact_counter() -> Callable[[str], int] | None:
    """Return a counter for the o200k encoding, or None when the extra `tokens` is not installed.

    It counts as OpenAI's models do; other vendors' tokenizers differ. A text that no encoding can hold (lone
    surrogates) is counted with those characters replaced.
    """
    try:
        from rs_bpe import openai
    except ImportError:
        return None
    count: Callable[[str], int] = openai.o200k_base().count
    return lambda text: count(text.encode("utf-8", "replace").decode())
