"""Renews what a process holds in a store, a lease or a claim, as long as it lives: that of a dead process expires."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, Self

from leporello.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

_PER_TERM: Final = 3
"""How often something is renewed within its time, so that a late renewal loses nothing."""


class Renewal:
    """Calls `renew` in a thread, three times in `seconds`, until it is stopped or `renew` returns False."""

    def __init__(self, renew: Callable[[], bool], seconds: float) -> None:
        self._renew = renew
        self._pause = seconds / _PER_TERM
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="leporello-renewal", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop, and wait for a renewal that is under way."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        while not self._over.wait(self._pause):
            try:
                if not self._renew():
                    return
            except StoreError:
                continue  # the store may be back before it expires
