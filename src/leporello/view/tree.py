"""The branches of a conversation as a railway map: where each was forked, and why."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from itertools import islice
from typing import TYPE_CHECKING, Final

from markupsafe import Markup

from leporello.messages import text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leporello.store import BranchInfo, ConversationInfo, Store, Stored
    from leporello.view.rendering import Here

MOST: Final = 40
"""Branches that are drawn: the newest, and those they were forked from."""
_WIDTH, _LANE, _LEFT, _RIGHT, _TOP = 960, 46, 24, 40, 34
_BEND: Final = 26
_LABEL: Final = 720  # a label that would begin behind this stands before its line
_LETTER: Final = 7  # about as wide as one of a name


@dataclass(frozen=True, kw_only=True)
class MappedBranch:
    """A branch, why it was made, and where it begins and ends on the map, in messages from the beginning."""

    info: BranchInfo
    why: str
    start: float
    end: float
    tip: Stored | None


def mapped(store: Store, info: ConversationInfo) -> tuple[list[MappedBranch], int]:
    """Return the branches to draw, each behind its parent, and how many are left out."""
    branches = {one.id: one for one in store.branches(info.key, owner=info.owner)}
    chosen: set[int] = set()
    for one in sorted(branches.values(), key=lambda one: (not one.head, -one.used, -one.id)):
        line = _line(one, branches)
        if len(chosen.union(line)) <= MOST:
            chosen.update(line)
    shown = [one for one in branches.values() if one.id in chosen]
    ends = store.get([id_ for one in shown for id_ in (one.fork, one.tip) if id_], owner=info.owner)
    found = [
        MappedBranch(
            info=one,
            why=_why(store, info, one, ends.get(one.fork or "")),
            start=ends[one.fork].place if one.fork in ends and one.fork else 0.0,
            end=ends[one.tip].place if one.tip in ends and one.tip else 0.0,
            tip=ends.get(one.tip or ""),
        )
        for one in shown
    ]
    return _in_order(found), len(branches) - len(found)


def _line(branch: BranchInfo, branches: dict[int, BranchInfo]) -> list[int]:
    line = [branch.id]
    while (parent := branches[line[-1]].parent) is not None:
        line.append(parent)
    return line


def _in_order(branches: Sequence[MappedBranch]) -> list[MappedBranch]:
    children: dict[int | None, list[MappedBranch]] = {}
    for one in branches:
        children.setdefault(one.info.parent, []).append(one)
    ordered: list[MappedBranch] = []
    waiting = children.get(None, [])[::-1]
    while waiting:
        one = waiting.pop()
        ordered.append(one)
        waiting += children.get(one.info.id, [])[::-1]
    return ordered


def _why(store: Store, info: ConversationInfo, branch: BranchInfo, fork: Stored | None) -> str:
    """Say why a branch was made, by what stands behind its fork on it and on its parent."""
    if branch.parent is None:
        return "the beginning" if branch.id == 1 else "begun anew"
    if store.journal(info.key, owner=info.owner, reason="undo", branch=branch.id, last=1):
        return "undone"
    own, other = (_behind(store, info, on, fork) for on in (branch.id, branch.parent))
    if own is None:
        return "nothing said yet"
    if own.role == "assistant":
        return "regenerated"
    if other is not None and other.role == own.role == "user" and fork is not None and fork.role == "assistant":
        aside = not branch.head and other.seq > own.seq
        same = text_of(own.message) == text_of(other.message)
        return "asked again" if same else "side question" if aside else "edited"
    return "went on" if branch.head else "side question"


def _behind(store: Store, info: ConversationInfo, branch: int, fork: Stored | None) -> Stored | None:
    """Return the first message behind a fork on a branch."""
    rows = store.messages(info.key, owner=info.owner, branch=branch, first=fork.seq + 1 if fork else 1)
    return next(islice(rows, 1), None)


def railway(branches: Sequence[MappedBranch], here: Here) -> Markup:
    """Return the map: a line for each branch, from its fork to its tip."""
    lanes = {one.info.id: at for at, one in enumerate(branches)}
    longest = max((one.end for one in branches), default=1.0) or 1.0

    def x(place: float) -> float:
        return _LEFT + place / longest * (_WIDTH - _LEFT - _RIGHT - _BEND)

    def y(branch: int) -> float:
        return _TOP + lanes[branch] * _LANE

    lines, stops = [], []
    for one in branches:
        mark = " head" if one.info.head else ""
        own, begin = y(one.info.id), x(one.start)
        end = max(x(one.end), begin + 2 * _BEND)
        parent = one.info.parent if one.info.parent in lanes else None
        if parent is None:
            path, label = f"M{begin:.1f},{own} H{end:.1f}", begin
        else:
            above = y(parent)
            path = (
                f"M{begin:.1f},{above} C{begin + _BEND * 0.7:.1f},{above} {begin + _BEND * 0.3:.1f},{own} "
                f"{begin + _BEND:.1f},{own} H{end:.1f}"
            )
            label = begin + _BEND
            stops.append(f'<circle class="stop" cx="{begin:.1f}" cy="{above}" r="5"/>')
        name = f"{one.info.id} · {one.why}{', the head' if one.info.head else ''}"
        anchor, at = ("start", label) if label <= _LABEL else ("end", begin - 6)
        lines.append(f'<path class="line{mark}" d="{path}"/>')
        wide = len(name) * _LETTER
        left, right = min(label, at if anchor == "start" else at - wide), max(end, at + wide * (anchor == "start"))
        leads = here("window", branch=one.info.id)
        if parent is not None:  # what it has that the branch it left has not
            leads = here("tree", first=parent, second=one.info.id) + "#compare"
        stops.append(
            f'<a href="{escape(leads)}"><path class="near" d="M{left:.1f},{own - 6:.1f} H{right:.1f}"/>'
            f'<circle class="stop{mark}" cx="{end:.1f}" cy="{own}" r="7"/>'
            f'<text class="name" x="{at:.1f}" y="{own - 12:.1f}" text-anchor="{anchor}">{escape(name)}</text></a>'
        )
    height = _TOP + (len(branches) - 1) * _LANE + 14
    return Markup(  # noqa: S704 - every text in it is escaped above
        f'<svg class="rail" viewBox="0 0 {_WIDTH} {height}" role="group" aria-label="Branches">'
        f"{''.join(lines)}{''.join(stops)}</svg>"
    )
