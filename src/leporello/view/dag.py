"""The summaries of a conversation by layers: each as wide as what it stands for."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Final

from markupsafe import Markup

if TYPE_CHECKING:
    from collections.abc import Sequence

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


def drawn(shown: Sequence[Layer], here: Here) -> Markup:
    """Return the layers as rows of blocks over the messages that they cover."""
    every = [node for layer in shown for node in layer.nodes]
    if not every:
        return Markup("")
    cut = [layer for layer in shown if len(layer.nodes) < layer.total] or shown
    first = min(node.first_seq for layer in cut for node in layer.nodes)
    last = max(node.last_seq for layer in cut for node in layer.nodes)
    made = []
    for row, layer in enumerate(shown):
        y = row * (_ROW + _GAP)
        made.append(f'<text x="0" y="{y + 21}">level {layer.level}</text>')
        inside = (node for node in layer.nodes if node.last_seq >= first and node.first_seq <= last)
        made += [_block(node, y, first, last, here) for node in inside]
    height = len(shown) * (_ROW + _GAP)
    return Markup(  # noqa: S704 - every text in it is escaped
        f'<svg class="rail layers-map" viewBox="0 0 {_WIDTH} {height}" role="group" aria-label="Summaries by layer">'
        f"{''.join(made)}</svg>"
    )


def _block(node: Node, y: float, first: int, last: int, here: Here) -> str:
    span = (_WIDTH - _LEFT) / (last - first + 1)
    left = _LEFT + max(0, node.first_seq - first) * span
    wide = max(2.0, (min(node.last_seq, last) - max(node.first_seq, first) + 1) * span - 2)
    told = f"{node.id}: {node.messages:,} messages, {node.source_tokens:,} to {node.tokens:,} tokens"
    name = f'<text class="on" x="{left + 6:.1f}" y="{y + 21}">{node.id}</text>' if wide > 9 * len(node.id) else ""
    return (
        f'<a href="{escape(here("node", id=node.id))}" aria-label="{escape(told)}"><title>{escape(told)}</title>'
        f'<rect class="block" x="{left:.1f}" y="{y}" width="{wide:.1f}" height="{_ROW}" rx="3"/>{name}</a>'
    )
