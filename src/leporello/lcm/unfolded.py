"""What of a branch is not folded: no leaf covers it, or the leaf that did is outdated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leporello.lcm.dag import Coverage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leporello.store import Branch, Node, Stored, Window


def outdated(branch: Branch, nodes: Sequence[Node]) -> set[str]:
    """Return the leaves that cover a message which was replaced since."""
    if not nodes:
        return set()
    coverage = Coverage(nodes)
    first, last = min(node.first_seq for node in nodes), max(node.last_seq for node in nodes)
    gone = {row.seq for row in branch.replaced(first, last) if row.seq in coverage}
    return {node.id for node in nodes if any(c.first_seq <= seq <= c.last_seq for c in node.covers for seq in gone)}


def uncovered(branch: Branch, window: Window, nodes: Sequence[Node], coverage: Coverage) -> list[Stored]:
    """Return the messages on the path that no leaf covers, in their order.

    Whatever came before the window was saved is covered or in the window, so only that and what is newer is read;
    all of it when leaves were given up.
    """
    kept = branch.get(item.get("m") for item in window.items)
    known = [row.seq for row in kept.values() if not row.system] + [node.last_seq for node in nodes]
    whole = not nodes or any(node.id not in coverage.ids for node in nodes if node.covers)
    first = None if whole else max(known, default=0) + 1
    rows = {row.id: row for row in (*(() if whole else kept.values()), *branch.messages(first=first))}
    live = [row for row in rows.values() if not (row.system or row.superseded or row.seq in coverage)]
    return sorted(live, key=lambda row: (row.place, row.seq))


def unfolded(branch: Branch, window: Window, tops: Sequence[Node]) -> tuple[int, int]:
    """Count the messages that stand behind the nodes of a window, and their tokens; all of them without nodes."""
    if not tops:
        info = branch.store.info(branch.conversation, owner=branch.owner)
        return (info.messages, info.tokens) if info else (0, 0)
    kept = [row for row in branch.get(item.get("m") for item in window.items).values() if not row.system]
    last = max(*(row.seq for row in kept), *(node.last_seq for node in tops), 0)
    live = [*(row for row in kept if not row.superseded), *branch.messages(first=last + 1)]
    return len(live), sum(row.tokens for row in live)
