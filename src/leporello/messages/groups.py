"""What belongs together: a call and its results are one group, any other message is a group by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from leporello.messages.types import role_of

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
        stop = _results_end(messages, start + 1) if _calls(messages[start]) else start + 1
        found.append(Group(start, stop))
        start = stop
    return found


def group_start(messages: Sequence[Message], index: int) -> int:
    """Return where the group that holds `index` begins: the nearest cut at or before it that splits nothing.

    `index` may be the end of the list, which is a cut already.
    """
    _check(messages, index)
    start = index
    while start > 0 and start < len(messages) and role_of(messages[start]) == "tool":
        start -= 1
    return start if start == index or _calls(messages[start]) else index


def group_stop(messages: Sequence[Message], index: int) -> int:
    """Return where the group that holds `index` ends: the nearest cut behind it that splits nothing."""
    _check(messages, index)
    if index == len(messages):
        return index
    has_calls = _calls(messages[group_start(messages, index)])
    return _results_end(messages, index + 1) if has_calls else index + 1


def _results_end(messages: Sequence[Message], index: int) -> int:
    while index < len(messages) and role_of(messages[index]) == "tool":
        index += 1
    return index


def is_cut(messages: Sequence[Message], index: int) -> bool:
    """Tell whether the list may be cut before `index` without parting a call from its results."""
    return group_start(messages, index) == index


def _calls(message: Any) -> bool:
    calls = message.get("tool_calls") if role_of(message) == "assistant" else None
    return isinstance(calls, list) and bool(calls)


def _check(messages: Sequence[Message], index: int) -> None:
    if not 0 <= index <= len(messages):
        raise IndexError(f"no message {index} in a list of {len(messages)}")
