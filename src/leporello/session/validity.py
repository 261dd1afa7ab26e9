"""Keeps the window valid: only what is new is looked at, and what had to be changed stays as it was sent.

A caller may speak twice in a row, leave calls unanswered or hand over an answer that broke off. The store keeps all of
it as it came; the window holds what can be sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leporello.messages import align, call_ids_of, group_start, is_system, repair, role_of, violations
from leporello.session.window import Entry, entry_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leporello.messages import Message
    from leporello.session.window import Window

_OPENING: Message = {"role": "user", "content": "-"}  # stands for everything before the part that is looked at


class Validity:
    """How far the window is known to be valid, and which ids its calls have."""

    def __init__(self) -> None:
        self.checked = 0
        """How many entries at the front are known to be valid."""
        self.ids: set[str] = set()

    def repaired(self, window: Window, dialect: str) -> tuple[int, list[Entry]] | None:
        """Return what makes the window valid: other entries from a place on; None when it is so already."""
        start = self._start(window)
        part = window.messages[start:]
        opening = [_OPENING] if start and part and part[0].get("role") != "user" else []
        if not violations([*opening, *part], dialect):
            return None
        entries = window.entries[start:]
        valid = repair([*opening, *part]).messages[len(opening) :]
        mended = [
            _mended(message, [entries[place] for place in places])
            for message, places in zip(valid, align(part, valid), strict=True)
        ]
        shorter = min(len(entries), len(mended))
        same = next((at for at in range(shorter) if entries[at] is not mended[at]), shorter)
        return None if same == len(entries) == len(mended) else (start + same, mended[same:])

    def note(self, window: Window) -> None:
        """Take note that the window is valid as it is now."""
        for message in window.messages[self.checked :]:
            self.ids.update(call_ids_of(message))
        self.checked = len(window)

    def cut(self, index: int) -> None:
        """Take note that the entries from a place on are gone or others."""
        self.checked = min(self.checked, index)
        if not index:
            self.ids.clear()

    def _start(self, window: Window) -> int:
        """Return the place from which on the window must be looked at: the front, when what is new concerns it."""
        new = window.messages[self.checked :]
        if not self.checked or any(id_ in self.ids for message in new for id_ in call_ids_of(message)):
            return 0
        start = group_start(window.messages, self.checked - 1)
        return 0 if is_system(window.messages[start]) else start


def _mended(message: Message, sources: Sequence[Entry]) -> Entry:
    """Return the entry of a repaired message: the one it was, if it is whole, else a new one that shows the same."""
    if len(sources) == 1 and sources[0].message is message:
        return sources[0]
    if role_of(message) == "tool":  # the stub of one call does not stand for a result of another
        sources = [entry for entry in sources if entry.message.get("tool_call_id") == message.get("tool_call_id")]
    return entry_of(message, sources=[said for entry in sources for said in entry.sources])
