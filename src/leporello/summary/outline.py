"""The outline of old turns: what was said is complete; of calls and outputs there is a line each, of the oldest none.

`reach` says which turns are old enough for that. There may be many thousands of them, so they are not read turn by
turn: what is to be shown or searched is kept in columns that can be joined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from leporello.messages.types import text_of
from leporello.summary.reach import in_full_from

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leporello.redact import RedactedMessage

WITH_CALLS = 300
"""Messages, the newest of the old ones, whose calls and outputs have a line; before them only what was said has."""

GLANCE = 80
"""Characters: an output of so many is shown as it is; of a longer one the last line, if it is no longer than that."""

ARGUMENTS = 400
"""Characters that are shown of the arguments of a call."""

_PAGE = 100


class Block(NamedTuple):
    """The lines of consecutive messages, from `start` up to, and without, `stop`."""

    start: int
    stop: int
    text: str


class Outline(NamedTuple):
    """What old messages hold, each with the index of its message."""

    blocks: list[Block]
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
        found.blocks.append(Block(start, start + len(page), "\n".join(lines)))
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
