"""The lease to compact a branch: one process holds it at a time.

It is acquired for a short time and renewed until it is released. That of a killed process expires.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from leporello.store.renewal import Renewal

if TYPE_CHECKING:
    from leporello.store import Branch

_LOOK_SECONDS: Final = 0.25
"""The pause between two attempts to acquire the lease of another process."""


@dataclass(kw_only=True)
class Lease:
    """The lease of one branch; `token` identifies the holder."""

    branch: Branch
    token: str
    seconds: float

    def __post_init__(self) -> None:
        self._renewal = Renewal(self._renew, self.seconds)

    def acquire(self, wait: float = 0.0) -> bool:
        """Acquire the lease, waiting up to `wait` seconds; False when another process holds it."""
        until = time.monotonic() + wait
        while not self._renew():
            if time.monotonic() >= until:
                return False
            time.sleep(_LOOK_SECONDS)
        self._renewal.start()
        return True

    def release(self) -> None:
        """Release the lease."""
        self._renewal.stop()
        self.branch.store.release(self.branch.conversation, self.token, **self.branch.here)

    def _renew(self) -> bool:
        branch = self.branch
        return branch.store.acquire(branch.conversation, self.token, seconds=self.seconds, **branch.here)
