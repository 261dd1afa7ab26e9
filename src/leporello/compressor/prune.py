"""Phase 1: old tool results give way to a placeholder. No model is asked, and the summariser reads the originals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leporello.summary.masking import masked

if TYPE_CHECKING:
    from collections.abc import Container

    from leporello.messages import Message


def prune(messages: list[Message], old: Container[int]) -> list[Message]:
    """Return the list with every long tool result at these places cleared."""
    return [masked(message) if index in old else message for index, message in enumerate(messages)]
