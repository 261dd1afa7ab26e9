"""Server-sent events, read as they come and passed on as they are."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final

_END_OF_EVENT: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LINES: Final = re.compile(rb"\r\n|\n|\r")
_DONE: Final = b"[DONE]"


@dataclass(frozen=True, kw_only=True)
class Event:
    """One event: its bytes, its data if that is JSON, and whether it says that the answer is complete."""

    raw: bytes
    data: Any = None
    last: bool = False


class Events:
    """Cuts a stream of bytes into events."""

    def __init__(self) -> None:
        self.rest = b""
        """What came of an event that is not complete yet."""

    def feed(self, chunk: bytes) -> list[Event]:
        """Take the next bytes and return the events that are complete now."""
        data = self.rest + chunk
        # An end mark may lie across two chunks; further back there is none, or it would have been found before.
        at = max(0, len(self.rest) - 3)
        found, start = [], 0
        while end := _END_OF_EVENT.search(data, at):
            found.append(_event(data[start : end.end()]))
            start = at = end.end()
        self.rest = data[start:]
        return found


def event(name: str, data: Any) -> bytes:
    """Write one event."""
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode("utf-8", "replace")


def _event(raw: bytes) -> Event:
    lines = (line for line in _LINES.split(raw) if line.startswith(b"data:"))
    text = b"\n".join(line[5:].removeprefix(b" ") for line in lines)
    if not text or text == _DONE:
        return Event(raw=raw, last=text == _DONE)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return Event(raw=raw)
    return Event(raw=raw, data=data, last=isinstance(data, dict) and data.get("type") == "message_stop")
