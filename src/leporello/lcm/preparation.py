"""Writes nodes in the background, above the soft threshold, so that a fold need not wait for the model.

A leaf is written when it is full; nodes that condense leaves when the blocks take more than their share. Each node to
write is a job in the store with a key made of what it covers: it is done once, by any process, and again when a process
dies. While the model cannot be reached, a job is retried at growing intervals. With `lcm.background: workers` the jobs
are left to the processes of `leporello worker` (`job_worker.py`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

from leporello.lcm.dag import FULL, Coverage, Piece, covers_of, group_to_condense, in_order, is_full, pack
from leporello.lcm.fold import budget_over, pieces_of, uncovered, written_again
from leporello.lcm.node_writer import CALLS, PAID, REMAKE, CallBudget, NodeWriter
from leporello.lcm.view import tail_start
from leporello.messages.types import newest_of
from leporello.store import Cover
from leporello.store.branch import tops_of
from leporello.store.renewal import Renewal
from leporello.summary.blocks import block_tokens
from leporello.summary.masking import zone_start
from leporello.tokens import count_message

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leporello.config.model import Lcm
    from leporello.lcm.background import Executor
    from leporello.lcm.threshold import LCMBudgets
    from leporello.store import Branch, Job, Node, Stored
    from leporello.summary import Summariser

LEAF, CONDENSED, AGAIN = "lcm.leaf", "lcm.condensed", "lcm.remake"
KINDS = (LEAF, CONDENSED, AGAIN)
CLAIM_SECONDS = 60.0  # renewed while a job is done
FIRST_WAIT, LONGEST_WAIT = 30.0, 600.0


class NodePreparation:
    """Plans and writes the nodes of one conversation."""

    def __init__(
        self,
        branch: Branch,
        summariser: Summariser,
        settings: Lcm,
        clock: Callable[[], float],
        executor: Executor,
    ) -> None:
        self._branch = branch
        self._summariser = summariser
        self._settings = settings
        self._clock = clock
        self._executor = executor
        self._worker = uuid4().hex
        self._stopped = False
        self._jobs_left = False
        self._room = 0
        self.route: dict[str, str] = {}
        """The main model of the conversation, for another process that looks for a model to write its summaries."""
        self._unnoted: deque[tuple[int, float | None]] = deque()
        """Failed calls and their cost, which are noted on the next node."""

    def plan(self, budgets: LCMBudgets) -> int:
        """Add jobs for the leaves that are full and not prepared yet; returns the tokens that the next one lacks."""
        self._room = budgets.summaries
        window = self._branch.window()
        nodes, prepared = self._branch.nodes(window), self._branch.prepared_nodes()
        rows = uncovered(self._branch, window, nodes, Coverage(nodes))
        leaves, lacks = full_leaves(before_zone(rows, budgets), prepared, budgets.leaf)
        for covers in leaves:
            self._put(LEAF, _name(covers), {"covers": [asdict(cover) for cover in covers]})
        replaced = {node.meta.get("replaces") for node in prepared}
        again = [node for node in nodes if node.meta.get(REMAKE) and node.id not in replaced]
        for node in again[-self._settings.max_calls :]:
            self._put(AGAIN, node.id, {"node": node.id})
        self._jobs_left = bool(leaves or again)
        self.go_on()
        return lacks

    def go_on(self) -> None:
        """Submit the jobs that are left, if any."""
        if self._jobs_left and self._settings.background != "workers":
            self._jobs_left = self._stopped = False
            self._executor.submit(self.work, self._worker)

    def drain(self, seconds: float) -> None:
        """Wait up to `seconds` for the running job; no other is begun then."""
        self._executor.drain(self._worker, seconds)
        self._stopped = True

    def work(self) -> None:
        """Do the jobs of this conversation within the limits of one fold; the rest is left for the next time."""
        branch, call_budget = self._branch, self.call_budget()
        while not self._stopped and call_budget.open:
            job = branch.store.claim_job(
                self._worker,
                seconds=CLAIM_SECONDS,
                conversation=branch.conversation,
                owner=branch.owner,
                kinds=KINDS,
            )
            if job is None:
                break
            if not self.do(job, call_budget):
                self._jobs_left = True
        self._jobs_left = self._jobs_left or not call_budget.open

    def call_budget(self) -> CallBudget:
        """Return what one round of work may spend."""
        settings = self._settings
        return CallBudget(self._clock, max_calls=settings.max_calls, seconds=settings.deadline_seconds)

    def do(self, job: Job, call_budget: CallBudget) -> bool:
        """Do a claimed job of this conversation, or put it back for later; tell whether it was done."""
        store = self._branch.store
        self._room = self._room or int(job.payload.get("room", 0))
        self.route = self.route or dict(job.payload.get("route", {}))
        with Renewal(partial(store.renew_job, job, seconds=CLAIM_SECONDS), CLAIM_SECONDS):
            writer = NodeWriter(self._summariser, call_budget, use_model=True)
            node = None if self._is_needless(job) else self._written(job, writer)
        if node is not None and node.meta.get(REMAKE):
            self._unnoted.append(call_budget.bill())
            store.finish_job(job, retry_in=_wait(job.attempts))
            return False
        if node is None:
            store.finish_job(job)
        else:
            self._keep(node, job, call_budget)
        self._plan_condensed()
        return True

    def _is_needless(self, job: Job) -> bool:
        """Tell whether a fold has covered the messages of a job meanwhile, or its node is there.

        A job that was done may be added again by a process that had looked before.
        """
        branch, asked = self._branch, job.payload
        prepared, used = branch.prepared_nodes(), branch.nodes(branch.window())
        if job.kind == LEAF:
            covers = tuple(Cover(**cover) for cover in asked["covers"])
            folded = Coverage(used)
            if all(cover.first_seq in folded and cover.last_seq in folded for cover in covers):
                return True
            return any(node.covers == covers for node in prepared)
        children = tuple(asked["children"]) if job.kind == CONDENSED else ()
        return bool(children) and any(node.children == children for node in (*prepared, *used))

    def _written(self, job: Job, writer: NodeWriter) -> Node | None:
        """Write the node of a job; None when its messages or nodes are gone."""
        branch, asked = self._branch, job.payload
        if job.kind == LEAF:
            pieces = pieces_of(branch, [Cover(**cover) for cover in asked["covers"]])
            return writer.leaf(pieces) if pieces else None
        if job.kind == CONDENSED:
            children = self._nodes(asked["children"])
            return writer.condensed(children, asked["tokens"]) if len(children) == len(asked["children"]) else None
        node = branch.node(asked["node"])
        if node is None or node.state != "kept":
            return None
        better = written_again(branch, writer, node, self._nodes(node.children))
        return replace(better, meta={**better.meta, "replaces": node.id})

    def _keep(self, node: Node, job: Job, call_budget: CallBudget) -> None:
        """Store a node with its model calls and cost, and those of failed calls before it."""
        calls, cost_usd = call_budget.bill()
        while self._unnoted:
            more, paid = self._unnoted.popleft()
            calls += more
            cost_usd = None if cost_usd is None or paid is None else cost_usd + paid
        noted = replace(node, meta={**node.meta, CALLS: calls, PAID: cost_usd})
        self._branch.store.add_nodes(self._branch.conversation, [noted], owner=self._branch.owner, job=job)

    def _plan_condensed(self) -> None:
        """Add a job for the next condensed node; only a full group will be the same at the next fold."""
        prepared = [node for node in self._branch.prepared_nodes() if "replaces" not in node.meta]
        prepared = on_path(self._branch, prepared)
        ready = {node.children: node for node in prepared if node.children}
        shown = self._nodes(tops_of(self._branch.window()))
        tops = in_order([*shown, *(node for node in prepared if not node.children)])
        while sum(map(block_tokens, tops)) > self._room > 0:
            group = group_to_condense(tops, self._settings.fan_in)
            ids = tuple(node.id for node in group)
            if len(group) < self._settings.fan_in:
                return
            if ids not in ready:
                self._put(CONDENSED, ",".join(ids), {"children": ids, "tokens": budget_over(group, self._room)})
                return
            tops = in_order([ready.pop(ids), *(node for node in tops if node.id not in ids)])

    def _nodes(self, ids: Sequence[str]) -> list[Node]:
        return [node for id_ in ids if (node := self._branch.node(id_)) is not None]

    def _put(self, kind: str, key: str, payload: dict[str, object]) -> None:
        branch = self._branch
        told = {**payload, "branch": branch.number, "room": self._room, "route": self.route}
        branch.store.add_job(branch.conversation, kind, key, told, owner=branch.owner)


def full_leaves(
    rows: Sequence[Stored], prepared: Sequence[Node], leaf_tokens: int
) -> tuple[list[tuple[Cover, ...]], int]:
    """Return the covers of leaves that are full or stand before a prepared one, and the tokens that the last one lacks.

    Messages are packed from the front, so a leaf that is being written has the same covers the next time.
    """
    covered = Coverage([node for node in prepared if "replaces" not in node.meta])
    leaves: list[list[Piece]] = []
    run: list[Stored] = []
    for row in rows:
        if row.seq not in covered:
            run.append(row)
            continue
        leaves += pack(run, leaf_tokens)
        run = []
    newest = pack(run, leaf_tokens)
    is_open = bool(newest) and not is_full(newest[-1], leaf_tokens)
    held = sum(piece.tokens for piece in newest.pop()) if is_open else 0
    return [covers_of(pieces) for pieces in (*leaves, *newest)], max(0, int(leaf_tokens * FULL) - held)


def on_path(branch: Branch, nodes: Sequence[Node]) -> list[Node]:
    """Return the nodes whose first message is on the path of the branch."""
    begins = branch.get(str(node.meta.get("begins", "")) for node in nodes)
    elsewhere = {id_ for id_, row in begins.items() if row.superseded}
    return [node for node in nodes if node.meta.get("begins") not in elsewhere]


def before_zone(rows: Sequence[Stored], budgets: LCMBudgets) -> list[Stored]:
    """Return the messages before the masked zone and the tail; never the newest user message."""
    messages = [row.message for row in rows]
    start = tail_start(messages, lambda index: rows[index].tokens, budgets.tail, len(rows))
    start = zone_start(messages, start, budgets.zone, count_message)
    user = newest_of(messages, "user")
    return [row for index, row in enumerate(rows[:start]) if index != user]


def _name(covers: Sequence[Cover]) -> str:
    return ",".join(f"{c.first_seq}-{c.last_seq}" + ("" if c.start is None else f":{c.start}-{c.stop}") for c in covers)


def _wait(attempts: int) -> float:
    return min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(attempts - 1, 10))
