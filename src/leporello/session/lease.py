"""The right to compact a conversation: one process has it at a time, and only as long as it lives.

It is taken for a short time and prolonged as long as the compaction goes on, however long that is. What a killed
process held is free soon after.
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
"""How often the right is prolonged before it would be over: one that comes late loses nothing."""

_LOOK_SECONDS: Final = 0.25
"""How long to wait before somebody else's right is looked at again."""


@dataclass(kw_only=True)
class Lease:
    """The right to compact one branch of a conversation, in the name of `token`."""

    branch: Branch
    token: str
    seconds: float

    def __post_init__(self) -> None:
        self._over = threading.Event()
        self._prolonging = threading.Lock()

    def take(self, patience: float = 0.0) -> bool:
        """Take it, waiting so many seconds for whoever has it; False when it is not free."""
        until = time.monotonic() + patience
        while not self._prolong():
            if time.monotonic() >= until:
                return False
            time.sleep(_LOOK_SECONDS)
        threading.Thread(target=self._keep, name="leporello-lease", daemon=True).start()
        return True

    def give_back(self) -> None:
        """Give it back."""
        with self._prolonging:
            self._over.set()
        self.branch.store.release(self.branch.conversation, self.token, **self.branch.here)

    def _keep(self) -> None:
        """Prolong it until it is given back; whoever took it meanwhile keeps it."""
        while not self._over.wait(self.seconds / _PER_TERM):
            with self._prolonging:
                if self._over.is_set() or not self._still_ours():
                    return

    def _still_ours(self) -> bool:
        try:
            return self._prolong()
        except StoreError:
            return True  # the store may be there again before the time is over

    def _prolong(self) -> bool:
        branch = self.branch
        return branch.store.acquire(branch.conversation, self.token, seconds=self.seconds, **branch.here)
