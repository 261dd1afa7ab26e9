"""The ends of a very long list: only they can stay, so only they are made valid and planned with.

Checking thousands of messages that are about to be folded takes longer than everything else. So the middle of a very
long list is set aside as it is; the summariser's readers take anything. Where that would decide differently from
looking at everything, nothing is set aside: when the ends are not valid by themselves, or when the middle holds a role
of its own, an earlier summary, or the newest user message.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from leporello.messages import Message, repair, role_of, text_of
from leporello.summary.place import RECOGNISED, holds_summary
from leporello.summary.reach import length_of

VERY_LONG = 2_000  # messages; a shorter list is looked at as a whole
FRONT, BACK = 40, 320  # messages, about; several times what is usually kept
TAIL_CHARACTERS = 6  # for each token that the tail may have; text has fewer

_TURNS = ("tool", "assistant", "user")


@dataclass(frozen=True, kw_only=True)
class Ends:
    """A valid list without its middle; the middle belongs in front of `seam`, which is None when nothing is missing."""

    messages: list[Message]
    middle: list[Message] = field(default_factory=list)
    seam: Message | None = None


def whole(messages: list[Any]) -> Ends:
    """Return the whole list, made valid."""
    return Ends(messages=list(repair(messages).messages))


def ends(messages: Any, tail_tokens: int) -> Ends:
    """Return the ends of a very long list, with room for a tail of so many tokens, or the whole of any other."""
    if not isinstance(messages, list) or len(messages) <= VERY_LONG:
        return whole(messages)
    start, stop = _cuts(messages, _back(messages, tail_tokens * TAIL_CHARACTERS))
    middle = messages[start:stop]
    if not middle or not _is_foldable(middle) or not _holds_newest(messages[stop:]):
        return whole(messages)
    repaired = repair(messages[:start] + messages[stop:])
    if repaired.changes:
        return whole(messages)
    return Ends(messages=list(repaired.messages), middle=middle, seam=messages[stop])


def _back(messages: list[Any], characters: int) -> int:
    """Return where the back begins: at least `BACK` messages, and more when they are short."""
    place = len(messages)
    while place > FRONT and (characters > 0 or place > len(messages) - BACK):
        place -= 1
        characters -= length_of(messages[place])
    return place


def _cuts(messages: list[Any], back: int) -> tuple[int, int]:
    """Return where the middle starts and stops: at messages of one role, so that what meets there is in turn."""
    for role, before in (("user", ("assistant", "tool")), ("assistant", ("user", "tool"))):
        start, stop = (_turn_at(messages, place, role, before) for place in (FRONT, back))
        if start < stop < len(messages):
            return start, stop
    return 0, 0


def _turn_at(messages: list[Any], place: int, role: str, before: tuple[str, ...]) -> int:
    """Return the first place from `place` on where a role takes its turn, or the end of the list."""
    places = range(place, min(place + FRONT, len(messages)))
    return next(
        (i for i in places if role_of(messages[i]) == role and role_of(messages[i - 1]) in before), len(messages)
    )


def _is_foldable(middle: list[Any]) -> bool:
    """Tell whether these are messages of the conversation and nothing else: no system prompt, no earlier summary."""
    odd = [
        message
        for message in middle
        if type(message) is not dict
        or message.get("role") not in _TURNS
        or type(content := message.get("content")) is list
        or (type(content) is str and content.startswith(RECOGNISED))
    ]
    return all(role_of(message) in _TURNS and not holds_summary(message) for message in odd)


def _holds_newest(back: list[Message]) -> bool:
    """Tell whether the newest user message and the newest visible reply are among these."""
    spoken = [role_of(message) for message in back if role_of(message) == "user" or text_of(message).strip()]
    return {"user", "assistant"} <= set(spoken) and not holds_summary(back[0])
