"""The planner: breakpoints where the next request finds them.

Every request ends where the assistant's answer to it begins. So the last message before the newest answer is where the
previous request ended, and wrote its breakpoint: a breakpoint on the same message reads all of it, however many blocks
have come since. One on the newest message writes for the next request. The one before it steps in when the newest
answer was begun by the host, or taken back. The system prompt's breakpoint outlives a compaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leporello.caching.markers import MOST_MARKERS, has_words
from leporello.messages import is_system, role_of

if TYPE_CHECKING:
    from collections.abc import Sequence


def plan(messages: Sequence[Any], *, native: bool = True, most: int = MOST_MARKERS) -> list[int]:
    """Return the indexes of the messages to mark, in order: at most `most`, the most useful ones.

    `native` says that the marks go to Anthropic's own wire, where tool results and calls without text carry one too.
    """
    opening = _opening(messages)
    chosen: list[int] = []
    for at in (len(messages) - 1, opening, *_ends_of_requests(messages)):
        carrier = at if at == opening else _carrier(messages, at, native=native, after=opening)
        if carrier is not None and carrier >= 0 and carrier not in chosen:
            chosen.append(carrier)
        if len(chosen) >= most:
            break
    return sorted(chosen[: max(0, most)])


def _opening(messages: Sequence[Any]) -> int:
    """Return the last message of the system prompt, -1 when there is none."""
    at = -1
    while at + 1 < len(messages) and is_system(messages[at + 1]):
        at += 1
    return at


def _ends_of_requests(messages: Sequence[Any]) -> list[int]:
    """Return where the last two requests ended: just before the newest two answers."""
    ends: list[int] = []
    for at in range(len(messages) - 1, 0, -1):
        if role_of(messages[at]) == "assistant":
            ends.append(at - 1)
            if len(ends) == 2:  # noqa: PLR2004 - two answers, two ends
                break
    return ends


def _carrier(messages: Sequence[Any], at: int, *, native: bool, after: int) -> int | None:
    """Return the nearest message from here back that can carry a marker."""
    for candidate in range(at, after, -1):
        if _can_carry(messages[candidate], native=native):
            return candidate
    return None


def _can_carry(message: Any, *, native: bool) -> bool:
    if has_words(message):
        return True
    return native and isinstance(message, dict) and (role_of(message) == "tool" or bool(message.get("tool_calls")))
