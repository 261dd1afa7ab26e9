"""The proof that nothing is lost: every message is covered by leaves exactly once, or stands in the window.

Edited and undone messages are listed apart by the store and need no cover; system messages are kept apart too.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

from leporello.errors import StoreError
from leporello.lcm.dag import flat_text, roots, seqs_of
from leporello.lcm.fold import tiles
from leporello.messages import role_of, text_of
from leporello.messages.fixed import CLEARED_OUTPUT, is_cleared
from leporello.store.records import Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from leporello.store.protocol import Store
    from leporello.store.records import Cover, Node, Stored, StoredWindow

__all__ = ["Finding", "verify"]

_EXPANDED = re.compile(rf"{re.escape(CLEARED_OUTPUT)} lcm_expand (\w+)")


def verify(store: Store, conversation: str, *, owner: str = "") -> list[Finding]:
    """Check a conversation: coverage, the DAG, the window, the chain of hashes and the index; [] when all is well.

    What is too damaged to be read is a finding too, and the other checks are made all the same.
    """
    checks: list[Callable[[], Iterable[Finding]]] = [
        lambda: _folding(store, conversation, owner),
        lambda: store.check_chain(conversation, owner=owner),
        lambda: store.check_index(conversation, owner=owner),
    ]
    findings: list[Finding] = []
    for check in checks:
        try:
            findings += check()
        except StoreError as error:
            findings.append(Finding(where=f"conversation {conversation}", problem=str(error)))
    return findings


def _folding(store: Store, conversation: str, owner: str) -> Iterator[Finding]:
    """Check the head, and every other branch that was folded by itself: the others show what their parents show."""
    branches = store.branches(conversation, owner=owner)
    for branch in branches:
        if not (branch.head or branch.folds):
            continue
        nodes = store.nodes(conversation, owner=owner, branch=branch.id)
        rows = list(store.messages(conversation, owner=owner, branch=branch.id, superseded=True))
        window = store.window(conversation, owner=owner, branch=branch.id)
        where = f" (branch {branch.id})" if len(branches) > 1 else ""
        stored = {row.seq for row in rows}
        checks = (
            _coverage(rows, nodes, window),
            _path(rows, nodes),
            _dag(nodes, stored),
            _window(nodes, window),
            _masked(rows, window),
        )
        for found in checks:
            yield from (Finding(where=each.where + where, problem=each.problem) for each in found)


def _path(rows: Sequence[Stored], nodes: Sequence[Node]) -> Iterator[Finding]:
    """Find nodes that tell what was said on another branch."""
    foreign = {row.seq for row in rows if row.superseded and not row.replaced}
    for node in nodes:
        strange = seqs_of(node.covers) & foreign
        if strange:
            yield Finding(where=f"node {node.id}", problem=f"it covers seq {min(strange)}, which is on another branch")


def _coverage(rows: Sequence[Stored], nodes: Sequence[Node], window: StoredWindow) -> Iterator[Finding]:
    """Find messages that are covered twice, in part, or nowhere."""
    covers: dict[int, list[tuple[str, Cover]]] = defaultdict(list)
    for node in nodes:
        for cover in node.covers:
            for seq in range(cover.first_seq, cover.last_seq + 1):
                covers[seq].append((node.id, cover))
    shown = {item.get("m") for item in window.items}
    by_id = {row.id: row for row in rows}
    known = [by_id[i].seq for i in shown if i in by_id] + [node.last_seq for node in nodes]
    upto = max(known, default=0)
    for row in rows:
        found = covers.get(row.seq, [])
        if row.superseded or row.system:
            continue
        problem = _cover_problem(row, [cover for _, cover in found]) if found else ""
        if not found and row.id not in shown and nodes and row.seq <= upto:
            problem = "no leaf covers it, and it is not in the window"
        if problem:
            names = ", ".join(dict.fromkeys(name for name, _ in found))
            yield Finding(where=f"message {row.id} (seq {row.seq})", problem=problem + (f": {names}" if names else ""))


def _cover_problem(row: Stored, covers: Sequence[Cover]) -> str:
    whole = [cover for cover in covers if cover.start is None]
    parts = sorted((c for c in covers if c.start is not None), key=lambda c: c.start or 0)
    if len(whole) > 1 or (whole and parts):
        return f"{len(covers)} leaves cover it"
    if parts and not tiles(parts, len(flat_text(row.message))):
        return "its parts in leaves are not all of it, or overlap"
    return ""


def _dag(nodes: Sequence[Node], stored: set[int]) -> Iterator[Finding]:
    """Find nodes that do not expand back to what they claim to cover."""
    known = {node.id: node for node in nodes}
    parents: dict[str, str] = {}
    for node in nodes:
        where = f"node {node.id}"
        if bool(node.covers) == bool(node.children):
            yield Finding(where=where, problem="a node covers either messages or nodes")
        for child in node.children:
            if child not in known:
                yield Finding(where=where, problem=f"its child {child} is missing")
            elif child in parents:
                yield Finding(where=where, problem=f"its child {child} also stands under {parents[child]}")
            elif known[child].level >= node.level:
                yield Finding(where=where, problem=f"its child {child} is not of a lower level")
            parents.setdefault(child, node.id)
        missing = seqs_of(node.covers) - stored
        if missing and missing != seqs_of(node.covers):
            yield Finding(where=where, problem=f"it covers seq {min(missing)}, which is not stored")
        yield from _claims(node, known, where)


def _claims(node: Node, known: dict[str, Node], where: str) -> Iterator[Finding]:
    """Compare what a node says about itself with what it covers."""
    children = [known[child] for child in node.children if child in known]
    firsts = [c.first_seq for c in node.covers] + [child.first_seq for child in children]
    lasts = [c.last_seq for c in node.covers] + [child.last_seq for child in children]
    if firsts and (min(firsts), max(lasts)) != (node.first_seq, node.last_seq):
        claim = f"it claims seq {node.first_seq} to {node.last_seq}"
        yield Finding(where=where, problem=f"{claim}, but covers {min(firsts)} to {max(lasts)}")
    held = len(seqs_of(node.covers)) + sum(child.messages for child in children)
    if held != node.messages:
        yield Finding(where=where, problem=f"it claims {node.messages} messages, but covers {held}")


def _window(nodes: Sequence[Node], window: StoredWindow) -> Iterator[Finding]:
    """Find nodes that stand in the window without being the top of the DAG, and tops that are missing there."""
    shown = [item["n"] for item in window.items if "n" in item]
    tops = [node.id for node in roots(nodes)]
    for name in dict.fromkeys([*shown, *tops]):
        if name not in tops:
            yield Finding(where=f"node {name}", problem="it stands in the window, but is not a top of the DAG")
        elif shown.count(name) != 1:
            yield Finding(where=f"node {name}", problem=f"it stands {shown.count(name)} times in the window")


def _masked(rows: Sequence[Stored], window: StoredWindow) -> Iterator[Finding]:
    """Find masked outputs whose line does not lead back to the output that it stands for."""
    stored = {row.id: row for row in rows}
    for item in window.items:
        shown = item.get("as")
        if "m" not in item or shown is None or not is_cleared(text_of(shown)):
            continue
        where, original = f"message {item['m']}", stored.get(item["m"])
        named = _EXPANDED.search(text_of(shown))
        if original is None:
            yield Finding(where=where, problem="its line stands in the window, but it is not stored")
        elif original.role != role_of(shown):
            yield Finding(where=where, problem="it is not the output that its line in the window stands for")
        elif named and named[1] != item["m"]:
            yield Finding(where=where, problem=f"its line in the window leads to {named[1]}")
