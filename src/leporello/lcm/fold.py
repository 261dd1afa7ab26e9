"""One fold: turns messages into leaves, and leaves into condensed nodes.

Prepared leaves are used first; leaves for the other messages are written now. Nodes that had to be written without the
model are written again, and prepared leaves if there is a focus now. Then neighbours are condensed until all blocks fit
into their share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leporello.lcm.dag import (
    Coverage,
    Piece,
    ancestors,
    flat_text,
    group_to_condense,
    pack,
    part_tokens,
    roots,
    seqs_of,
    with_files,
)
from leporello.lcm.node_writer import REMAKE, SMALLEST_TEXT
from leporello.messages import is_system, text_of
from leporello.summary.blocks import block_tokens
from leporello.summary.extract.story import is_trivial

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from leporello.lcm.node_writer import NodeWriter
    from leporello.store import Branch, StoredWindow
    from leporello.store.protocol import Store
    from leporello.store.records import Cover, Node, Stored


_MOST_RESULTS = 32  # of one message's calls that stand between it and a leaf


class Fold:
    """The DAG of a branch during a fold; a new node counts as prepared until the window is committed.

    `used` are the prepared nodes that the commit takes from the list of prepared ones: used here, or of no more use.
    """

    def __init__(self, branch: Branch, writer: NodeWriter, nodes: Sequence[Node], prepared: Sequence[Node]) -> None:
        self._branch = branch
        self._writer = writer
        self._prepared = [node for node in prepared if "replaces" not in node.meta]
        self._better = [node for node in prepared if "replaces" in node.meta]
        self._unfocused: set[str] = set()  # prepared leaves that were written before a focus was named
        self.nodes: list[Node] = list(nodes)
        self.used: set[str] = set()

    @property
    def tops(self) -> list[Node]:
        """The nodes that stand in the window."""
        return roots(self.nodes)

    def drop(self, ids: Iterable[str]) -> None:
        """Remove nodes from the DAG, and all above them."""
        gone = set(ids)
        gone |= ancestors(self.nodes, gone)
        self.nodes = [node for node in self.nodes if node.id not in gone]

    def usable(self, messages: Sequence[Stored]) -> list[Node]:
        """Choose prepared leaves that cover only these messages, none twice, and long messages only as a whole."""
        wanted = {stored.seq: stored for stored in messages}
        taken: set[int] = set()
        whole: list[Node] = []
        parts: dict[int, dict[int, Node]] = {}
        for node in self._prepared:
            seqs = seqs_of(node.covers)
            if not seqs or not seqs <= wanted.keys():
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

    def add(self, messages: Sequence[Stored], leaf_tokens: int) -> None:
        """Cover the messages with leaves: those that are prepared, and new ones for the rest, newest first.

        Without a model a request that is folded later than what was done for it has a leaf of its own, before those.
        """
        ready = self.usable(messages)
        covered = Coverage(ready)
        rest = [stored for stored in messages if stored.seq not in covered]
        if self._writer.has_focus:
            self._unfocused.update(node.id for node in ready)
        runs = [rest] if self._writer.has_model else _telling(Coverage(self.nodes).unbroken(rest))
        leaves = [leaf for run in runs for leaf in self._writer.leaves(pack(run, leaf_tokens))]
        self._use([*ready, *self._stored(leaves)])

    def improve(self) -> None:
        """Replace nodes by those that were written again in the background."""
        for node in self._better:
            present = {known.id: known for known in self.nodes}
            old = present.get(node.meta["replaces"])
            if old is not None and old.meta.get(REMAKE) and present.keys() >= set(node.children):
                self.drop([old.id])
                self._use([node])

    def remake(self) -> None:
        """Write nodes again that were written without the model or without the focus, as far as the limits allow.

        Leaves come first, the newest before older ones, from the originals; then condensed nodes, from what is below.
        """
        for node in sorted(self.nodes, key=lambda node: (node.level, -node.last_seq)):
            if not self._writer.may_ask:
                break
            present = {known.id: known for known in self.nodes}
            poor = node.meta.get(REMAKE) and node.id not in self.used
            if not (poor or node.id in self._unfocused) or not present.keys() >= {node.id, *node.children}:
                continue
            better = written_again(self._branch, self._writer, node, [present[child] for child in node.children])
            if better.made_by == "model":
                self.drop([node.id])
                self._use(self._stored([better]))

    def condense(self, *, room: int, most: int, fan_in: int) -> None:
        """Condense neighbours, oldest first, until the blocks take no more than `room` tokens.

        Prepared nodes are used; others are written only while the blocks take more than `most`.
        """
        ready = {node.children: node for node in self._prepared if node.children}
        tops = self.tops
        sizes = {node.id: block_tokens(node) for node in tops}
        while tops and (size := sum(sizes[node.id] for node in tops)) > room:
            group = group_to_condense(tops, fan_in)
            node = ready.pop(tuple(child.id for child in group), None)
            if node is None and size > most:
                node = self._condensed(group, size - room, room)
            if node is None:
                break
            self._use([node])
            sizes[node.id] = block_tokens(node)
            tops = self.tops

    def _condensed(self, group: Sequence[Node], excess: int, room: int) -> Node | None:
        """Write one node over several, or a shorter one over one; None when it cannot be any shorter."""
        size = sum(node.tokens for node in group)
        alone = len(group) == 1
        if alone and size <= SMALLEST_TEXT:
            return None
        node = self._writer.condensed(group, budget_over(group, room, excess if alone else 1))
        return None if alone and node.tokens >= size else self._stored([node])[0]

    def give_up_leftovers(self) -> None:
        """Mark prepared nodes as used that cannot be used any more: covered by the DAG, or without their children."""
        covered, present = Coverage(self.nodes), {node.id for node in self.nodes}
        standing = {node.id for node in self.tops} | {node.id for node in self._prepared if not node.children}
        self.used.update(node.id for node in self._better)
        for node in self._prepared:
            is_covered = any(seq in covered for seq in seqs_of(node.covers))
            if node.id not in present and (is_covered or not standing.issuperset(node.children)):
                self.used.add(node.id)

    def _use(self, nodes: Sequence[Node]) -> None:
        self.nodes += nodes
        self.used.update(node.id for node in nodes)

    def _stored(self, nodes: Sequence[Node]) -> list[Node]:
        branch = self._branch
        return branch.store.add_nodes(branch.conversation, nodes, owner=branch.owner) if nodes else []


def _telling(runs: Iterable[list[Stored]]) -> list[list[Stored]]:
    """Return the runs, with those that only say yes or thanks joined to the next one."""
    found: list[list[Stored]] = []
    said: list[Stored] = []
    for run in runs:
        said = [*said, *run]
        if not all(stored.role == "user" and is_trivial(text_of(stored.message)) for stored in said):
            found.append(said)
            said = []
    return [*found, said] if said else found


def budget_over(group: Sequence[Node], room: int, less: int = 1) -> int:
    """Return the tokens of a node over others: at least `less` fewer than theirs, and at most half of the room."""
    return max(SMALLEST_TEXT, min(sum(node.tokens for node in group) - less, room // 2))


def written_again(branch: Branch, writer: NodeWriter, node: Node, children: Sequence[Node]) -> Node:
    """Write a node again, from its children or its messages."""
    if node.children:
        return writer.condensed(children, node.tokens)
    return writer.leaf(pieces_of(branch, node.covers))


def outdated(branch: Branch, nodes: Sequence[Node]) -> set[str]:
    """Return the leaves that cover a message which was replaced since."""
    if not nodes:
        return set()
    first, last = min(node.first_seq for node in nodes), max(node.last_seq for node in nodes)
    gone = {row.seq for row in branch.replaced(first, last)}
    return {node.id for node in nodes if gone & seqs_of(node.covers)} if gone else set()


def uncovered(branch: Branch, window: StoredWindow, nodes: Sequence[Node], coverage: Coverage) -> list[Stored]:
    """Return the messages on the path that no leaf covers, in order.

    Older messages are covered or in the window, so only the window and newer messages are read; all of them when
    leaves were dropped.
    """
    kept = branch.get(item.get("m") for item in window.items)
    known = [row.seq for row in kept.values() if not row.system] + [node.last_seq for node in nodes]
    whole = not nodes or any(node.id not in coverage.ids for node in nodes if node.covers)
    first = None if whole else max(known, default=0) + 1
    rows = {row.id: row for row in (*(() if whole else kept.values()), *branch.messages(first=first))}
    live = [row for row in rows.values() if not (row.system or row.superseded or row.seq in coverage)]
    return sorted(live, key=lambda row: (row.place, row.seq))


def unfolded(branch: Branch, window: StoredWindow, tops: Sequence[Node]) -> tuple[int, int]:
    """Count the messages that are not folded, and their tokens."""
    if not tops:
        info = branch.store.info(branch.conversation, owner=branch.owner)
        return (info.messages, info.tokens) if info else (0, 0)
    rows = uncovered(branch, window, tops, Coverage(tops))
    return len(rows), sum(row.tokens for row in rows)


def tiles(covers: Sequence[Cover], length: int) -> bool:
    """Tell whether parts cover a text without gap or overlap."""
    position = 0
    for cover in covers:
        if cover.start != position or cover.stop is None:
            return False
        position = cover.stop
    return position == length


def originals_of(store: Store, conversation: str, owner: str, cover: Cover) -> Iterator[Stored]:
    """Yield the messages that a cover of a leaf names."""
    return store.messages(
        conversation, owner=owner, first=cover.first_seq, last=cover.last_seq, superseded=True, by_arrival=True
    )


def pieces_of(branch: Branch, covers: Sequence[Cover]) -> list[Piece]:
    """Return the pieces that a leaf covers."""
    pieces: list[Piece] = []
    for cover in covers:
        for row in originals_of(branch.store, branch.conversation, branch.owner, cover):
            part = cover.start is not None
            tokens = part_tokens(flat_text(row.message)[cover.start : cover.stop]) if part else row.tokens
            pieces.append(Piece(stored=row, tokens=tokens, start=cover.start, stop=cover.stop))
    return with_files(pieces, _calling_message(branch, pieces))


def _calling_message(branch: Branch, leaf: Sequence[Piece]) -> list[Stored]:
    """Return the message with the calls that the first results of a leaf answer."""
    if not leaf or leaf[0].stored.role != "tool":
        return []
    before = branch.store.neighbours(
        [leaf[0].stored.id], before=_MOST_RESULTS, after=0, owner=branch.owner, conversation=branch.conversation
    )
    return [row for row in before if row.role != "tool" and not is_system(row.message)][-1:]
