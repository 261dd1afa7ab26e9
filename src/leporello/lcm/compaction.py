"""One compaction, from the host's list to the proposed window: choose the tail, fold, assemble."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from leporello.lcm.dag import Coverage, seqs_of
from leporello.lcm.fold import Fold, Folded, usable
from leporello.lcm.unfolded import outdated, uncovered
from leporello.lcm.view import Tail, View, choose_tail, masked_from, start_without, view
from leporello.lcm.window import Assembled, Held, assemble
from leporello.lcm.writing import SMALLEST_TEXT
from leporello.messages import Message, role_of, text_of, unread_start
from leporello.messages.fixed import is_cleared
from leporello.redact import redact_messages
from leporello.store import Proposal, Window
from leporello.summary.blocks import block_tokens, frame_tokens
from leporello.summary.extract.name_list import name_list, names_of, room_for_names
from leporello.summary.masking import MOST_MASKED, zone_start
from leporello.summary.squeeze import Room

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leporello.config.model import Lcm
    from leporello.engine import Status
    from leporello.lcm.threshold import Budgets
    from leporello.lcm.writing import Allowance, Writer
    from leporello.store import Branch, Node, Stored
    from leporello.store.records import WindowItem
    from leporello.summary.brake import Targets
    from leporello.summary.sizes import Sizes

ENOUGH = 0.70  # of what a window may hold: when prepared leaves alone bring it below, nothing else is folded


@dataclass(frozen=True, kw_only=True)
class Run:
    """One compaction under way: what came in, what it must achieve, and whether it waits for the model."""

    sizes: Sizes
    messages: int
    tokens: int
    prompt_tokens: int
    targets: Targets
    started: float
    allowance: Allowance
    writer: Writer
    waits: bool


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a compaction came to: the list for the host, why it looks as it does, and what was cut unread.

    `origins` are its messages, each with the stored ones it stands for; `proposal` is how the store would keep them.
    """

    messages: list[Message]
    status: Status
    reason: str
    cut: tuple[int, ...] = ()
    origins: Sequence[tuple[Message, tuple[str, ...]]] = ()
    proposal: Proposal | None = None

    @property
    def folded(self) -> bool:
        """Whether there is another window."""
        return self.proposal is not None


class Compaction:
    """Compact a branch of a conversation."""

    def __init__(self, branch: Branch, settings: Lcm, budgets: Budgets) -> None:
        self._branch = branch
        self._settings = settings
        self._budgets = budgets

    def fold(self, messages: list[Message], sources: Sequence[tuple[str, ...]], run: Run) -> Outcome:
        """Choose the tail, fold, assemble; `sources` are the stored messages that each message stands for."""
        branch = self._branch
        window = branch.window()
        nodes, prepared = branch.nodes(window), branch.prepared_nodes()
        dag = Folded(nodes=nodes).without(outdated(branch, nodes))
        stored = branch.get(i for ids in sources for i in ids)
        coverage = Coverage(dag.nodes)
        seen = view(messages, sources, stored, [i for i, row in stored.items() if row.seq in coverage])
        if not any(role_of(held.message) == "user" for held in seen.held):
            return _unchanged(seen, "no message of the user is left to stand behind the blocks")

        tail = self._tail(seen, run)
        if run.targets.is_optional and self._most_freed(seen, tail.kept, run) < run.targets.least:
            return _unchanged(seen, run.targets.not_worth_it)
        start = self._zone_start(seen, tail, run)
        kept_messages = [*seen.held[start : tail.start], *tail.kept]
        folded = _without(uncovered(branch, window, nodes, coverage), kept_messages)
        only_prepared = None if run.waits else self._only_prepared(seen, tail, folded, prepared, dag, run)
        kept, folded = only_prepared or (masked_from(seen.held, start, tail), folded)
        making = Fold(branch.store, branch.conversation, branch.owner, run.writer, run.allowance)
        dag = making.add(dag, folded, prepared, self._budgets.leaf)
        dag = making.improve(dag, prepared)
        dag = making.remake(dag) if run.waits else dag
        room, most = self._blocks_room(seen, kept, run)
        dag = making.condense(dag, prepared, room=room, most=most, fan_in=self._settings.fan_in)
        dag = making.without_leftovers(dag, prepared)

        assembled = assemble(seen.systems, dag.tops, kept)
        if names := self._names(seen, folded, kept, dag.tops, window, assembled, run):
            assembled = assemble(seen.systems, dag.tops, kept, names)
        after = run.sizes.total(assembled.messages)
        if run.tokens - after < run.targets.least or assembled.messages == seen.valid:
            if folded:
                return _unchanged(seen, run.targets.not_worth_it, status="refused")
            return _unchanged(seen, "nothing before the newest messages to fold")
        for node in prepared:
            if node.id in dag.used:
                run.allowance.add(node)
        return Outcome(
            messages=assembled.messages,
            status="fallback" if run.allowance.fallback else "folded",
            reason=run.allowance.fallback,
            cut=cut_unread(seen, kept, assembled.messages),
            origins=assembled.origins,
            proposal=Proposal(
                window=Window(version=window.version, items=assembled.items),
                nodes=tuple(dag.nodes),
                used=tuple(dag.used),
            ),
        )

    def _tail(self, seen: View, run: Run) -> Tail:
        room = None
        if run.targets.goal is not None and run.targets.most is not None:
            beside = run.sizes.total(held.message for held in seen.systems) + frame_tokens()
            room = Room(
                wanted=max(0, run.targets.goal - beside - self._budgets.summaries),
                most=max(0, run.targets.most - beside - SMALLEST_TEXT),
            )
        return choose_tail(seen.held, run.sizes, unread=seen.unread, budget=self._budgets.tail, room=room)

    def _zone_start(self, seen: View, tail: Tail, run: Run) -> int:
        """Return where the masked zone begins: it takes its share, and no more than blocks and tail leave."""
        before = run.sizes.total(held.message for held in seen.held[: tail.start])
        budget = min(self._budgets.zone, int(before * MOST_MASKED))
        if run.targets.goal is not None:
            rest = run.sizes.total(held.message for held in (*seen.systems, *tail.kept)) + frame_tokens()
            budget = min(budget, run.targets.goal - rest - self._budgets.summaries)
        return zone_start([held.message for held in seen.held], tail.start, budget, run.sizes.of)

    def _most_freed(self, seen: View, tail: Sequence[Held], run: Run) -> int:
        """Return how much a fold can free at the most."""
        kept = run.sizes.total(held.message for held in (*seen.systems, *tail))
        return run.tokens - kept - frame_tokens() - SMALLEST_TEXT

    def _blocks_room(self, seen: View, tail: Sequence[Held], run: Run) -> tuple[int, int]:
        """Return how many tokens the blocks may take: their share and what the rest leaves of the window.

        Then how many they may take rather than that somebody waits for a condensed node.
        """
        if run.targets.goal is None:
            return self._budgets.summaries, self._budgets.summaries
        rest = run.sizes.total(held.message for held in (*seen.systems, *tail)) + frame_tokens()
        room = max(0, min(self._budgets.summaries, run.targets.goal - rest))
        return room, room if run.waits else max(room, int(run.targets.goal * ENOUGH) - rest)

    def _names(
        self,
        seen: View,
        folded: Sequence[Stored],
        kept: Sequence[Held],
        tops: Sequence[Node],
        before: Window,
        window: Assembled,
        run: Run,
    ) -> str:
        """Return the list of names behind the blocks, of what is folded and masked now, and of the list before."""
        size = run.sizes.total(window.messages)
        room = room_for_names((node.text for node in tops), size, run.tokens, run.targets)
        if not room or not tops:
            return ""
        earlier = next((text_of(item["as"]) for item in before.items if "n" in item and "as" in item), "")
        if _places(before.items) == _places(window.items):
            return names_of(earlier)
        leaving = redact_messages([*(row.message for row in folded), *_masked_now(seen, kept)])
        return name_list(leaving, earlier, window.messages, room)

    def _only_prepared(
        self,
        seen: View,
        tail: Tail,
        folded: list[Stored],
        prepared: Sequence[Node],
        dag: Folded,
        run: Run,
    ) -> tuple[list[Held], list[Stored]] | None:
        """Return what stays and what is folded when that is exactly what was prepared; None when it is not enough."""
        ready = usable(prepared, folded)
        start = start_without(seen.held, {seq for node in ready for seq in seqs_of(node.covers)})
        longer = [] if start is None else masked_from(seen.held, min(start, tail.start), tail)
        left = {i for held in longer for i in held.ids}
        rest = [row for row in folded if row.id in left]
        covered = sum(len(seqs_of(node.covers)) for node in ready if not node.covers[0].start)
        if not longer or run.targets.goal is None or covered + len(rest) != len(folded):
            return None
        tokens = run.sizes.total(held.message for held in (*seen.systems, *longer))
        blocks = sum(map(block_tokens, [*dag.tops, *ready]))
        if tokens + min(blocks, self._budgets.summaries) + frame_tokens() > run.targets.goal * ENOUGH:
            return None
        return longer, [row for row in folded if row.id not in left]


def _unchanged(seen: View, reason: str, status: Status = "unchanged") -> Outcome:
    """Return the list as it is."""
    return Outcome(messages=seen.valid, status=status, reason=reason, origins=seen.origins)


def _without(messages: Sequence[Stored], tail: Sequence[Held]) -> list[Stored]:
    kept = {i for held in tail for i in held.ids}
    return [row for row in messages if row.id not in kept]


def _places(items: Sequence[WindowItem]) -> list[tuple[str | None, str | None]]:
    """Return the nodes and messages that stand in a window, in order."""
    return [(item.get("n"), item.get("m")) for item in items]


def _masked_now(seen: View, kept: Sequence[Held]) -> list[Message]:
    """Return the originals of the messages that are masked in this fold, with the calls that they answer."""
    originals = {one.id: one.message for one in seen.held if one.id}
    whole = [originals.get(one.id or "", one.message) for one in kept]
    masked = [at for at, one in enumerate(kept) if one.message is not whole[at] and is_cleared(text_of(one.message))]
    start = masked[0] if masked else 0
    while start > 0 and role_of(whole[start]) == "tool":
        start -= 1
    return whole[start : masked[-1] + 1] if masked else []


def cut_unread(seen: View, tail: Sequence[Held], result: Sequence[Message]) -> tuple[int, ...]:
    """Return the places in a result of unread messages that had to be shortened."""
    whole = {id(held.message) for held in seen.held}
    unread = unread_start([held.message for held in tail])
    cut = {id(held.message) for held in tail[unread:] if id(held.message) not in whole}
    return tuple(index for index, message in enumerate(result) if id(message) in cut)
