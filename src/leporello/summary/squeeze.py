"""Make kept messages fit by shortening the payloads inside them, oldest first: the same for every engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from leporello.messages import Message
    from leporello.summary.sizes import Sizes

PAYLOAD_LIMITS = (4_000, 800, 200)  # characters
CHARACTERS_PER_TOKEN = 4

Shorten: TypeAlias = Callable[[int, int], "Message"]
"""Takes the index of a message and a limit of characters, and returns it with payloads no longer than that."""


@dataclass(frozen=True, kw_only=True)
class Room:
    """How many tokens kept messages may have: below the threshold, and at the most, inside the model's window."""

    wanted: int
    most: int

    def beside_unread(self, unread: int, budget: int) -> Room:
        """Return the room with space for a tail of this budget beside what is unread, as far as the window has it."""
        return Room(wanted=max(self.wanted, min(self.most, unread + budget)), most=self.most)


def squeeze(
    messages: list[Message], indexes: Iterable[int], limit: int, room: int, sizes: Sizes, shorten: Shorten
) -> list[Message]:
    """Return the list with the named messages shortened, in their order, until all of it fits into `room`."""
    squeezed = list(messages)
    excess = sizes.total(squeezed) - room
    for index in indexes:
        if excess <= 0:
            break
        squeezed[index] = shorten(index, limit)
        excess += sizes.of(squeezed[index]) - sizes.of(messages[index])
    return squeezed


def squeeze_unread(
    messages: list[Message], indexes: Iterable[int], room: int, sizes: Sizes, shorten: Shorten
) -> list[Message]:
    """Return the list with the named messages shortened by as little as makes all of it fit into `room`."""
    squeezed, named, limit = messages, list(indexes), CHARACTERS_PER_TOKEN * room
    while limit >= PAYLOAD_LIMITS[-1] and sizes.total(squeezed) > room:
        squeezed = squeeze(messages, named, limit, room, sizes, shorten)
        limit //= 2
    return squeezed
