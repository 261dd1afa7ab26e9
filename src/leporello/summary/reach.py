"""How far back a very long stretch of a conversation is read to the last character.

A summary has at most 12,000 tokens, so of a very long stretch it can only show what is newest. Up to `IN_FULL`
everything is read. Beyond that the part that is read in full shrinks by twice what lies before it, down to the newest
`LEAST_IN_FULL`; the older part is outlined: what was said and called is complete, of a tool output there is a glance
at its ends. So the work is bounded, however long a conversation has grown.

Work is measured in characters; a message costs as much as `PER_MESSAGE` of them, however short it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leporello.messages.types import role_of, text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

IN_FULL = 3_000_000
"""Several times what a window of 200,000 tokens folds at once."""

LEAST_IN_FULL = 60_000
"""More than the longest summary holds."""

PER_MESSAGE = 600


def in_full_from(messages: Sequence[Any]) -> int:
    """Return the index from which on messages are read in full; no result is parted from its call there.

    How much lies before the newest `IN_FULL` is not measured but taken to be as dense as they are.
    """
    if len(messages) * PER_MESSAGE > 1.5 * IN_FULL:  # whatever they hold
        start, _ = _walked_back(messages, LEAST_IN_FULL)
    else:
        start, length = _walked_back(messages, IN_FULL)
        if not start:
            return 0
        older = length * start // (len(messages) - start)
        start, _ = _walked_back(messages, max(LEAST_IN_FULL, IN_FULL - 2 * older))
    while start < len(messages) and role_of(messages[start]) == "tool":
        start += 1
    return start


def length_of(message: Any) -> int:
    """Return how many characters a message holds: its text and the arguments of its calls."""
    if type(message) is not dict:
        return 0
    content = message.get("content")
    length = len(content) if type(content) is str else len(text_of(message)) if content else 0
    return length + _handed_over(message["tool_calls"]) if "tool_calls" in message else length


def _handed_over(calls: Any) -> int:
    try:
        return sum([len(call["function"]["arguments"]) for call in calls])
    except (TypeError, KeyError):  # calls that nobody can read
        return 0


def _walked_back(messages: Sequence[Any], most: int) -> tuple[int, int]:
    """Return where the newest messages begin that cost at most so much together, and how much they cost."""
    length = 0
    for index in range(len(messages) - 1, -1, -1):
        more = length_of(messages[index]) + PER_MESSAGE
        if length + more > most and index + 1 < len(messages):
            return index + 1, length
        length += more
    return 0, length
