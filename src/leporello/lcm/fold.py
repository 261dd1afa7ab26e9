"""One fold: which messages become which nodes.

Leaves that were prepared in the background go in first; what they do not cover is written now. Nodes that were
written without the model, because it was away, are written again. Then neighbours are condensed until all blocks
fit into their share.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from leporello.lcm.dag import (
    Coverage,
    Piece,
    ancestors,
    flat_text,
    group_to_condense,
    pack,
    roots,
    seqs_of,
)
from leporello.lcm.window import block_tokens
from leporello.lcm.writing import REMAKE, SMALLEST_TEXT
from leporello.tokens import count_message, count_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leporello.lcm.writing import Allowance, Writer
    from leporello.store.protocol import Cover, Node, Store, Stored


@dataclass(frozen=True, kw_only=True)
class Folded:
    """The DAG after a fold: its nodes, and what changes in the store when the window is saved."""

    nodes: list[Node]
    publish: list[str] = field(default_factory=list)
    retire: list[str] = field(default_factory=list)

    @property
    def tops(self) -> list[Node]:
        """The nodes that stand in the window."""
        return roots(self.nodes)

    def adding(self, made: Sequence[Node]) -> Folded:
        """Return the DAG with nodes that are published with the window."""
        return replace(self, nodes=[*self.nodes, *made], publish=[*self.publish, *(node.id for node in made)])

    def without(self, ids: Iterable[str]) -> Folded:
        """Return the DAG without nodes and everything above them; they are retired with the window."""
        gone = set(ids)
        gone |= ancestors(self.nodes, gone)
        return replace(
            self,
            nodes=[node for node in self.nodes if node.id not in gone],
            publish=[node for node in self.publish if node not in gone],
            retire=[*self.retire, *sorted(gone)],
        )


class Fold:
    """Make the nodes of one fold; they are prepared in the store, and published when the window is saved."""

    def __init__(self, store: Store, conversation: str, owner: str, writer: Writer, allowance: Allowance) -> None:
        self._store = store
        self._conversation = conversation
        self._owner = owner
        self._writer = writer
        self._allowance = allowance

    def add(self, dag: Folded, messages: Sequence[Stored], prepared: Sequence[Node], leaf_tokens: int) -> Folded:
        """Cover the messages with leaves: those that are prepared, and new ones for the rest, newest first."""
        ready = usable(prepared, messages)
        rest = without_covered(messages, ready)
        written = [self._writer.leaf(pieces) for pieces in reversed(pack(rest, leaf_tokens))]
        made = self._kept(written[::-1])
        return self._replaced(dag.adding([*ready, *made]), prepared)

    def remake(self, dag: Folded) -> Folded:
        """Write leaves again that were written without the model, from the originals, as far as the limits allow."""
        for node in sorted(dag.nodes, key=lambda node: -node.last_seq):
            if not self._allowance.open or self._allowance.fallback:
                break
            if node.children or not node.meta.get(REMAKE) or node.id in dag.publish:
                continue
            better = self._writer.leaf(pieces_of(self._store, self._conversation, self._owner, node.covers))
            if better.made_by == "model":
                dag = dag.without([node.id]).adding(self._kept([better]))
        return dag

    def condense(self, dag: Folded, room: int, fan_in: int) -> Folded:
        """Condense neighbours, oldest first, until the blocks take no more than `room`."""
        while (tops := dag.tops) and (excess := sum(map(block_tokens, tops)) - room) > 0:
            group = group_to_condense(tops, fan_in)
            size = sum(node.tokens for node in group)
            alone = len(group) == 1
            if alone and size <= SMALLEST_TEXT:
                break
            budget = min(size - 1 if not alone else size - excess, room // 2)
            node = self._writer.condensed(group, max(SMALLEST_TEXT, budget))
            if alone and node.tokens >= size:
                break
            dag = dag.adding(self._kept([node]))
        return dag

    def _kept(self, nodes: Sequence[Node]) -> list[Node]:
        return self._store.add_nodes(self._conversation, nodes, owner=self._owner) if nodes else []

    def _replaced(self, dag: Folded, prepared: Sequence[Node]) -> Folded:
        """Swap in what was written again in the background; prepared nodes that are no longer of use go."""
        covered = Coverage(dag.nodes)
        useless: list[str] = []
        for node in prepared:
            present = {known.id: known for known in dag.nodes}
            old = present.get(node.meta.get("replaces", ""))
            if old is not None and old.meta.get(REMAKE) and present.keys() >= set(node.children):
                dag = dag.without([old.id]).adding([node])
            elif node.id not in present and ("replaces" in node.meta or node.children or _overlaps(node, covered)):
                useless.append(node.id)
        return replace(dag, retire=[*dag.retire, *useless])


def _overlaps(node: Node, covered: Coverage) -> bool:
    return any(seq in covered for seq in seqs_of(node.covers))


def usable(prepared: Sequence[Node], messages: Sequence[Stored]) -> list[Node]:
    """Choose prepared leaves that cover nothing but these messages, none twice, and long messages only as a whole."""
    wanted = {stored.seq: stored for stored in messages}
    taken: set[int] = set()
    whole: list[Node] = []
    parts: dict[int, dict[int, Node]] = {}
    for node in prepared:
        seqs = seqs_of(node.covers)
        if node.children or node.meta.get("replaces") or not seqs or not seqs <= wanted.keys():
            continue
        if node.covers[0].start is not None:
            parts.setdefault(node.first_seq, {}).setdefault(node.covers[0].start, node)
        elif not seqs & taken:
            taken |= seqs
            whole.append(node)
    for seq, found in parts.items():
        ordered = [found[start] for start in sorted(found)]
        if seq not in taken and tiles([n.covers[0] for n in ordered], len(flat_text(wanted[seq].message))):
            taken.add(seq)
            whole += ordered
    return whole


def tiles(covers: Sequence[Cover], length: int) -> bool:
    """Tell whether parts, in order, are all of a text without gap or overlap."""
    position = 0
    for cover in covers:
        if cover.start != position or cover.stop is None:
            return False
        position = cover.stop
    return position == length


def without_covered(messages: Sequence[Stored], nodes: Sequence[Node]) -> list[Stored]:
    """Return the messages that none of the leaves covers."""
    covered = Coverage(nodes)
    return [stored for stored in messages if stored.seq not in covered]


def pieces_of(store: Store, conversation: str, owner: str, covers: Sequence[Cover]) -> list[Piece]:
    """Return the originals under a leaf."""
    pieces: list[Piece] = []
    for cover in covers:
        rows = store.messages(
            conversation, owner=owner, first=cover.first_seq, last=cover.last_seq, superseded=True, system=True
        )
        for stored in sorted(rows, key=lambda row: row.seq):
            if stored.system:
                continue
            piece = Piece(stored=stored, tokens=count_message(stored.message), start=cover.start, stop=cover.stop)
            if cover.start is not None:
                text = flat_text(stored.message)[cover.start : cover.stop]
                piece = replace(piece, tokens=count_text(text) + 4)
            pieces.append(piece)
    return pieces
