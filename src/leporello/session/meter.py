"""How many tokens the next request has: what the provider reported, and an estimate of what came since."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leporello.tokens import Calibration
from leporello.tokens.estimate import PER_REQUEST

if TYPE_CHECKING:
    from leporello.session.window import Window


@dataclass(frozen=True, kw_only=True)
class Count:
    """A request's size; `reported` tells whether most of it is the provider's own count."""

    tokens: int
    reported: bool


class Meter:
    """Counts requests of one model; what it reports teaches the estimate, and counting costs what is new."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.calibration = Calibration()
        self._reported: int | None = None
        self._counted = 0
        self._tools = 0
        self._sent = 0
        self._pending: tuple[int, int] | None = None

    def count(self, window: Window, tools: int | None) -> Count:
        """Count the request that the window and the tools make.

        `tools` is the plain estimate of their schemas; None, as long as nobody named any: those of the last request.
        """
        factor = self.calibration.factor(self.model)
        if self._reported is None:
            plain = PER_REQUEST + window.tokens + (tools or 0)
            return Count(tokens=math.ceil(plain * factor), reported=False)
        new = sum(window.weights[self._counted :]) + (0 if tools is None else tools - self._tools)
        return Count(tokens=max(0, self._reported + math.ceil(new * factor)), reported=True)

    def sent(self, window: Window, tools: int) -> None:
        """Remember what goes out, so that the report about it can be understood."""
        self._sent = PER_REQUEST + window.tokens + tools
        self._pending = (len(window), tools)

    def reported(self, prompt_tokens: int) -> None:
        """Take the provider's count of what was sent last, unless that is no longer what stands here."""
        if self._pending is None:
            return
        self.calibration.observe(self.model, self._sent, prompt_tokens)
        self._reported = prompt_tokens
        self._counted, self._tools = self._pending

    def refused(self, actual: int) -> None:
        """Learn from the size that an overflow answer named."""
        self.calibration.observe(self.model, self._sent, actual)

    def resumed(self, prompt_tokens: int, length: int, tools: int) -> None:
        """Take up the count of an earlier process."""
        self._reported, self._counted, self._tools = prompt_tokens, length, tools

    def cut(self, index: int) -> None:
        """Forget the provider's count, given or still to come, if it speaks of entries that are gone or changed."""
        if index < self._counted:
            self._reported = None
        if self._pending is not None and index < self._pending[0]:
            self._pending = None

    def switch(self, model: str) -> None:
        """Count for another model; the count of the one before says nothing about it."""
        self.model = model
        self._reported = self._pending = None
