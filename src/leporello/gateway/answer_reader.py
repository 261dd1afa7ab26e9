"""Reads the answers of providers that are passed on; one that cannot be read is passed on without being recorded."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from leporello.errors import ModelError
from leporello.gateway.bodies import has_more_values
from leporello.gateway.sse import Events
from leporello.session.answers import read_answer
from leporello.session.streams import Stream

if TYPE_CHECKING:
    from leporello.session.answers import ModelAnswer

MOST_VALUES: Final = 200_000
"""An answer with more JSON values is passed on, but not read."""

_UNREADABLE: Final = (ModelError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RecursionError)
"""The exceptions of reading data that has not the shape of an answer."""


def read_whole(content: bytes) -> ModelAnswer | None:
    """Return a whole answer; None when it cannot be read."""
    if has_more_values(content, MOST_VALUES):
        return None
    try:
        return read_answer(json.loads(content))
    except _UNREADABLE:
        return None


def read_events(content: bytes) -> ModelAnswer | None:
    """Return a streamed answer that is complete."""
    reading = IncomingAnswer()
    for event in Events().feed(content):
        reading.take(event.data)
    return reading.answer(complete=True)


class IncomingAnswer:
    """An answer that is still coming."""

    def __init__(self) -> None:
        self._stream: Stream | None = Stream()

    def take(self, data: Any) -> None:
        """Take the data of the next event; after one that cannot be read, `answer` returns None."""
        if self._stream is None or not isinstance(data, dict):
            return
        try:
            self._stream.take(data)
        except _UNREADABLE:
            self._stream = None

    @property
    def is_finished(self) -> bool:
        """Whether all of the answer has come; a count may follow."""
        return self._stream is not None and self._stream.is_finished

    def answer(self, *, complete: bool) -> ModelAnswer | None:
        """Return the answer as far as it came; None when nothing came, or it could not be read."""
        try:
            return self._stream.answer(complete=complete) if self._stream else None
        except _UNREADABLE:
            return None
