"""Phase 1: old tool results give way to a placeholder. No model is asked, and the summariser reads the originals."""

from __future__ import annotations

from leporello.messages import Message, parts_of, role_of, text_of
from leporello.summary.digest import CLEARED_OUTPUT

PLACEHOLDER = CLEARED_OUTPUT
LONGEST_KEPT = 200


def prune(messages: list[Message], protected_from: int) -> list[Message]:
    """Return the list with every long tool result before `protected_from` cleared."""
    old = [cleared(message) if is_long_result(message) else message for message in messages[:protected_from]]
    return old + messages[protected_from:]


def is_long_result(message: Message) -> bool:
    """Tell whether this is a tool result that is longer than pruning keeps."""
    if role_of(message) != "tool":
        return False
    return len(text_of(message)) > LONGEST_KEPT or any(part.get("type") != "text" for part in parts_of(message))


def cleared(message: Message) -> Message:
    """Return the tool result with the placeholder in place of its content."""
    return {**message, "content": PLACEHOLDER}
