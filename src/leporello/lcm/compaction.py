"""One compaction, from the host's list to the proposed window: choose the tail, fold, assemble."""

from __future__ import annotations

from dataclasses import dataclass
from sys import maxsize
from typing import TYPE_CHECKING

from leporello.lcm.dag import Coverage, seqs_of
from leporello.lcm.fold import Fold, outdated, uncovered
from leporello.lcm.node_writer import CALLS, PAID, SMALLEST_TEXT
from leporello.lcm.view import (
    UNLIMITED,
    Assembled,
    KeptMessage,
    Tail,
    View,
    assemble,
    choose_tail,
    has_older,
    masked_from,
    start_without,
    view,
)
from leporello.messages import Message, role_of, text_of, unread_start
from leporello.messages.types import newest_of
from leporello.redact import redact_messages
from leporello.store import FOLD, JournalRow, Proposal, StoredWindow
from leporello.summary.blocks import block_tokens, frame_tokens
from leporello.summary.extract.name_list import LIST_SHARE, name_list, names_of, room_for_names
from leporello.summary.masking import zone_start
from leporello.summary.refire import NOTHING_OLDER
from leporello.summary.squeeze import Room

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leporello.engine import Status
    from leporello.lcm.node_writer import NodeWriter
    from leporello.lcm.threshold import LCMBudgets
    from leporello.store import Branch, Node, Stored
    from leporello.store.records import WindowItem
    from leporello.summary.run import CompactionRun

ENOUGH = 0.70  # of what a window may hold: when prepared leaves alone bring it below, nothing else is folded


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a compaction came to: the list for the host, why it looks as it does, what it freed and cut unread.

    `origins` are its messages, each with the stored ones it stands for; `proposal` is how the store would keep them.
    """

    messages: list[Message]
    status: Status
    reason: str
    freed: int = 0
    cut: tuple[int, ...] = ()
    origins: Sequence[tuple[Message, tuple[str, ...]]] = ()
    proposal: Proposal | None = None

    @property
    def folded(self) -> bool:
        """Whether there is another window."""
        return self.proposal is not None


class Compaction:
    """Compact a branch of a conversation."""

    def __init__(
        self, branch: Branch, budgets: LCMBudgets, fan_in: int, run: CompactionRun, writer: NodeWriter
    ) -> None:
        self._branch = branch
        self._budgets = budgets
        self._fan_in = fan_in
        self._run = run
        self._writer = writer
        self._names = int((run.targets.goal or 0) * LIST_SHARE)  # tokens that are kept free for the list of names
        self._limit = run.targets.goal  # how large the window may become; None without a context length
        self._short_tail = False

    def fold(self, messages: list[Message], sources: Sequence[tuple[str, ...]]) -> Outcome:
        """Choose the tail, fold, assemble; `sources` are the stored messages that each message stands for.

        Where nothing stands before the usual tail, one that was asked for keeps as short a tail as it can.
        """
        outcome = self._fold(messages, sources)
        if outcome.status == "unchanged" and self._run.asked:
            self._short_tail = True
            outcome = self._fold(messages, sources)
        return outcome

    def _fold(self, messages: list[Message], sources: Sequence[tuple[str, ...]]) -> Outcome:
        branch, run, writer = self._branch, self._run, self._writer
        window = branch.window()
        nodes, prepared = branch.nodes(window), branch.prepared_nodes()
        fold = Fold(branch, writer, nodes, prepared)
        fold.drop(outdated(branch, nodes))
        coverage = Coverage(fold.nodes)
        stored = branch.get(i for ids in sources for i in ids)
        seen = view(messages, sources, stored, [i for i, row in stored.items() if row.seq in coverage])
        if newest_of([held.message for held in seen.held], "user") < 0:
            return _unchanged(seen, "no message of the user is left to stand behind the blocks")

        unread = run.sizes.total(held.message for held in seen.held[seen.unread :])
        beside_unread = self._beside_blocks(seen) + self._budgets.summaries + self._names
        self._limit = run.targets.beside_unread(unread, beside_unread)
        tail = self._tail(seen, has_blocks=bool(fold.tops))
        most_freed = run.tokens - self._beside_blocks(seen, tail.kept) - SMALLEST_TEXT
        if run.targets.is_optional and most_freed < run.targets.least:
            return _unchanged(seen, run.targets.not_worth_it)
        start = self._zone_start(seen, tail)
        staying = {i for held in (*seen.held[start : tail.start], *tail.kept) for i in held.ids}
        folded = [row for row in uncovered(branch, window, nodes, coverage) if row.id not in staying]
        only_prepared = None if writer.use_model else self._only_prepared(seen, tail, folded, fold)
        kept, folded = only_prepared or (masked_from(seen.held, start, tail), folded)

        fold.add(folded, self._budgets.leaf)
        fold.improve()
        fold.remake()
        room, most = self._blocks_room(seen, kept)
        fold.condense(room=room, most=most, fan_in=self._fan_in)
        fold.give_up_leftovers()

        assembled = self._assembled(seen, folded, kept, fold.tops, window)
        freed = run.tokens - run.sizes.total(assembled.messages)
        if freed < run.targets.least or assembled.messages == seen.valid:
            if folded:
                return _unchanged(seen, run.targets.not_worth_it, status="refused")
            return _unchanged(seen, NOTHING_OLDER if run.asked else "nothing before the newest messages to fold")
        for node in prepared:
            if node.id in fold.used:
                writer.call_budget.spend(node.meta.get(CALLS, 0), node.meta.get(PAID, 0.0))
        return Outcome(
            messages=assembled.messages,
            status="fallback" if writer.call_budget.fallback else "folded",
            reason=writer.call_budget.fallback,
            freed=freed,
            cut=_cut_unread(seen, kept, assembled.messages),
            origins=assembled.origins,
            proposal=Proposal(
                window=StoredWindow(version=window.version, items=assembled.items),
                nodes=tuple(fold.nodes),
                used=tuple(fold.used),
            ),
        )

    def row(self, outcome: Outcome) -> JournalRow:
        """Return the row of the journal that tells of a fold."""
        tokens, spent = self._run.tokens, self._writer.call_budget
        figures = {"tokens_before": tokens, "tokens_after": tokens - outcome.freed, "model_calls": spent.model_calls}
        return JournalRow(reason=FOLD, keep=0, added=(), cost_usd=spent.cost_usd, report=figures)

    @property
    def _goal(self) -> int:
        """What the window may have beside its list of names; any number without a context length."""
        return maxsize if self._limit is None else self._limit - self._names

    def _beside_blocks(self, seen: View, kept: Sequence[KeptMessage] = ()) -> int:
        """Return what a window takes beside its blocks: the system prompt, the frame, and what is kept."""
        return self._run.sizes.total(held.message for held in (*seen.systems, *kept)) + frame_tokens()

    def _tail(self, seen: View, *, has_blocks: bool) -> Tail:
        """Choose the tail so that it leaves room for the blocks, or inside the model's window for the smallest ones."""
        run, room = self._run, UNLIMITED
        if run.targets.most is not None:
            beside = self._beside_blocks(seen)
            room = Room(
                wanted=max(0, self._goal - beside - self._budgets.summaries),
                most=max(0, run.targets.most - beside - SMALLEST_TEXT),
                names=self._names if has_blocks or has_older(seen) else 0,
            )
        return choose_tail(
            seen.held, run.sizes, unread=seen.unread, budget=0 if self._short_tail else self._budgets.tail, room=room
        )

    def _zone_start(self, seen: View, tail: Tail) -> int:
        """Return where the masked zone begins: it takes its share, and no more than blocks and tail leave."""
        sizes, budgets = self._run.sizes, self._budgets
        messages = [held.message for held in seen.held]
        left = self._goal - self._beside_blocks(seen, tail.kept) - budgets.summaries
        return zone_start(messages, tail.start, 0 if self._short_tail else min(budgets.zone, left), sizes.of)

    def _only_prepared(
        self, seen: View, tail: Tail, folded: Sequence[Stored], fold: Fold
    ) -> tuple[list[KeptMessage], list[Stored]] | None:
        """Return what stays and what is folded when that is exactly what was prepared; None when it is not enough."""
        ready = fold.usable(folded)
        covered = {seq for node in ready for seq in seqs_of(node.covers)}
        start = start_without(seen.held, covered)
        if start is None:
            return None
        kept = masked_from(seen.held, min(start, tail.start), tail)
        staying = {i for held in kept for i in held.ids}
        if any((row.id in staying) == (row.seq in covered) for row in folded):
            return None
        blocks = min(sum(map(block_tokens, [*fold.tops, *ready])), self._budgets.summaries)
        if self._beside_blocks(seen, kept) + blocks > self._goal * ENOUGH:
            return None
        return kept, [row for row in folded if row.seq in covered]

    def _blocks_room(self, seen: View, kept: Sequence[KeptMessage]) -> tuple[int, int]:
        """Return how many tokens the blocks may take: their share and what the rest leaves of the window.

        Then how many they may take before a condensed node is waited for.
        """
        beside = self._beside_blocks(seen, kept)
        room = max(0, min(self._budgets.summaries, self._goal - beside))
        return room, room if self._writer.use_model else max(room, int(self._goal * ENOUGH) - beside)

    def _assembled(
        self,
        seen: View,
        folded: Sequence[Stored],
        kept: Sequence[KeptMessage],
        tops: Sequence[Node],
        before: StoredWindow,
    ) -> Assembled:
        """Assemble the window, with a list of names behind its blocks: of what leaves it now, and the earlier ones."""
        run = self._run
        window = assemble(seen.systems, tops, kept)
        size = run.sizes.total(window.messages)
        room = room_for_names((node.text for node in tops), size, run.tokens, run.targets, self._limit)
        if not room or not tops:
            return window
        earlier = next((text_of(item["as"]) for item in before.items if "n" in item and "as" in item), "")
        if _places(before.items) == _places(window.items):
            names = names_of(earlier)
        else:
            leaving = redact_messages([*(row.message for row in folded), *_shortened_now(seen, kept)])
            names = name_list(leaving, earlier, window.messages, room)
        return assemble(seen.systems, tops, kept, names) if names else window


def _unchanged(seen: View, reason: str, status: Status = "unchanged") -> Outcome:
    """Return the list as it is."""
    return Outcome(messages=seen.valid, status=status, reason=reason, origins=seen.origins)


def _places(items: Sequence[WindowItem]) -> list[tuple[str | None, str | None]]:
    """Return the nodes and messages that stand in a window, in order."""
    return [(item.get("n"), item.get("m")) for item in items]


def _shortened_now(seen: View, kept: Sequence[KeptMessage]) -> list[Message]:
    """Return the originals of the messages that this fold masks or shortens, with the calls that they answer."""
    originals = {one.id: one.message for one in seen.held if one.id}
    whole = [originals.get(one.id or "", one.message) for one in kept]
    short = [at for at, one in enumerate(kept) if one.message is not whole[at]]
    start = short[0] if short else 0
    while start > 0 and role_of(whole[start]) == "tool":
        start -= 1
    return whole[start : short[-1] + 1] if short else []


def _cut_unread(seen: View, tail: Sequence[KeptMessage], result: Sequence[Message]) -> tuple[int, ...]:
    """Return the places in a result of unread messages that had to be shortened."""
    whole = {id(held.message) for held in seen.held}
    unread = unread_start([held.message for held in tail])
    cut = {id(held.message) for held in tail[unread:] if id(held.message) not in whole}
    return tuple(index for index, message in enumerate(result) if id(message) in cut)
