"""Counts the tokens of the next request: the provider's count of the last one, and an estimate of the new entries."""

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
    """The size of a request; `reported` when it includes a count of the provider."""

    tokens: int
    reported: bool


class Meter:
    """Counts requests of one model; the estimate is calibrated with the counts that the provider reports."""

    def __init__(self, model: str) -> None:
        self.model: str = model
        self.calibration: Calibration = Calibration()
        self._reported: int | None = None
        self._counted = 0
        self._tools = 0
        self._sent = 0
        self._pending: tuple[int, int] | None = None

    def count(self, window: Window, tools: int | None) -> Count:
        """Count a request with this window.

        `tools` is the uncalibrated estimate of the tool schemas; None stands for those of the last request.
        """
        factor = self.calibration.factor(self.model)
        if self._reported is None:
            plain = PER_REQUEST + window.tokens + (self._tools if tools is None else tools)
            return Count(tokens=math.ceil(plain * factor), reported=False)
        new = sum(window.weights[self._counted :]) + (0 if tools is None else tools - self._tools)
        return Count(tokens=max(0, self._reported + math.ceil(new * factor)), reported=True)

    @property
    def tools(self) -> int:
        """The uncalibrated estimate of the tools of the last request, also of one that an earlier process sent."""
        return self._tools

    @property
    def sent_estimate(self) -> int:
        """The uncalibrated estimate of the request that was sent; 0 when its count will not be taken."""
        return self._sent if self._pending is not None else 0

    def sent(self, window: Window, tools: int) -> None:
        """Keep the size of a request that is sent, to compare it with the provider's count."""
        self._sent = PER_REQUEST + window.tokens + tools
        self._pending = (len(window), tools)

    def reported(self, prompt_tokens: int) -> None:
        """Take the provider's count of the last request, unless the window has changed since."""
        if self._pending is None:
            return
        self.calibration.observe(self.model, self._sent, prompt_tokens)
        self._reported = prompt_tokens
        self._counted, self._tools = self._pending

    def refused(self, actual: int) -> None:
        """Calibrate the estimate with the size that an overflow error names."""
        self.calibration.observe(self.model, self._sent, actual)

    def resumed(self, prompt_tokens: int, length: int, tools: int) -> None:
        """Take the count of an earlier process from the journal."""
        self._reported, self._counted, self._tools = prompt_tokens, length, tools

    def learned(self, model: str, estimate: int, prompt_tokens: int, tools: int) -> None:
        """Take from the journal at what a request of an earlier process was estimated, and the provider's count."""
        self.calibration.observe(model, estimate, prompt_tokens)
        self._tools = tools

    def changed_from(self, index: int) -> None:
        """Discard the provider's count, also one that is still to come, if it includes entries from an index on."""
        if index < self._counted:
            self._reported = None
        if self._pending is not None and index < self._pending[0]:
            self._pending = None

    def switch(self, model: str) -> None:
        """Count for another model; the count of the one before is discarded."""
        self.model = model
        self._reported = self._pending = None
