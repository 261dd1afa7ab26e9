"""Sizes of texts and windows of models, under the names that plugins for Hermes Agent import."""

from __future__ import annotations

from typing import Any

from leporello.plugins.hermes.host import known_window
from leporello.tokens import count_messages, count_text

FALLBACK_CONTEXT_LENGTH = 256_000  # what Hermes Agent assumes of an unknown model


def estimate_tokens_rough(text: str | None) -> int:
    """Estimate the tokens of a text."""
    return count_text(text or "")


def estimate_messages_tokens_rough(messages: list[dict[str, Any]]) -> int:
    """Estimate the tokens of a conversation."""
    return count_messages(messages)


def get_model_context_length(
    model: str,
    base_url: str = "",
    api_key: str = "",
    config_context_length: int | None = None,
    provider: str = "",
    **_unused: Any,
) -> int:
    """Return a model's window: the one that is given, the configured or the known one, else a guess."""
    return config_context_length or known_window(model, provider) or FALLBACK_CONTEXT_LENGTH
