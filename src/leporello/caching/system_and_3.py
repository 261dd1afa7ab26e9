"""The default strategy: the system prompt and the last three messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leporello.caching.markers import MOST_MARKERS, marker, put, without_markers
from leporello.messages import is_system

if TYPE_CHECKING:
    from collections.abc import Sequence


def apply_anthropic_cache_control(
    messages: Sequence[Any], cache_ttl: str = "5m", native_anthropic: bool = False
) -> list[Any]:
    """Return the messages with cache breakpoints on the system prompt and the last three others.

    Without a system prompt the last four carry one. Markers that were already there are replaced, so that there are
    never more than four. The input is not changed; messages without a marker are the same objects.

    `native_anthropic` says that a converter to Anthropic's format follows: then tool results carry a marker too.
    """
    bare = without_markers(messages)
    return put(bare, places(messages), marker(cache_ttl), tools="message" if native_anthropic else "none")


def places(messages: Sequence[Any], most: int = MOST_MARKERS) -> list[int]:
    """Return the indexes of the messages to mark, in order."""
    opening = [0] if messages and most > 0 and is_system(messages[0]) else []
    newest: list[int] = []
    for at in range(len(messages) - 1, -1, -1):
        if len(opening) + len(newest) >= most:
            break
        if not is_system(messages[at]):
            newest.append(at)
    return opening + newest[::-1]
