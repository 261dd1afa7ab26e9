"""The outline of old turns: what was said is complete; of calls and outputs there is a line each, of the oldest none.

A summary has at most 12,000 tokens, so of a very long conversation it can only show what is newest. Up to `IN_FULL`
everything is read. Beyond that the part that is read in full shrinks by twice what lies before it, down to the newest
`LEAST_IN_FULL`, and the older part is outlined. So the work is bounded, however long a conversation has grown. It is
measured in characters; a message costs as much as `PER_MESSAGE` of them, however short it is.

There may be many thousands of old turns, so they are not read turn by turn: what is to be shown or searched is kept in
columns that can be joined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from leporello.messages.types import role_of, text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leporello.redact import RedactedMessage

IN_FULL = 3_000_000
"""Several times what a window of 200,000 tokens folds at once."""

LEAST_IN_FULL = 60_000
"""More than the longest summary holds."""

PER_MESSAGE = 600

WITH_CALLS = 300
"""Messages, the newest of the old ones, whose calls and outputs have a line; before them only what was said has."""

GLANCE = 80
"""Characters up to which an output is shown whole; of a longer one the last line is shown, if it is no longer."""

ARGUMENTS = 400
"""Characters that are shown of the arguments of a call."""

_PAGE = 100


class OutlineBlock(NamedTuple):
    """The lines of consecutive messages, from `start` up to, and without, `stop`."""

    start: int
    stop: int
    text: str


class Outline(NamedTuple):
    """What old messages hold, each with the index of its message."""

    blocks: list[OutlineBlock]
    said: list[tuple[int, str, str]]
    """Index, role and text."""
    calls: list[tuple[int, str, str]]
    """Index, name of the tool and raw arguments."""
    outputs: list[tuple[int, str]]

    @property
    def stop(self) -> int:
        """The index of the first message that is not in it."""
        return self.blocks[-1].stop if self.blocks else 0


def outline(messages: Sequence[RedactedMessage]) -> Outline:
    """Look at the messages that are too old to be read in full, if any; what cannot be read is passed over."""
    found = Outline([], [], [], [])
    stop = in_full_from(messages)
    for start in range(0, stop, _PAGE):
        page = messages[start : min(start + _PAGE, stop)]
        lines = _lines(page, start, stop - WITH_CALLS, found)
        found.blocks.append(OutlineBlock(start, start + len(page), "\n".join(lines)))
    return found


def _lines(messages: Sequence[RedactedMessage], start: int, since: int, found: Outline) -> list[str]:
    """Return the lines of messages, those of calls and outputs from the index `since` on; keep what is searched."""
    lines: list[str] = []
    for index, message in enumerate(messages, start):
        role, text = message.get("role"), message.get("content")
        if type(text) is not str:
            text = text_of(message) if text else ""
        if role == "tool":
            found.outputs.append((index, text))
            if index >= since:
                lines.append(_output_line(index, text))
            continue
        if text:
            found.said.append((index, str(role), text))
            lines.append(f"#{index} {role}: {text}")
        if "tool_calls" in message:
            calls = calls_of(message)
            found.calls.extend([(index, name, raw) for name, raw in calls])
            if index >= since:
                lines.extend([_call_line(index, name, raw) for name, raw in calls])
    return lines


def _call_line(index: int, name: str, raw: str) -> str:
    if len(raw) <= ARGUMENTS:
        return f"#{index} calls {name} {raw}"
    stop = max(raw.rfind(" ", 0, ARGUMENTS), raw.rfind("\n", 0, ARGUMENTS), 0)
    return f"#{index} calls {name} {raw[:stop]} [... {len(raw) - stop:,} characters left out ...]"


def _output_line(index: int, text: str) -> str:
    if len(text) <= GLANCE:
        return f"#{index} result: {text}"
    line = text.rfind("\n", len(text) - GLANCE) + 1
    end = f" ... {text[line:]}" if line else ""
    return f"#{index} result of {len(text):,} characters{end}"


def calls_of(message: dict[str, Any]) -> list[tuple[str, str]]:
    """Return name and raw arguments of each call that can be read; parsing them would take much longer."""
    found = []
    calls = message["tool_calls"]
    for call in calls if type(calls) is list else ():
        try:
            name, raw = call["function"]["name"], call["function"]["arguments"]
        except (TypeError, KeyError):
            continue
        if type(name) is str and type(raw) is str:
            found.append((name, raw))
    return found


def in_full_from(messages: Sequence[Any]) -> int:
    """Return the index from which on messages are read in full; no result is parted from its call there.

    How much lies before the newest `IN_FULL` is not measured but taken to be as dense as they are.
    """
    if len(messages) * PER_MESSAGE > 1.5 * IN_FULL:  # whatever they hold
        start, _ = _walked_back(messages, LEAST_IN_FULL)
    else:
        start, length = _walked_back(messages, IN_FULL)
        if not start:
            return 0
        older = length * start // (len(messages) - start)
        start, _ = _walked_back(messages, max(LEAST_IN_FULL, IN_FULL - 2 * older))
    while start < len(messages) and role_of(messages[start]) == "tool":
        start += 1
    return start


def length_of(message: Any) -> int:
    """Return how many characters a message holds: its text and the arguments of its calls."""
    if type(message) is not dict:
        return 0
    content = message.get("content")
    length = len(content) if type(content) is str else len(text_of(message)) if content else 0
    return length + _handed_over(message["tool_calls"]) if "tool_calls" in message else length


def _handed_over(calls: Any) -> int:
    try:
        return sum([len(call["function"]["arguments"]) for call in calls])
    except (TypeError, KeyError):  # calls that cannot be read
        return 0


def _walked_back(messages: Sequence[Any], most: int) -> tuple[int, int]:
    """Return where the newest messages begin that cost at most `most` together, and how much they cost."""
    length = 0
    for index in range(len(messages) - 1, -1, -1):
        more = length_of(messages[index]) + PER_MESSAGE
        if length + more > most and index + 1 < len(messages):
            return index + 1, length
        length += more
    return 0, length
