"""The window that an engine is given, checked where it comes in."""

from __future__ import annotations

from typing import Any


def window_tokens(value: Any) -> int:
    """Return a window in tokens; None is no window, and so is 0."""
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value // 1 or value < 0:
        raise ValueError(f"context_length is the model's window in tokens, a whole number of 0 or more, not {value!r}")
    return int(value)
