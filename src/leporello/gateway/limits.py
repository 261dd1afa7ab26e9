"""How much of the gateway one key may use at the same time."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

from leporello.gateway.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator


class Turnstile:
    """Lets so many requests of each key run at once; one more is refused, not queued."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._running: Counter[str] = Counter()

    @property
    def running(self) -> int:
        """How many requests run now."""
        return self._running.total()

    @contextmanager
    def passage(self, owner: str) -> Iterator[None]:
        """Let one request of a key run."""
        if self._running[owner] >= self._most:
            raise Refused(429, f"{self._most} requests of this key are running; try again in a second.", retry_after=1)
        self._running[owner] += 1
        try:
            yield
        finally:
            self._running[owner] -= 1
            if not self._running[owner]:
                del self._running[owner]
