"""The claim on a job while it is done: renewed until it is over, so that only that of a dead process expires."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from leporello.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leporello.store import Job, Store

CLAIM_SECONDS: Final = 60.0
_PER_TERM: Final = 3
"""How often a claim is renewed within its time, so that a late renewal loses nothing."""


@contextmanager
def renewed(store: Store, job: Job, seconds: float = CLAIM_SECONDS) -> Iterator[None]:
    """Renew the claim on a job as long as the block runs."""
    over = threading.Event()
    thread = threading.Thread(target=_renew, args=(store, job, seconds, over), name="leporello-claim", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _renew(store: Store, job: Job, seconds: float, over: threading.Event) -> None:
    while not over.wait(seconds / _PER_TERM):
        try:
            if not store.renew_job(job, seconds=seconds):
                return
        except StoreError:
            continue  # the store may be back before the claim expires
