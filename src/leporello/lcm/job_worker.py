"""Does the jobs of all conversations in a store, for processes that do nothing else: `leporello worker`.

Each job is a row that one worker claims for a short time and keeps claimed while it writes; when a worker dies, its
claim expires and another does the job again.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from leporello.errors import LeporelloError, StoreError
from leporello.lcm.background import pool
from leporello.lcm.preparation import CLAIM_SECONDS, KINDS, NodePreparation
from leporello.redact import logger
from leporello.store import Branch
from leporello.summary import Summariser

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping

    from leporello.lcm.settings import LCMSettings
    from leporello.llm import LLM
    from leporello.store import Job, Store

LOOK_SECONDS: Final = 1.0
"""The pause after a look for work that found none, or a store that could not be asked."""

_LONGEST_PAUSE: Final = 30.0
_NO_MODEL_SECONDS: Final = 60.0
_MOST_KEPT: Final = 256
_log = logger("leporello.worker")


class JobWorker:
    """Claims jobs and does them, in one thread; `model_for` connects to a model for a conversation's summaries."""

    def __init__(
        self,
        store: Store,
        settings: LCMSettings,
        model_for: Callable[[Mapping[str, str]], LLM | None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._settings = settings
        self._model_for = model_for
        self._clock = clock
        self._name = f"worker-{uuid4().hex[:12]}"
        self._summarisers: dict[tuple[str, ...], Summariser] = {}
        self._preparations: dict[tuple[object, ...], NodePreparation] = {}
        self.done: int = 0
        """How many jobs were done."""

    def run(self, stop: threading.Event, *, once: bool = False) -> None:
        """Do what is due, again and again, until told to stop; with `once` until nothing is due."""
        failures = 0
        while not stop.is_set():
            try:
                found = self.do_next()
            except StoreError as error:
                if once:
                    raise
                failures += 1
                _log.warning("the store cannot be asked for work: %s", error)
                stop.wait(min(_LONGEST_PAUSE, LOOK_SECONDS * 2.0 ** min(failures, 5)))
                continue
            failures = 0
            if not found and once:
                return
            if not found:
                stop.wait(LOOK_SECONDS)

    def do_next(self) -> bool:
        """Claim a job and do it; False when none is due."""
        job = self._store.claim_job(self._name, seconds=CLAIM_SECONDS, kinds=KINDS)
        if job is None:
            return False
        try:
            preparation = self._preparation(job)
            if preparation is None:
                _log.warning("no model can be reached for the summaries of the conversation %r", job.conversation)
                self._store.finish_job(job, retry_in=_NO_MODEL_SECONDS)
            elif preparation.do(job, preparation.call_budget()):
                self.done += 1
        except StoreError:
            raise  # the claim expires, and the job is done again
        except LeporelloError as error:
            _log.warning("a job was put off: %s", error)
            self._store.finish_job(job, retry_in=_NO_MODEL_SECONDS)
        except Exception:  # noqa: BLE001 - one job that fails must not keep the others waiting; it is reported
            _log.exception("a job failed and was put off")
            self._store.finish_job(job, retry_in=_NO_MODEL_SECONDS)
        return True

    def _preparation(self, job: Job) -> NodePreparation | None:
        """Return what writes nodes for the branch of a job; None when there is no model for it."""
        summariser = self._summariser(job.payload.get("route", {}))
        if summariser.llm is None:
            return None
        branch = job.payload.get("branch")
        key = (job.owner, job.conversation, branch, id(summariser))
        if key not in self._preparations:
            at = Branch(self._store, job.conversation, job.owner, branch)
            _drop_oldest(self._preparations)
            self._preparations[key] = NodePreparation(at, summariser, self._settings.lcm, self._clock, pool())
        return self._preparations[key]

    def _summariser(self, route: Mapping[str, str]) -> Summariser:
        key = tuple(str(route.get(name, "")) for name in ("model", "provider", "base_url"))
        found = self._summarisers.get(key)
        if found is None or found.llm is None:
            lcm = self._settings.lcm
            _drop_oldest(self._summarisers)
            found = self._summarisers[key] = Summariser(
                self._model_for(route),
                clock=self._clock,
                max_calls=lcm.max_calls,
                deadline_seconds=lcm.deadline_seconds,
                timeout_seconds=self._settings.timeout_seconds,
            )
        return found


def _drop_oldest(kept: dict[Any, Any]) -> None:
    """Make room for one more."""
    if len(kept) >= _MOST_KEPT:
        del kept[next(iter(kept))]
