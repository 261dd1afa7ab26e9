"""Measures the lag of the event loop: the longest gap of the last minute."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Final

_BEAT: Final = 0.02
_REMEMBERED: Final = 60.0


class Lag:
    """Measures gaps as long as `watch` runs."""

    def __init__(self) -> None:
        self._gaps: deque[tuple[float, float]] = deque()

    async def watch(self) -> None:
        """Sleep for short times, and record how much later than due the loop continued."""
        while True:
            slept = time.monotonic()
            await asyncio.sleep(_BEAT)
            now = time.monotonic()
            self._note(now, now - slept - _BEAT)

    @property
    def longest(self) -> float:
        """The longest gap of the last minute, in seconds."""
        return self._gaps[0][1] if self._gaps else 0.0

    def _note(self, now: float, gap: float) -> None:
        """Keep the gaps that no later one exceeds, longest first."""
        while self._gaps and self._gaps[-1][1] <= gap:
            self._gaps.pop()
        self._gaps.append((now, gap))
        while now - self._gaps[0][0] > _REMEMBERED:
            self._gaps.popleft()
