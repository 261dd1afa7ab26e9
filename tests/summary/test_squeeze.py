"""What must be kept is shortened only as far as it must be, and beside it there is room for the list of names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leporello.summary.payloads import shorten
from leporello.summary.sizes import Sizes
from leporello.summary.squeeze import Room, squeeze_unread

if TYPE_CHECKING:
    from leporello.messages import Message

UNREAD: list[Message] = [
    {"role": "tool", "tool_call_id": f"c{n}", "content": f"row {n} of the table\n" * 800} for n in range(4)
]
ALL = Sizes().total(UNREAD)


def squeezed(room: Room) -> list[Message]:
    return squeeze_unread(UNREAD, range(4), room, Sizes(), lambda at, limit: shorten(UNREAD[at], limit))


def test_what_fits_is_not_cut_for_the_sake_of_names() -> None:
    assert squeezed(Room(wanted=0, most=ALL, names=ALL // 4)) == UNREAD


def test_when_something_is_cut_in_any_case_names_have_their_room() -> None:
    room = Room(wanted=0, most=ALL - 1, names=ALL // 4)
    assert Sizes().total(squeezed(room)) <= room.most - room.names
    planted = Room(wanted=0, most=ALL - 1)
    assert Sizes().total(squeezed(planted)) > room.most - room.names


def test_as_few_messages_are_cut_as_can_be() -> None:
    kept = squeezed(Room(wanted=0, most=ALL - 1))
    assert [shown is whole for shown, whole in zip(kept, UNREAD, strict=True)] == [False, True, True, True]
