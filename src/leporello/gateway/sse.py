"""Parses server-sent events, and keeps their bytes."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from leporello.session.responses_stream import ENDS

_END_OF_EVENT: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LINES: Final = re.compile(rb"\r\n|\n|\r")
_DONE: Final = b"[DONE]"
_LAST: Final = ENDS | {"message_stop"}

LONGEST_EVENT: Final = 4 * 1024 * 1024
"""An event with more data is passed on, but not read."""


@dataclass(frozen=True, kw_only=True)
class ServerSentEvent:
    """One event: its bytes, its data if that is JSON, and whether it ends the answer."""

    raw: bytes
    data: Any = None
    last: bool = False


class Events:
    """Splits a stream of bytes into events."""

    def __init__(self) -> None:
        self._rest = bytearray()

    @property
    def rest(self) -> bytes:
        """The bytes of an incomplete event."""
        return bytes(self._rest)

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """Take the next bytes and return the events that are complete now."""
        # An end mark may lie across two chunks; further back there is none, or it would have been found before.
        at = max(0, len(self._rest) - 3)
        self._rest += chunk
        ends = [end.end() for end in _END_OF_EVENT.finditer(self._rest, at)]
        found = [_event(bytes(self._rest[start:end])) for start, end in pairwise([0, *ends])]
        if ends:
            del self._rest[: ends[-1]]
        return found


def event(name: str, data: Any) -> bytes:
    """Write one event; "" for one without a name."""
    named = f"event: {name}\n" if name else ""
    return f"{named}data: {json.dumps(data, ensure_ascii=False)}\n\n".encode("utf-8", "replace")


def _event(raw: bytes) -> ServerSentEvent:
    lines = (line for line in _LINES.split(raw) if line.startswith(b"data:"))
    text = b"\n".join(line[5:].removeprefix(b" ") for line in lines)
    if not text or text == _DONE or len(text) > LONGEST_EVENT:
        return ServerSentEvent(raw=raw, last=text == _DONE)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return ServerSentEvent(raw=raw)
    return ServerSentEvent(raw=raw, data=data, last=isinstance(data, dict) and data.get("type") in _LAST)
