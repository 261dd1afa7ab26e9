"""The branches of a conversation, for people and for programs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from leporello.cli.format import on_one_line, timestamp
from leporello.lcm.dag import flat_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from leporello.store import BranchInfo, ConversationInfo, Stored, TranscriptStore

_LINE = 72
_DEEPEST = 8  # indentation stops growing here; the parent stands in a column of its own


def described(store: TranscriptStore, info: ConversationInfo) -> list[dict[str, Any]]:
    """Describe the branches of a conversation, each with the beginning of its newest message."""
    branches = store.branches(info.key, owner=info.owner)
    tips = store.get([branch.tip for branch in branches if branch.tip], owner=info.owner)
    return [
        _described(branch, tips.get(branch.tip or "")) | {"replaces": info.replaces.get(branch.id)}
        for branch in branches
    ]


def newest_of_roots(store: TranscriptStore, info: ConversationInfo) -> list[BranchInfo]:
    """Return one branch for each root of a conversation, oldest first: the head, or else the one that was used last."""
    roots: dict[int, int] = {}  # the root of each branch; a branch is made after its parent
    newest: dict[int, BranchInfo] = {}
    for branch in store.branches(info.key, owner=info.owner):
        root = roots[branch.id] = branch.id if branch.parent is None else roots[branch.parent]
        newest[root] = max(newest.get(root, branch), branch, key=lambda one: (one.head, one.used, one.id))
    return list(newest.values())


def print_tree(branches: Sequence[dict[str, Any]]) -> None:
    """Print branches as a tree: where each was forked, how many messages its path has, and its newest message."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for column in ("branch", "parent", "behind", "messages", ""):
        table.add_column(column, justify="right" if column == "messages" else "left", no_wrap=True)
    table.add_column("newest message", no_wrap=True, overflow="ellipsis")
    shown = [branch for branch in branches if not _is_empty(branch, branches)]
    for branch, depth in _tree(shown):
        name = f"{'  ' * (min(depth, _DEEPEST) - 1)}└ {branch['id']}" if depth else str(branch["id"])
        behind = "" if branch["parent"] is None else branch["fork"] or "the beginning"
        behind = f"in place of {branch['replaces']}" if branch["replaces"] else behind
        newest = f"{branch['tip']} {branch['role']}: {branch['text']}" if branch["tip"] else ""
        cells = [name, str(branch["parent"] or ""), behind, f"{branch['messages']:,}"]
        cells += ["head" if branch["head"] else "", newest]
        table.add_row(*map(Text, cells))
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(table)
    if empty := len(branches) - len(shown):
        console.print(f"{empty} {'branch' if empty == 1 else 'branches'} on which nothing was said", style="dim")


def _described(branch: BranchInfo, tip: Stored | None) -> dict[str, Any]:
    return {
        "id": branch.id,
        "parent": branch.parent,
        "fork": branch.fork,
        "messages": branch.messages,
        "tokens": branch.tokens,
        "compactions": branch.folds,
        "head": branch.head,
        "created": timestamp(branch.created),
        "used": timestamp(branch.used),
        "tip": branch.tip,
        "role": tip.role if tip else None,
        "text": on_one_line(flat_text(tip.message), _LINE) if tip else None,
    }


def _is_empty(branch: dict[str, Any], branches: Sequence[dict[str, Any]]) -> bool:
    """Tell whether nothing was said on a branch and nothing was forked from it, as after the first of two undos."""
    used = branch["head"] or branch["parent"] is None or branch["tip"] != branch["fork"]
    return not used and all(other["parent"] != branch["id"] for other in branches)


def _tree(branches: Sequence[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], int]]:
    """Walk through branches, each behind its parent, with how many branches stand above it."""
    children: dict[int | None, list[dict[str, Any]]] = {}
    for branch in branches:
        children.setdefault(branch["parent"], []).append(branch)
    waiting = [(branch, 0) for branch in reversed(children.get(None, []))]
    while waiting:
        branch, depth = waiting.pop()
        yield branch, depth
        waiting += [(child, depth + 1) for child in reversed(children.get(branch["id"], []))]
