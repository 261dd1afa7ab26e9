"""The lease to compact a branch: one process holds it at a time.

It is acquired for a short time and renewed until it is released. That of a killed process expires.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from leporello.errors import StoreError

if TYPE_CHECKING:
    from leporello.store import Branch

_PER_TERM: Final = 3
"""How often a lease is renewed within its time, so that a late renewal loses nothing."""

_LOOK_SECONDS: Final = 0.25
"""The pause between two attempts to acquire the lease of another process."""


@dataclass(kw_only=True)
class Lease:
    """The lease of one branch; `token` identifies the holder."""

    branch: Branch
    token: str
    seconds: float

    def __post_init__(self) -> None:
        self._over = threading.Event()
        self._renewing = threading.Lock()

    def acquire(self, wait: float = 0.0) -> bool:
        """Acquire the lease, waiting up to `wait` seconds; False when another process holds it."""
        until = time.monotonic() + wait
        while not self._renew():
            if time.monotonic() >= until:
                return False
            time.sleep(_LOOK_SECONDS)
        threading.Thread(target=self._renew_until_released, name="leporello-lease", daemon=True).start()
        return True

    def release(self) -> None:
        """Release the lease."""
        with self._renewing:
            self._over.set()
        self.branch.store.release(self.branch.conversation, self.token, **self.branch.here)

    def _renew_until_released(self) -> None:
        """Renew the lease until it is released, or another process has it."""
        while not self._over.wait(self.seconds / _PER_TERM):
            with self._renewing:
                if self._over.is_set() or not self._still_ours():
                    return

    def _still_ours(self) -> bool:
        try:
            return self._renew()
        except StoreError:
            return True  # the store may be back before the lease expires

    def _renew(self) -> bool:
        branch = self.branch
        return branch.store.acquire(branch.conversation, self.token, seconds=self.seconds, **branch.here)
