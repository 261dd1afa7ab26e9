"""What an engine wrote itself, known by its fingerprint: never by how a text begins, which any text can imitate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leporello.messages import fingerprint

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leporello.messages import Message

REMEMBERED = 64  # messages; a host that goes back further folds an old summary as a record


class Written:
    """The newest messages that an engine wrote."""

    def __init__(self) -> None:
        self._fingerprints: dict[str, None] = {}

    def __contains__(self, message: object) -> bool:
        return isinstance(message, dict) and fingerprint(message) in self._fingerprints

    def note(self, messages: Iterable[Message]) -> None:
        """Remember messages as written by the engine: when it writes them, and when its host says so."""
        for message in messages:
            mark = fingerprint(message)
            self._fingerprints.pop(mark, None)
            self._fingerprints[mark] = None
        for mark in list(self._fingerprints)[:-REMEMBERED]:
            del self._fingerprints[mark]
