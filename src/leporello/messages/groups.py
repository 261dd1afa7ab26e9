"""What belongs together: a call and its results are one group, any other message is a group by itself.

A system message in the middle belongs to the group that it stands behind; each of the system prompt is one by itself.
An answer in which a program of the Responses API runs on belongs to the group in which the program began.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from leporello.messages.types import RESPONSES_NOTE, is_system, role_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leporello.messages.types import Message


class Group(NamedTuple):
    """The half-open range `messages[start:stop]` that must not be split."""

    start: int
    stop: int


def groups(messages: Sequence[Message]) -> list[Group]:
    """Return the groups of a conversation in order; together they are the whole list."""
    found = []
    start = 0
    while start < len(messages):
        stop = _stop(messages, start)
        found.append(Group(start, stop))
        start = stop
    return found


def group_start(messages: Sequence[Message], index: int) -> int:
    """Return where the group that holds `index` begins: the nearest cut at or before it that splits nothing.

    `index` may be the end of the list, which is a cut already.
    """
    _check(messages, index)
    if index == len(messages):
        return index
    start = _start(messages, index)
    while start and _continues(messages[start]):
        before = _start(messages, start - 1)
        if is_system(messages[before]):
            break
        start = before
    return start


def _start(messages: Sequence[Message], index: int) -> int:
    """Return where the call with its results, or the message by itself, begins that holds `index`."""
    first = index
    while first >= 0 and is_system(messages[first]):
        first -= 1
    if first < 0:
        return index
    start = first
    while start > 0 and role_of(messages[start]) == "tool":
        start -= 1
    return start if _calls(messages[start]) else first


def group_stop(messages: Sequence[Message], index: int) -> int:
    """Return where the group that holds `index` ends: the nearest cut behind it that splits nothing."""
    _check(messages, index)
    return index if index == len(messages) else _stop(messages, group_start(messages, index))


def _stop(messages: Sequence[Message], start: int) -> int:
    """Return where the group that begins here ends."""
    stop = _end(messages, start)
    while stop < len(messages) and _continues(messages[stop]) and not is_system(messages[start]):
        stop = _end(messages, stop)
    return stop


def _end(messages: Sequence[Message], start: int) -> int:
    """Return where the call with its results, or the message by itself, ends that begins here."""
    stop = start + 1
    if is_system(messages[start]):
        return stop
    while stop < len(messages) and role_of(messages[stop]) == "tool" and _calls(messages[start]):
        stop += 1
    while stop < len(messages) and is_system(messages[stop]):
        stop += 1
    return stop


def is_cut(messages: Sequence[Message], index: int) -> bool:
    """Tell whether the list may be cut before `index` without parting a call from its results."""
    return group_start(messages, index) == index


def _calls(message: Any) -> bool:
    calls = message.get("tool_calls") if role_of(message) == "assistant" else None
    return isinstance(calls, list) and bool(calls)


def _continues(message: Any) -> bool:
    note = message.get(RESPONSES_NOTE) if role_of(message) == "assistant" else None
    return isinstance(note, dict) and note.get("continues") is True


def _check(messages: Sequence[Message], index: int) -> None:
    if not 0 <= index <= len(messages):
        raise IndexError(f"no message {index} in a list of {len(messages)}")
