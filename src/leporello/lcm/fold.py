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
    with_files,
)
from leporello.lcm.writing import REMAKE, SMALLEST_TEXT
from leporello.messages import is_system
from leporello.summary.blocks import block_tokens
from leporello.tokens import count_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leporello.lcm.writing import Allowance, Writer
    from leporello.store.protocol import Store
    from leporello.store.records import Cover, Node, Stored


_MOST_RESULTS = 32  # of one message's calls that stand between it and a leaf


@dataclass(frozen=True, kw_only=True)
class Folded:
    """The DAG after a fold: its nodes, those that were made for it, and those that are prepared for nothing now."""

    nodes: list[Node]
    made: list[str] = field(default_factory=list)
    useless: list[str] = field(default_factory=list)

    @property
    def used(self) -> list[str]:
        """The nodes that are no longer prepared ones when the window is saved."""
        return list(dict.fromkeys((*self.made, *self.useless)))

    @property
    def tops(self) -> list[Node]:
        """The nodes that stand in the window."""
        return roots(self.nodes)

    def adding(self, made: Sequence[Node]) -> Folded:
        """Return the DAG with more nodes."""
        return replace(self, nodes=[*self.nodes, *made], made=[*self.made, *(node.id for node in made)])

    def without(self, ids: Iterable[str]) -> Folded:
        """Return the DAG without nodes and everything above them."""
        gone = set(ids)
        gone |= ancestors(self.nodes, gone)
        return replace(self, nodes=[node for node in self.nodes if node.id not in gone])


class Fold:
    """Make the nodes of one fold; they are prepared ones in the store until the window is saved."""

    def __init__(self, store: Store, conversation: str, owner: str, writer: Writer, allowance: Allowance) -> None:
        self._store = store
        self._conversation = conversation
        self._owner = owner
        self._writer = writer
        self._allowance = allowance
        self._sizes: dict[str, int] = {}

    def add(self, dag: Folded, messages: Sequence[Stored], prepared: Sequence[Node], leaf_tokens: int) -> Folded:
        """Cover the messages with leaves: those that are prepared, and new ones for the rest, newest first."""
        ready = usable(prepared, messages)
        rest = without_covered(messages, ready)
        written = [self._writer.leaf(pieces) for pieces in reversed(pack(rest, leaf_tokens))]
        return dag.adding([*ready, *self._kept(written[::-1])])

    def improve(self, dag: Folded, prepared: Sequence[Node]) -> Folded:
        """Swap in what was written again in the background."""
        for node in prepared:
            present = {known.id: known for known in dag.nodes}
            old = present.get(node.meta.get("replaces", ""))
            if old is not None and old.meta.get(REMAKE) and present.keys() >= set(node.children):
                dag = dag.without([old.id]).adding([node])
        return dag

    def remake(self, dag: Folded) -> Folded:
        """Write nodes again that were written without the model, as far as the limits allow.

        Leaves come first, the newest before older ones, from the originals; then condensed nodes, from what is below.
        """
        for node in sorted(dag.nodes, key=lambda node: (node.level, -node.last_seq)):
            if not self._allowance.open or self._allowance.fallback:
                break
            present = {known.id: known for known in dag.nodes}
            if not node.meta.get(REMAKE) or node.id in dag.made or not present.keys() >= {node.id, *node.children}:
                continue
            better = self._again(node, [present[child] for child in node.children])
            if better.made_by == "model":
                dag = dag.without([node.id]).adding(self._kept([better]))
        return dag

    def _again(self, node: Node, children: Sequence[Node]) -> Node:
        if children:
            return self._writer.condensed(children, node.tokens)
        return self._writer.leaf(pieces_of(self._store, self._conversation, self._owner, node.covers))

    def condense(self, dag: Folded, prepared: Sequence[Node], *, room: int, most: int, fan_in: int) -> Folded:
        """Condense neighbours, oldest first, until the blocks take no more than `room`.

        Nodes that were prepared go in. Others are written only as long as the blocks take more than `most`.
        """
        ready = {node.children: node for node in prepared if node.children and "replaces" not in node.meta}
        while (tops := dag.tops) and (size := sum(map(self._size, tops))) > room:
            group = group_to_condense(tops, fan_in)
            node = ready.pop(tuple(child.id for child in group), None)
            if node is None and size > most:
                node = self._condensed(group, size - room, room)
            if node is None:
                break
            dag = dag.adding([node])
        return dag

    def _condensed(self, group: Sequence[Node], excess: int, room: int) -> Node | None:
        """Write one node over several, or a shorter one over one; None when it cannot be any shorter."""
        size = sum(node.tokens for node in group)
        alone = len(group) == 1
        if alone and size <= SMALLEST_TEXT:
            return None
        node = self._writer.condensed(group, budget_over(group, room, size - excess if alone else size - 1))
        return None if alone and node.tokens >= size else self._kept([node])[0]

    def without_leftovers(self, dag: Folded, prepared: Sequence[Node]) -> Folded:
        """Give up prepared nodes that can be of no more use: the DAG has what they cover, or not what they stand on."""
        covered, present = Coverage(dag.nodes), {node.id for node in dag.nodes}
        standing = {node.id for node in dag.tops} | {node.id for node in prepared if not node.children}
        useless = [
            node.id
            for node in prepared
            if node.id not in present
            and ("replaces" in node.meta or _overlaps(node, covered) or not standing.issuperset(node.children))
        ]
        return replace(dag, useless=[*dag.useless, *useless])

    def _kept(self, nodes: Sequence[Node]) -> list[Node]:
        return self._store.add_nodes(self._conversation, nodes, owner=self._owner) if nodes else []

    def _size(self, node: Node) -> int:
        if node.id not in self._sizes:
            self._sizes[node.id] = block_tokens(node)
        return self._sizes[node.id]


def budget_over(group: Sequence[Node], room: int, most: int | None = None) -> int:
    """Return how many tokens a node over others may have: fewer than they have, and not more than half of the room."""
    fewer = sum(node.tokens for node in group) - 1
    return max(SMALLEST_TEXT, min(fewer if most is None else most, room // 2))


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
            piece = Piece(stored=stored, tokens=stored.tokens, start=cover.start, stop=cover.stop)
            if cover.start is not None:
                text = flat_text(stored.message)[cover.start : cover.stop]
                piece = replace(piece, tokens=count_text(text) + 4)
            pieces.append(piece)
    return with_files(pieces, _asking(store, owner, pieces))


def _asking(store: Store, owner: str, leaf: Sequence[Piece]) -> list[Stored]:
    """Return the message before a leaf whose calls the first results in it answer."""
    if not leaf or leaf[0].stored.role != "tool":
        return []
    before = store.neighbours([leaf[0].stored.id], before=_MOST_RESULTS, after=0, owner=owner)
    return [row for row in before if row.role != "tool" and not is_system(row.message)][-1:]
