"""The summaries of a conversation by layers: each as wide as what it stands for."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Final

from markupsafe import Markup

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from leporello.store import Node
    from leporello.view.rendering import Here

MOST: Final = 300
"""Nodes of a layer that are drawn."""
_WIDTH, _ROW, _GAP, _LEFT = 960, 34, 4, 70


@dataclass(frozen=True, kw_only=True)
class Layer:
    """The nodes of one level that are drawn, and how many there are; level 0 stands for messages."""

    level: int
    nodes: list[Node]
    total: int


def layers(nodes: Sequence[Node], start: int = 0) -> list[Layer]:
    """Return the nodes by level, the highest first; of a level with many, those from message `start` on."""
    by_level: dict[int, list[Node]] = {}
    for node in nodes:
        by_level.setdefault(node.level, []).append(node)
    return [
        Layer(
            level=level,
            nodes=[one for one in by_level[level] if one.last_seq >= start][:MOST],
            total=len(by_level[level]),
        )
        for level in sorted(by_level, reverse=True)
    ]


def drawn(shown: Sequence[Layer], here: Here, *, standing: Collection[str] = (), opened: str = "") -> Markup:
    """Return the layers as rows of blocks over the messages that they cover.

    `standing` are the nodes that stand in the window, `opened` is the one that is shown below. Blocks of a layer that
    overlap, because a message was folded more than once, stand below one another.
    """
    every = [node for layer in shown for node in layer.nodes]
    if not every:
        return Markup("")
    cut = [layer for layer in shown if len(layer.nodes) < layer.total] or shown
    first = min(node.first_seq for layer in cut for node in layer.nodes)
    last = max(node.last_seq for layer in cut for node in layer.nodes)
    made, y = [], 2
    for layer in shown:
        made.append(f'<text x="0" y="{y + 21}">level {layer.level}</text>')
        inside = [node for node in layer.nodes if node.last_seq >= first and node.first_seq <= last]
        for lane in _lanes(inside):
            for node in lane:
                kind = f"block{' standing' if node.id in standing else ''}{' opened' if node.id == opened else ''}"
                made.append(_block(node, y, first, last, kind, here("dag", node=node.id) + "#node"))
            y += _ROW + _GAP
        y += _GAP
    return Markup(  # noqa: S704 - every text in it is escaped
        f'<svg class="rail layers-map" viewBox="0 0 {_WIDTH} {y}" role="group" aria-label="Summaries by layer">'
        f"{''.join(made)}</svg>"
    )


def _lanes(nodes: Sequence[Node]) -> list[list[Node]]:
    """Spread nodes over as few rows as keep them from lying on one another; at least one."""
    lanes: list[list[Node]] = [[]]
    for node in sorted(nodes, key=lambda one: (one.first_seq, one.last_seq)):
        free = next((lane for lane in lanes if not lane or lane[-1].last_seq < node.first_seq), None)
        if free is None:
            lanes.append(free := [])
        free.append(node)
    return lanes


def _block(node: Node, y: float, first: int, last: int, kind: str, href: str) -> str:
    span = (_WIDTH - _LEFT) / (last - first + 1)
    left = _LEFT + max(0, node.first_seq - first) * span
    wide = max(2.0, (min(node.last_seq, last) - max(node.first_seq, first) + 1) * span - 2)
    told = f"{node.id}: {node.messages:,} messages, {node.source_tokens:,} to {node.tokens:,} tokens"
    told += ", stands in the window" if "standing" in kind else ""
    name = f'<text class="on" x="{left + 6:.1f}" y="{y + 21}">{node.id}</text>' if wide > 9 * len(node.id) + 4 else ""
    return (
        f'<a href="{escape(href)}" aria-label="{escape(told)}"><title>{escape(told)}</title>'
        f'<rect class="{kind}" x="{left:.1f}" y="{y}" width="{wide:.1f}" height="{_ROW}" rx="3"/>{name}</a>'
    )
