"""Files that the agent reads again after a cut, and whether the window would have made it unnecessary.

A file counts as read again when one of the next calls reads a file that an earlier call read, too. Reading it again was
unnecessary when the window holds, in context, everything that the agent takes from it: the exact values of the result
that it writes before they are shown in any other way. A result of which it takes nothing tells nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from leporello.messages import ToolCall, role_of, text_of, tool_calls_of
from leporello.proof.exact_values import values_in
from leporello.proof.lines import Units, units_of, written_units

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from leporello.messages import Message

CALLS = 30
"""How many calls behind a cut are looked at."""

_TAKEN_WITHIN = 40  # messages after the result in which it is seen what was taken from it
_READERS = ("read", "view", "cat", "open_file", "get_file")
_PATHS = ("file_path", "path", "filename", "file", "target_file")


class Reread(NamedTuple):
    """A file that was read again: how many values were taken from the result, and how many the window held.

    `result` is the place of what was read, among the messages.
    """

    path: str
    taken: int
    held: int
    result: int

    @property
    def unnecessary(self) -> bool:
        """Whether the window held everything that was taken."""
        return self.taken > 0 and self.held == self.taken


def rereads(messages: Sequence[Message], at: int, window: Iterable[Message]) -> Iterator[Reread]:
    """Yield the files that are read again within the next calls, and what the window held of them."""
    known = {path for message in messages[:at] for call in tool_calls_of(message) if (path := _read_path(call))}
    held = Units.of(window)
    calls = 0
    for place in range(at, len(messages)):
        for call in tool_calls_of(messages[place]):
            calls += 1
            if calls > CALLS:
                return
            path = _read_path(call)
            if path in known and (result := _result(messages, place, call)) is not None:
                known.discard(path)
                taken = _taken(messages, at, result)
                yield Reread(path, len(taken), sum(value in held for value in taken), result)


def _read_path(call: ToolCall) -> str:
    if not any(word in call.name.lower() for word in _READERS):
        return ""
    return next((path for key in _PATHS if isinstance(path := call.arguments.get(key), str)), "")


def _result(messages: Sequence[Message], place: int, call: ToolCall) -> int | None:
    for at in range(place + 1, len(messages)):
        if role_of(messages[at]) != "tool":
            return None
        if messages[at].get("tool_call_id") == call.id:
            return at
    return None


def _taken(messages: Sequence[Message], cut: int, result: int) -> set[str]:
    """Return the values of a result that the agent writes later and that nothing else has shown it since the cut."""
    text = Units(text_of(messages[result]).splitlines())
    shown = Units.of(messages[cut:result])
    taken: set[str] = set()
    for at in range(result + 1, min(len(messages), result + 1 + _TAKEN_WITHIN)):
        message = messages[at]
        for unit in written_units(message):
            taken |= {value for value, _ in values_in(unit) if value in text and value not in shown}
        if role_of(message) != "assistant":
            shown = Units([*shown.units, *units_of(message)])
    return taken
