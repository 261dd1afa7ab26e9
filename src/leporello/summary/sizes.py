"""The tokens of messages, each counted once during a compaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leporello.messages.types import newest_of
from leporello.summary.masking import masked_stop
from leporello.summary.placement import is_marked
from leporello.tokens import count_message

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leporello.messages import Message


class Sizes:
    """Count messages and remember them; equal to `count_message`."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, Message]] = {}  # the message is held, so that its id stays its own

    def of(self, message: Message) -> int:
        """Return the tokens of one message."""
        known = self._known.get(id(message))
        if known is None:
            known = self._known[id(message)] = (count_message(message), message)
        return known[0]

    def total(self, messages: Iterable[Message]) -> int:
        """Return the tokens of several messages."""
        return sum(map(self.of, messages))


def unfoldable(
    result: Sequence[Message], sizes: Sizes, goal: int | None, *, cut: Iterable[int] = ()
) -> tuple[int, ...]:
    """Name the largest messages of a result that is still too large, as many as keep it there, and those in `cut`."""
    left, named = sizes.total(result), set(cut)
    for index in sorted(range(len(result)), key=lambda i: -sizes.of(result[i])):
        if goal is None or left <= goal:
            break
        named.add(index)
        left -= sizes.of(result[index])
    return tuple(sorted(named))


def zone_tokens(messages: Sequence[Message], sizes: Sizes) -> tuple[int, int]:
    """Return what the summary, or the blocks, and the masked zone behind it take in a window."""
    user = newest_of(messages, "user")
    summary = max((at for at, message in enumerate(messages) if at != user and is_marked(message)), default=-1)
    if summary < 0:
        return 0, 0
    zone = messages[summary + 1 : masked_stop(messages, summary + 1)]
    return sizes.of(messages[summary]), sizes.total(zone)
