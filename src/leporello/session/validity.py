"""Keeps the window valid for the provider by repairing its new entries.

A caller may add two user messages in a row, leave calls unanswered or add an incomplete answer. The store has these
messages as they came; the window has the repaired ones, which stay as they were sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leporello.messages import align, call_ids_of, group_start, is_system, repair, role_of, text_of, violations
from leporello.session.window import Entry, entry_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leporello.messages import Dialect, Message
    from leporello.session.window import Window

_OPENING: Message = {"role": "user", "content": "-"}  # stands for the entries before the part that is checked


class Validity:
    """How many entries of the window are known to be valid, and the ids of their calls."""

    def __init__(self) -> None:
        self.checked: int = 0
        """How many entries at the front are known to be valid."""
        self.ids: set[str] = set()

    def repaired(self, window: Window, dialect: Dialect) -> tuple[int, list[Entry]] | None:
        """Return the index and the entries that make the window valid; None when it is valid."""
        start = self._start(window)
        part = window.messages[start:]
        opening = [_OPENING] if start and part and part[0].get("role") != "user" else []
        if not violations([*opening, *part], dialect):
            return None
        entries = window.entries[start:]
        valid = repair([*opening, *part]).messages[len(opening) :]
        repaired = [
            _repaired_entry(message, [entries[place] for place in places])
            for message, places in zip(valid, align(part, valid), strict=True)
        ]
        shorter = min(len(entries), len(repaired))
        same = next((at for at in range(shorter) if entries[at] is not repaired[at]), shorter)
        return None if same == len(entries) == len(repaired) else (start + same, repaired[same:])

    def mark_valid(self, window: Window) -> None:
        """Mark the whole window as valid."""
        for message in window.messages[self.checked :]:
            self.ids.update(call_ids_of(message))
        self.checked = len(window)

    def changed_from(self, index: int) -> None:
        """Mark the entries from an index on as not checked."""
        self.checked = min(self.checked, index)
        if not index:
            self.ids.clear()

    def _start(self, window: Window) -> int:
        """Return the index from which the window is checked: 0 when a new entry repeats a call id."""
        new = window.messages[self.checked :]
        if not self.checked or any(id_ in self.ids for message in new for id_ in call_ids_of(message)):
            return 0
        start = group_start(window.messages, self.checked - 1)
        return 0 if is_system(window.messages[start]) else start


def _repaired_entry(message: Message, sources: Sequence[Entry]) -> Entry:
    """Return the entry of a repaired message: the same one if it was not changed."""
    if len(sources) == 1 and sources[0].message is message:
        return sources[0]
    if role_of(message) == "tool":  # the stub of one call does not stand for a result of another
        sources = [entry for entry in sources if _is_result(message, entry.message)]
    return entry_of(message, sources=[said for entry in sources for said in entry.sources])


def _is_result(message: Message, said: Message) -> bool:
    """Tell whether a repaired result is one that was said, perhaps under another id."""
    return said.get("tool_call_id") == message.get("tool_call_id") or text_of(said) == text_of(message)
