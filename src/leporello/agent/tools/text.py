"""Text from files and programs, made safe to show and short enough to read."""

from __future__ import annotations

import codecs
import re
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from leporello.messages.visible import visible

_ESCAPES: Final = re.compile(
    r"\x1b(?:"
    r"\[[0-?]*[ -/]*[@-~]"  # colours, cursor
    r"|\][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles, links, clipboard
    r"|[PX^_][^\x1b]*\x1b\\"  # device strings
    r"|[ -/]*[0-~])"  # the rest
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
_OVERSTRUCK: Final = re.compile(r"[^\n]\x08")
_FOLLOWERS: Final = bytes(range(0x80, 0xC0))  # the second to fourth bytes of a character
_decoder: Final = codecs.getincrementaldecoder("utf-8")


def one_line(text: str, length: int = 200) -> str:
    """Return a text, or its beginning, on one line and safe to show."""
    line = visible(text[: length + 1]).replace("\n", "␊").replace("\t", "␉")
    return line if len(text) <= length else f"{line[:length]}…"


def printed(text: str) -> str:
    """Return what a program's output would leave on a screen: no colours, overwritten parts of lines gone."""
    text = _ESCAPES.sub("", text.replace("\r\n", "\n"))
    if "\x08" in text:
        text = _OVERSTRUCK.sub("", text)
    if "\r" in text:
        text = "\n".join(map(_left_of, text.split("\n")))
    return visible(text)


def _left_of(line: str) -> str:
    """Return what is left of a line when each part of it overwrote the one before."""
    return line.rstrip("\r").rpartition("\r")[2]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much of an output is kept: its first and its last bytes, its first and last lines."""

    head_bytes: int = 10_000
    tail_bytes: int = 20_000
    head_lines: int = 300
    tail_lines: int = 600


@dataclass(kw_only=True)
class Clip:
    """The beginning and the end of an output of any length; memory stays within the limits."""

    limits: Limits = field(default_factory=Limits)
    size: int = 0
    _head: bytearray = field(default_factory=bytearray)
    _tail: deque[bytes] = field(default_factory=deque)
    _tail_size: int = 0
    _lost_lines: int = 0

    def add(self, data: bytes) -> None:
        """Take the next bytes."""
        self.size += len(data)
        room = self.limits.head_bytes - len(self._head)
        self._head += data[: max(0, room)]
        if rest := data[max(0, room) :]:
            self._tail.append(rest)
            self._tail_size += len(rest)
        while self._tail and self._tail_size - len(self._tail[0]) >= self.limits.tail_bytes:
            dropped = self._tail.popleft()
            self._tail_size -= len(dropped)
            self._lost_lines += dropped.count(b"\n")

    def text(self, hint: str = "") -> str:
        """Return what was kept, safe to show; where something is missing, how much, and how to see it."""
        tail = b"".join(self._tail)
        surplus, tail = tail[: -self.limits.tail_bytes], tail[-self.limits.tail_bytes :]
        missing = self.size - len(self._head) - len(tail)
        if not missing:
            return self._fewer_lines(printed((bytes(self._head) + tail).decode("utf-8", "replace")), hint)
        lost = self._lost_lines + surplus.count(b"\n")
        heads, ends = printed(_beginning(self._head)).split("\n"), printed(_end(tail)).split("\n")
        kept, last = heads[: self.limits.head_lines], ends[-self.limits.tail_lines :]
        lost += len(heads) - len(kept) + len(ends) - len(last)
        return _joined(kept, _note(f"{missing:,} bytes, about {lost:,} lines", hint), last)

    def _fewer_lines(self, text: str, hint: str) -> str:
        lines = text.split("\n")
        lost = len(lines) - self.limits.head_lines - self.limits.tail_lines
        if lost <= 0:
            return text
        head, tail = lines[: self.limits.head_lines], lines[-self.limits.tail_lines :]
        return _joined(head, _note(f"{lost:,} lines", hint), tail)


def _note(what: str, hint: str) -> str:
    return f"[… {what} are left out here{f'; {hint}' if hint else ''} …]"


def _joined(head: list[str], note: str, tail: list[str]) -> str:
    return "\n".join([*head, note, *tail])


def _beginning(data: bytearray) -> str:
    """Decode the beginning of something; a last character whose rest is missing is left out."""
    return _decoder("replace").decode(data)


def _end(data: bytes) -> str:
    """Decode the end of something; a first character whose beginning is missing is left out."""
    return (data[:3].lstrip(_FOLLOWERS) + data[3:]).decode("utf-8", "replace")


def shortened(line: str, length: int) -> str:
    """Return a line, or its beginning and how much follows."""
    return line if len(line) <= length else f"{line[:length]} [… {len(line) - length:,} more characters]"


def counted(number: int, noun: str) -> str:
    """Write a number of things."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
