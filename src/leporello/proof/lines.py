"""A conversation as lines and calls: the pieces in which things that belong together stand together."""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from leporello.messages import role_of, text_of, tool_calls_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from leporello.messages import Message

_BETWEEN = "\0"
_SHELL = ("command", "cmd", "script")
_COMMAND = re.compile(
    r"(?:^|&&|\|\|?|;|\n)[ \t]*([a-z][\w.+-]{1,30})(?:[ \t]+([a-z][a-z-]{1,20})(?![\w./=]))?", re.ASCII
)
_SHORTEST_COMMAND = 4


def units_of(message: Message) -> list[str]:
    """Return the lines of what a message says, and each of its calls as one unit."""
    lines = [line for line in text_of(message).splitlines() if line.strip()]
    return lines + [_call(call.name, call.arguments or call.raw) for call in tool_calls_of(message)]


def commands_in(messages: Iterable[Message]) -> set[str]:
    """Return the commands that were run, by name and, where there is one, subcommand: "pytest", "git log"."""
    scripts = (call.arguments.get(key) for message in messages for call in tool_calls_of(message) for key in _SHELL)
    return {
        " ".join(filter(None, match.groups()))
        for script in scripts
        if isinstance(script, str)
        for match in _COMMAND.finditer(script)
        if len(match[0].strip()) >= _SHORTEST_COMMAND
    }


def written_units(message: Message) -> list[str]:
    """Return what a message of the assistant says and calls; [] for any other."""
    return units_of(message) if role_of(message) == "assistant" else []


def _call(name: str, arguments: Any) -> str:
    return "\n".join([name, *_leaves(arguments)])


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, str):
        yield value.replace(_BETWEEN, " ")
    elif value is not None and not isinstance(value, bool):
        yield str(value)


class Units:
    """Lines and calls, searchable for whole values."""

    def __init__(self, units: Iterable[str]) -> None:
        self.units: list[str] = [unit.replace(_BETWEEN, " ") for unit in units]
        self._text = _BETWEEN.join(self.units)
        self._ends = list(accumulate(len(unit) + 1 for unit in self.units))

    @classmethod
    def of(cls, messages: Iterable[Message]) -> Units:
        """Return the units of messages."""
        return cls(unit for message in messages for unit in units_of(message))

    def __contains__(self, value: str) -> bool:
        return next(self._places(value), None) is not None

    def holding(self, value: str, most: int = 400) -> list[int]:
        """Return which units hold a value, as a whole word, at most `most`."""
        found: list[int] = []
        for place in self._places(value):
            unit = bisect_right(self._ends, place)
            if not found or found[-1] != unit:
                found.append(unit)
                if len(found) == most:
                    break
        return found

    def _places(self, value: str) -> Iterator[int]:
        """Yield where a value stands, with no letter or digit beside it."""
        at = self._text.find(value)
        while at >= 0:
            if is_whole(self._text, at, at + len(value)):
                yield at
            at = self._text.find(value, at + 1)


def is_whole(text: str, start: int, stop: int) -> bool:
    """Tell whether text[start:stop] is not a part of a longer word."""
    before, after = text[start - 1 : start], text[stop : stop + 1]
    glued_before = _is_word(before) and _is_word(text[start : start + 1])
    return not glued_before and not (_is_word(after) and _is_word(text[stop - 1 : stop]))


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"
