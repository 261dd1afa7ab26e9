"""What the model has not read yet: everything after its newest message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leporello.messages.types import leading_systems, newest_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leporello.messages.types import Message


def unread_start(messages: Sequence[Message]) -> int:
    """Return where the unread messages begin: behind the newest message of the assistant.

    A line that a repair wrote between two messages of users counts as one: of what a room said without being answered,
    only the newest is about to be read. Without any, everything but the leading system messages is unread.
    """
    answer = newest_of(messages, "assistant")
    return leading_systems(messages) if answer < 0 else answer + 1
