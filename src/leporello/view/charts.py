"""Charts as SVG, drawn with attributes and classes alone: the page allows no inline styles."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10
from typing import TYPE_CHECKING, Final

from markupsafe import Markup

from leporello.view.text import short

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

WIDTH: Final = 960
_LEFT, _RIGHT, _TOP, _BOTTOM = 54, 12, 16, 26
_TICKS: Final = 4
_STEPS: Final = (1, 2, 2.5, 5, 10)


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A vertical line at a place, with what it stands for and where it leads."""

    at: int
    label: str
    href: str = ""


def share_bar(parts: Mapping[str, int], free: int, labels: Mapping[str, str]) -> Markup:
    """Return one bar with the share of each part, and the free space at its end."""
    whole = sum(parts.values()) + free or 1
    x, drawn = 0.0, []
    for name, tokens in (*parts.items(), ("free", free)):
        wide = WIDTH * tokens / whole
        if wide <= 0:
            continue
        told = escape(f"{labels.get(name, name)}: {tokens:,} tokens, {100 * tokens / whole:.0f} %")
        drawn.append(
            f'<rect class="part-{name}" x="{x:.2f}" y="0" width="{wide:.2f}" height="28"><title>{told}</title></rect>'
        )
        x += wide
    label = escape(", ".join(f"{labels.get(name, name)} {tokens:,}" for name, tokens in parts.items() if tokens))
    return _svg(drawn, 28, f"Tokens by part: {label}; free {free:,}", "share-bar", stretch=True)


def stacked(
    points: Sequence[Mapping[str, float]],
    numbers: Sequence[int],
    parts: Sequence[str],
    *,
    marks: Sequence[Mark] = (),
    limit: int = 0,
    label: str,
    height: int = 250,
    prefix: str = "part",
    written: Callable[[float], str] = short,
) -> Markup:
    """Return a stacked area: for each number the amount of each part, with marks across it and a limit.

    `written` writes an amount on the axis.
    """
    if not points:
        return Markup("")
    most = max(sum(point[name] for name in parts) for point in points) or 1.0
    near = 0 < limit <= 1.6 * most  # a limit far above the rest would flatten it
    top: float = max(most, limit if near else 0)
    ticks = _ticks(top)
    top = max(top, ticks[-1])
    first, last = numbers[0], max(numbers[-1], numbers[0] + 1)

    def across(number: float) -> float:
        return _LEFT + (number - first) / (last - first) * (WIDTH - _LEFT - _RIGHT)

    def up(tokens: float) -> float:
        return height - _BOTTOM - tokens / top * (height - _TOP - _BOTTOM)

    drawn = [_grid(written(tick), up(tick)) for tick in ticks]
    base = [0.0] * len(points)
    for name in parts:
        above = [low + point[name] for low, point in zip(base, points, strict=True)]
        if above != base:
            edge = [f"{across(n):.1f},{up(t):.1f}" for n, t in zip(numbers, above, strict=True)]
            back = [f"{across(n):.1f},{up(t):.1f}" for n, t in zip(numbers, base, strict=True)][::-1]
            drawn.append(f'<polygon class="{prefix}-{name}" points="{" ".join(edge + back)}"/>')
        base = above
    if near:
        drawn.append(
            f'<line class="limit" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{up(limit):.1f}" y2="{up(limit):.1f}"/>'
        )
        drawn.append(f'<text class="axis" x="{_LEFT + 6}" y="{up(limit) - 4:.1f}">context length {short(limit)}</text>')
    for mark in marks:
        x = across(mark.at)
        line = (
            f'<line class="fold-mark" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 6}" y2="{height - _BOTTOM}"/>'
            f'<circle class="fold-dot" cx="{x:.1f}" cy="{_TOP - 6}" r="5"/><title>{escape(mark.label)}</title>'
        )
        link = f'<a href="{escape(mark.href)}" aria-label="{escape(mark.label)}">{line}</a>'
        drawn.append(link if mark.href else f"<g>{line}</g>")
    for number in _places(first, last):
        anchor = "start" if number == first else "end" if number == last else "middle"
        drawn.append(
            f'<text class="axis" x="{across(number):.1f}" y="{height - 8}" text-anchor="{anchor}">#{number}</text>'
        )
    return _svg(drawn, height, label, "chart", role="group")


def _places(first: int, last: int) -> list[int]:
    return sorted({first, last, *(first + (last - first) * step // 4 for step in (1, 2, 3))})


def _grid(told: str, y: float) -> str:
    line = f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
    return f'{line}<text class="axis" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{told}</text>'


def _ticks(top: float) -> list[float]:
    """Return round numbers from 0 up to the first that is not below the top."""
    rough = top / _TICKS
    size = 10.0 ** floor(log10(rough))
    step = next(size * one for one in _STEPS if size * one >= rough)
    return [step * number for number in range(ceil(top / step) + 1)]


def _svg(
    drawn: Sequence[str], height: float, label: str, kind: str, *, stretch: bool = False, role: str = "img"
) -> Markup:
    fit = ' preserveAspectRatio="none"' if stretch else ""
    return Markup(  # noqa: S704 - every text in it is escaped above
        f'<svg class="{kind}" viewBox="0 0 {WIDTH} {height:.0f}"{fit} role="{role}" aria-label="{escape(label)}">'
        f"{''.join(drawn)}</svg>"
    )
