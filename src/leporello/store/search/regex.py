"""Regular expressions within a time limit."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from leporello.errors import QueryError

if TYPE_CHECKING:
    from collections.abc import Callable

LONGEST_EXPRESSION: Final = 1_000


class OutOfTimeError(Exception):
    """The time limit was reached; internal to searching."""


class Expression:
    """A regular expression with a deadline; ^ and $ stand at every line."""

    def __init__(
        self,
        pattern: str,
        *,
        seconds: float,
        ignore_case: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        import regex

        if len(pattern) > LONGEST_EXPRESSION:
            raise QueryError(
                f"The regular expression has {len(pattern):,} characters; {LONGEST_EXPRESSION:,} are allowed."
            )
        try:
            self._pattern = regex.compile(pattern, regex.MULTILINE | (regex.IGNORECASE if ignore_case else 0))
        except (regex.error, RecursionError, OverflowError) as error:
            raise QueryError(
                f"The regular expression cannot be read: {error}. Correct it, or search without regex."
            ) from error
        self._clock = clock
        self._deadline = clock() + seconds

    def position(self, text: str) -> int:
        """Return where the expression first matches in a text, -1 for nowhere; `OutOfTimeError` at the deadline."""
        left = self._deadline - self._clock()
        if left <= 0:
            raise OutOfTimeError
        try:
            match = self._pattern.search(text, timeout=left)
        except TimeoutError as error:
            raise OutOfTimeError from error
        return match.start() if match else -1
