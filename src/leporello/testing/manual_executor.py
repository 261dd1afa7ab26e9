"""An executor whose background work runs when a test says so."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leporello.lcm.background import Work


class ManualExecutor:
    """An executor for the lossless engine in tests: work runs in order when `run` is called, in the caller's thread."""

    def __init__(self) -> None:
        self.waiting: deque[Work] = deque()

    def submit(self, work: Work, whose: str) -> None:
        """Keep the work."""
        self.waiting.append(work)

    def run(self) -> int:
        """Run everything that was submitted, also meanwhile; returns how many pieces of work that was."""
        done = 0
        while self.waiting:
            self.waiting.popleft()()
            done += 1
        return done

    def drain(self, whose: str, seconds: float) -> bool:
        """Tell whether nothing is left to run; nothing is run."""
        return not self.waiting
