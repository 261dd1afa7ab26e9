"""What stays in front, what stays at the end, and what is folded between them.

The head is the first messages of the conversation, all of the system prompt among them, but never the newest user
message or anything behind it; its end moves forward to the end of a group (`leporello.messages.groups`). The tail is
the newest messages: as many as the token budget holds, but never fewer than `protect_last_n`, and always what the model
has not read yet; its start moves back to the start of a group. Two messages outside of both are kept as anchors: the
newest user message, always, and the newest visible assistant reply, when it fits into what the tail left of the budget.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from leporello.messages import Message, group_start, group_stop, leading_systems, role_of, text_of, unread_start
from leporello.messages.types import newest_of

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, kw_only=True)
class Boundaries:
    """The head is `[:head_end]`, the tail `anchors` and `[tail_start:]`; everything else is folded."""

    head_end: int
    anchors: tuple[int, ...]
    tail_start: int

    @property
    def folded(self) -> list[int]:
        """The indexes of the messages that are folded."""
        anchors = set(self.anchors)
        return [index for index in range(self.head_end, self.tail_start) if index not in anchors]

    def with_zone(self, zone: range) -> Boundaries:
        """Return the boundaries with a zone before the tail; an anchor inside it stands there."""
        if not zone:
            return self
        return replace(self, tail_start=zone.start, anchors=tuple(one for one in self.anchors if one < zone.start))

    def tail(self, length: int) -> list[int]:
        """Return the indexes kept at the end of a list of that length, oldest first."""
        return [*self.anchors, *range(self.tail_start, length)]


def find_boundaries(
    messages: list[Message],
    sizes: Sequence[int],
    *,
    protect_first_n: int,
    protect_last_n: int,
    tail_budget: int,
) -> Boundaries:
    """Find head, anchors and tail of a valid list; `sizes` holds the tokens of each message."""
    head_end = _head_end(messages, protect_first_n)
    tail_start = _tail_start(messages, sizes, head_end, protect_last_n, tail_budget)
    left = tail_budget - sum(sizes[tail_start:])
    return Boundaries(
        head_end=head_end, anchors=_anchors(messages, sizes, head_end, tail_start, left), tail_start=tail_start
    )


def _head_end(messages: list[Message], protect_first_n: int) -> int:
    end = min(max(protect_first_n, leading_systems(messages)), len(messages))
    if 0 < end < len(messages):
        end = group_stop(messages, end - 1)
    if not messages:
        return 0
    user = newest_of(messages, "user")
    last = min(unread_start(messages), len(messages) - 1)
    return min(end, group_start(messages, last), user if user >= 0 else end)


def _tail_start(messages: list[Message], sizes: Sequence[int], head_end: int, protect_last_n: int, budget: int) -> int:
    start, used = len(messages), 0
    unread = unread_start(messages)
    while start > head_end:
        used += sizes[start - 1]
        if used > budget and len(messages) - start >= protect_last_n and start <= unread:
            break
        start -= 1
    return max(head_end, group_start(messages, start))


def _anchors(
    messages: list[Message], sizes: Sequence[int], head_end: int, tail_start: int, budget_left: int
) -> tuple[int, ...]:
    user = newest_of(messages, "user")
    anchors = [user] if head_end <= user < tail_start else []
    reply = _newest_visible_reply(messages)
    if head_end <= reply < tail_start:
        stop = reply + 1
        while role_of(messages[stop]) == "tool":
            stop += 1
        fits = sum(sizes[i] for i in range(reply, stop)) <= budget_left - sum(sizes[i] for i in anchors)
        following = user if user > reply and anchors else tail_start
        answered = stop > reply + 1 or role_of(messages[following]) == "user"
        if fits and answered:
            anchors = sorted([*anchors, *range(reply, stop)])
    return tuple(anchors)


def _newest_visible_reply(messages: list[Message]) -> int:
    return next(
        (
            i
            for i in range(len(messages) - 1, -1, -1)
            if role_of(messages[i]) == "assistant" and text_of(messages[i]).strip()
        ),
        -1,
    )
