"""Make kept messages fit by shortening the payloads inside them, oldest first: the same for every engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
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
    """How many tokens kept messages may have: below the threshold, and at the most, inside the model's window.

    If something unread must be cut in any case, `names` of the most are left to the list of names.
    """

    wanted: int
    most: int
    names: int = 0

    def beside_unread(self, unread: int, budget: int) -> Room:
        """Return the room with space for a tail of this budget beside what is unread, as far as the window has it."""
        return replace(self, wanted=max(self.wanted, min(self.most, unread + budget)))


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
    messages: list[Message], indexes: Iterable[int], room: Room, sizes: Sizes, shorten: Shorten
) -> list[Message]:
    """Return the list with the named messages shortened by as little as makes all of it fit."""
    if sizes.total(messages) <= room.most:
        return messages
    squeezed, named, most = messages, list(indexes), max(0, room.most - room.names)
    limit = CHARACTERS_PER_TOKEN * most
    while limit >= PAYLOAD_LIMITS[-1] and sizes.total(squeezed) > most:
        squeezed = squeeze(messages, named, limit, most, sizes, shorten)
        limit //= 2
    return squeezed
