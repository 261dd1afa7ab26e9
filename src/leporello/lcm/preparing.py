"""Nodes before they are needed: above the soft mark they are written in the background, so that no turn waits.

Leaves are written as soon as they are full, and once their blocks take more than their share, the nodes that condense
them. Each node to write is a row in the store, named by what it covers, so that equal work is done once, by whichever
process comes first, and comes back when a process dies. A model that is away is tried again later and later.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import uuid4

from leporello.lcm.dag import FULL, Coverage, Piece, covers_of, group_to_condense, in_order, is_full, pack
from leporello.lcm.fold import budget_over, pieces_of
from leporello.lcm.unfolded import uncovered
from leporello.lcm.writing import CALLS, PAID, REMAKE, Allowance, Writer
from leporello.messages import groups, role_of
from leporello.store import Cover
from leporello.store.branch import tops_of
from leporello.summary.blocks import block_tokens
from leporello.summary.masking import zone_start
from leporello.tokens import count_message

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leporello.config.model import Lcm
    from leporello.lcm.background import Executor
    from leporello.lcm.threshold import Budgets
    from leporello.store import Branch, Job, Node, Store, Stored
    from leporello.summary import Summariser

LEAF, CONDENSED, AGAIN = "lcm.leaf", "lcm.condensed", "lcm.remake"
FIRST_WAIT, LONGEST_WAIT = 30.0, 600.0


class Preparing:
    """Plan and do the work in the background for one conversation."""

    def __init__(
        self,
        branch: Branch,
        summariser: Summariser,
        settings: Lcm,
        clock: Callable[[], float],
        executor: Callable[[], Executor],
    ) -> None:
        self._store: Callable[[], Store] = lambda: branch.store
        self._branch = branch
        self._conversation, self._owner = branch.conversation, branch.owner
        self._summariser = summariser
        self._settings = settings
        self._clock = clock
        self._executor = executor
        self._worker = uuid4().hex
        self._stopped = False
        self._undone = False
        self._room = 0
        self._unnoted: deque[tuple[int, float | None]] = deque()
        """Calls that came to nothing, and what they cost: they are noted on the next node."""

    def plan(self, budgets: Budgets) -> int:
        """Put down the leaves that are full and not prepared yet, and have them written.

        Returns how many tokens the next one still lacks.
        """
        self._room = budgets.summaries
        window = self._branch.window()
        nodes, prepared = self._branch.nodes(window), self._branch.prepared_nodes()
        rows = uncovered(self._branch, window, nodes, Coverage(nodes))
        leaves, lacks = full_leaves(before_zone(rows, budgets), prepared, budgets.leaf)
        for covers in leaves:
            self._put(LEAF, _name(covers), {"covers": [_plain(cover) for cover in covers]})
        replaced = {node.meta.get("replaces") for node in prepared}
        again = [node for node in nodes if node.meta.get(REMAKE) and node.id not in replaced]
        for node in again[-self._settings.max_calls :]:
            self._put(AGAIN, node.id, {"node": node.id})
        self._undone = bool(leaves or again)
        self.go_on()
        return lacks

    def go_on(self) -> None:
        """Take up the work that is left, if any."""
        if self._undone:
            self._undone = self._stopped = False
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
            write = {LEAF: self._leaf, CONDENSED: self._condensed, AGAIN: self._again}.get(job.kind)
            if write is None or job.owner != self._owner:
                self._store().finish_job(job, retry_in=1.0)
                return
            done = self._kept(write(job, writer), allowance)
            self._store().finish_job(job, retry_in=None if done else _wait(job.attempts))
            if done:
                self._plan_condensed()
            else:
                self._undone = True
                self._unnoted.append(allowance.bill())
        self._undone = self._undone or not allowance.open

    def _claimed(self, seconds: float) -> Job | None:
        return self._store().claim_job(self._worker, seconds=seconds, conversation=self._conversation)

    def _leaf(self, job: Job, writer: Writer) -> Node | None:
        """Write a leaf; None when there is nothing left to write."""
        covers = [Cover(**cover) for cover in job.payload["covers"]]
        pieces = pieces_of(self._store(), self._conversation, self._owner, covers)
        return writer.leaf(pieces) if pieces else None

    def _plan_condensed(self) -> None:
        """Put down the next node that the next fold will condense others into.

        Only a full group is the same then: behind one that is not, more leaves may come.
        """
        store, owner = self._store(), self._owner
        shown = [store.node(top, owner=owner) for top in tops_of(self._branch.window())]
        prepared = [n for n in store.prepared_nodes(self._conversation, owner=owner) if "replaces" not in n.meta]
        prepared = on_path(self._branch, prepared)
        ready = {node.children: node for node in prepared if node.children}
        tops = in_order([*filter(None, shown), *(node for node in prepared if not node.children)])
        while sum(map(block_tokens, tops)) > self._room > 0:
            group = group_to_condense(tops, self._settings.fan_in)
            ids = tuple(node.id for node in group)
            if len(group) < self._settings.fan_in:
                return
            if ids not in ready:
                self._put(CONDENSED, ",".join(ids), {"children": ids, "tokens": budget_over(group, self._room)})
                return
            tops = in_order([ready.pop(ids), *(node for node in tops if node.id not in ids)])

    def _condensed(self, job: Job, writer: Writer) -> Node | None:
        """Write a node over others; one that is gone meanwhile is of no use."""
        found = [self._store().node(child, owner=self._owner) for child in job.payload["children"]]
        children = [child for child in found if child is not None]
        return writer.condensed(children, job.payload["tokens"]) if len(children) == len(found) else None

    def _again(self, job: Job, writer: Writer) -> Node | None:
        node = self._store().node(job.payload["node"], owner=self._owner)
        if node is None or node.state != "kept":
            return None
        if node.children:
            children = [self._store().node(child, owner=self._owner) for child in node.children]
            better = writer.condensed([child for child in children if child], max(node.tokens, 1))
        else:
            pieces = pieces_of(self._store(), self._conversation, self._owner, node.covers)
            better = writer.leaf(pieces)
        return replace(better, meta={**better.meta, "replaces": node.id})

    def _kept(self, node: Node | None, allowance: Allowance) -> bool:
        """Keep a node with what was spent for it, also for those before it that came to nothing.

        False when the model is away; a few words that are quoted need none.
        """
        if node is None:
            return True
        if node.meta.get(REMAKE):
            return False
        calls, cost_usd = allowance.bill()
        while self._unnoted:
            more, paid = self._unnoted.popleft()
            calls += more
            cost_usd = None if cost_usd is None or paid is None else cost_usd + paid
        noted = replace(node, meta={**node.meta, CALLS: calls, PAID: cost_usd})
        self._store().add_nodes(self._conversation, [noted], owner=self._owner)
        return True

    def _put(self, kind: str, key: str, payload: dict[str, object]) -> None:
        self._store().add_job(self._conversation, kind, key, payload, owner=self._owner)


def full_leaves(
    rows: Sequence[Stored], prepared: Sequence[Node], leaf_tokens: int
) -> tuple[list[tuple[Cover, ...]], int]:
    """Return what leaves cover that are full, or stand before one that is prepared already; never across such a one.

    Then how many tokens the last one lacks. What is packed from the front comes out the same whenever it is asked for,
    so a leaf that is being written is named as it was before.
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
    """Return the nodes that begin on the path of the branch, without those of other branches and roots."""
    begins = branch.get(str(node.meta.get("begins", "")) for node in nodes)
    elsewhere = {id_ for id_, row in begins.items() if row.superseded}
    return [node for node in nodes if node.meta.get("begins") not in elsewhere]


def before_zone(rows: Sequence[Stored], budgets: Budgets) -> list[Stored]:
    """Return the messages before the masked zone and the tail; never the newest user message."""
    messages = [row.message for row in rows]
    start, used = len(rows), 0
    for group in reversed(groups(messages)):
        used += sum(row.tokens for row in rows[group.start : group.stop])
        if used > budgets.tail and start < len(rows):
            break
        start = group.start
    user = next((i for i in range(len(rows) - 1, -1, -1) if role_of(messages[i]) == "user"), -1)
    start = zone_start(messages, start, budgets.zone, count_message)
    return [row for index, row in enumerate(rows[:start]) if index != user]


def _name(covers: Sequence[Cover]) -> str:
    return ",".join(f"{c.first_seq}-{c.last_seq}" + ("" if c.start is None else f":{c.start}-{c.stop}") for c in covers)


def _plain(cover: Cover) -> dict[str, int | None]:
    return {"first_seq": cover.first_seq, "last_seq": cover.last_seq, "start": cover.start, "stop": cover.stop}


def _wait(attempts: int) -> float:
    return min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(attempts - 1, 10))
