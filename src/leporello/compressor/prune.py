"""Old tool results give way to a placeholder. No model is asked, and the summariser reads the originals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leporello.summary.masking import masked, masked_in_zone

if TYPE_CHECKING:
    from leporello.messages import Message


def prune(messages: list[Message], protected_from: int, zone: range = range(0)) -> list[Message]:
    """Return the list with every long tool result before `protected_from`, and in the masked zone, cleared."""
    pruned = [masked(message) if index < protected_from else message for index, message in enumerate(messages)]
    for index in zone:
        pruned[index] = masked_in_zone(messages[index])
    return pruned
