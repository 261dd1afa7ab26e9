"""Leaves before they are needed: above the soft mark they are written in the background, so that no turn waits.

Each leaf to write is a row in the store, named by what it covers, so that equal work is done once, by whichever
process comes first, and comes back when a process dies. A model that is away is tried again later and later.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import uuid4

from leporello.lcm.dag import Coverage, covers_of, pack
from leporello.lcm.fold import pieces_of
from leporello.lcm.writing import REMAKE, Allowance, Writer
from leporello.messages import group_start, role_of
from leporello.store.protocol import Cover

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leporello.config.model import Lcm
    from leporello.lcm.background import Executor
    from leporello.lcm.keeping import Keeping
    from leporello.lcm.threshold import Budgets
    from leporello.store.protocol import Job, Node, Store, Stored
    from leporello.summary import Summariser

LEAF, AGAIN = "lcm.leaf", "lcm.remake"
FIRST_WAIT, LONGEST_WAIT = 30.0, 600.0
_FULL = 0.75  # a leaf that has less than this share of its size waits for more


class Preparing:
    """Plan and do the work in the background for one conversation."""

    def __init__(
        self,
        keeping: Keeping,
        summariser: Summariser,
        settings: Lcm,
        clock: Callable[[], float],
        executor: Callable[[], Executor],
    ) -> None:
        self._store: Callable[[], Store] = lambda: keeping.store
        self._keeping = keeping
        self._conversation, self._owner = keeping.conversation, keeping.owner
        self._summariser = summariser
        self._settings = settings
        self._clock = clock
        self._executor = executor
        self._worker = uuid4().hex
        self._stopped = False

    def plan(self, budgets: Budgets) -> None:
        """Put down the leaves that are complete and not prepared yet, and have them written."""
        published, prepared = self._keeping.nodes()
        coverage = Coverage(published)
        rows = self._keeping.uncovered(self._keeping.window(), published, coverage)
        ready = [node for node in prepared if not node.meta.get("replaces")]
        covered, parts = Coverage(ready), {cover for node in ready for cover in node.covers if cover.start is not None}
        planned = 0
        for pieces in pack(before_tail(rows, budgets.tail), budgets.leaf):
            covers = covers_of(pieces)
            is_part = pieces[0].start is not None
            full = is_part or sum(piece.tokens for piece in pieces) >= budgets.leaf * _FULL
            is_ready = parts.issuperset(covers) if is_part else any(piece.stored.seq in covered for piece in pieces)
            if full and not is_ready:
                self._put(LEAF, _name(covers), {"covers": [_plain(cover) for cover in covers]})
                planned += 1
        replaced = {node.meta.get("replaces") for node in prepared}
        again = [node for node in published if node.meta.get(REMAKE) and node.id not in replaced]
        for node in again[-self._settings.max_calls :]:
            self._put(AGAIN, node.id, {"node": node.id})
        if planned or again:
            self._stopped = False
            self._executor().submit(self.work, self._worker)

    def drain(self, seconds: float) -> None:
        """Let the work under way finish, at most so long; after that nothing more is taken up."""
        self._executor().drain(self._worker, seconds)
        self._stopped = True

    def work(self) -> None:
        """Do what is due for this conversation, within the limits of one fold; what is beyond them comes back."""
        settings = self._settings
        allowance = Allowance(self._clock, max_calls=settings.max_calls, seconds=settings.deadline_seconds)
        writer = Writer(self._summariser, allowance, use_model=True)
        seconds = settings.deadline_seconds + LONGEST_WAIT
        while not self._stopped and allowance.open and (job := self._claimed(seconds)):
            if job.kind not in (LEAF, AGAIN) or job.owner != self._owner:
                self._store().finish_job(job, retry_in=1.0)
                return
            done = self._leaf(job, writer) if job.kind == LEAF else self._again(job, writer)
            self._store().finish_job(job, retry_in=None if done else _wait(job.attempts))

    def _claimed(self, seconds: float) -> Job | None:
        return self._store().claim_job(self._worker, seconds=seconds, conversation=self._conversation)

    def _leaf(self, job: Job, writer: Writer) -> bool:
        """Write a leaf; False when the model is away."""
        covers = [Cover(**cover) for cover in job.payload["covers"]]
        pieces = pieces_of(self._store(), self._conversation, self._owner, covers)
        if not pieces:
            return True
        return self._kept(writer.leaf(pieces))

    def _again(self, job: Job, writer: Writer) -> bool:
        node = self._store().node(job.payload["node"], owner=self._owner)
        if node is None or node.state != "published":
            return True
        if node.children:
            children = [self._store().node(child, owner=self._owner) for child in node.children]
            better = writer.condensed([child for child in children if child], max(node.tokens, 1))
        else:
            pieces = pieces_of(self._store(), self._conversation, self._owner, node.covers)
            better = writer.leaf(pieces)
        return self._kept(replace(better, meta={**better.meta, "replaces": node.id}))

    def _kept(self, node: Node) -> bool:
        if node.made_by != "model":
            return False
        self._store().add_nodes(self._conversation, [node], owner=self._owner)
        return True

    def _put(self, kind: str, key: str, payload: dict[str, object]) -> None:
        self._store().add_job(self._conversation, kind, key, payload, owner=self._owner)


def before_tail(rows: Sequence[Stored], budget: int) -> list[Stored]:
    """Return the messages before the newest ones, which take up the budget; never the newest user message."""
    messages = [row.message for row in rows]
    start, used = len(rows), 0
    while start > 0 and used <= budget:
        start -= 1
        used += rows[start].tokens
    start = group_start(messages, start)
    user = next((i for i in range(len(rows) - 1, -1, -1) if role_of(messages[i]) == "user"), -1)
    return [row for index, row in enumerate(rows[:start]) if index != user]


def _name(covers: Sequence[Cover]) -> str:
    return ",".join(f"{c.first_seq}-{c.last_seq}" + ("" if c.start is None else f":{c.start}-{c.stop}") for c in covers)


def _plain(cover: Cover) -> dict[str, int | None]:
    return {"first_seq": cover.first_seq, "last_seq": cover.last_seq, "start": cover.start, "stop": cover.stop}


def _wait(attempts: int) -> float:
    return min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(attempts - 1, 10))
