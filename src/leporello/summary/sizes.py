"""The tokens of messages, each counted once during a compaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
