"""Charts as SVG text: nothing is loaded, and colours follow the page."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WIDTH, HEIGHT = 860, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 14, 14, 40
_ROW, _GAP, _LABEL, _TOLD = 26, 8, 150, 150
_ROUND: Final = (1, 2, 2.5, 5, 10)
_TICKS = 4
COLOURS: Final = 8
"""How many the page has for lines; further lines begin with the first again, dashed."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line over time, with the places that are marked on it."""

    name: str
    points: Sequence[tuple[float, float]]
    marks: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A value from 0 on, the interval around it, and a value to hold against it."""

    value: float | None
    told: str
    low: float | None = None
    high: float | None = None
    beside: float | None = None


@dataclass(frozen=True, kw_only=True)
class ChartRow:
    """A row of a bar chart: its name, and a bar for each series."""

    name: str
    bars: Sequence[Bar] = field(default_factory=tuple)


def lines(series: Sequence[Line], *, x_label: str, y_label: str, limit: float | None = None) -> str:
    """Return a chart of lines; `limit` is drawn across it."""
    right = max((x for line in series for x, _ in line.points), default=1) or 1
    top = max([y for line in series for _, y in line.points], default=1) or 1
    ticks = _ticks(top)
    top = max(top, ticks[-1])

    def place(x: float, y: float) -> tuple[float, float]:
        across = _LEFT + x / right * (WIDTH - _LEFT - _RIGHT)
        return across, HEIGHT - _BOTTOM - y / top * (HEIGHT - _TOP - _BOTTOM)

    drawn = [_grid(tick, place(0, tick)[1]) for tick in ticks]
    if limit is not None and limit <= top:
        height = place(0, limit)[1]
        drawn.append(f'<line class="limit" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{height:.1f}" y2="{height:.1f}"/>')
        drawn.append(f'<text class="small" x="{_LEFT + 6}" y="{height - 5:.1f}">context length</text>')
    for number, line in enumerate(series):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in line.points))
        title = f"<title>{escape(line.name)}</title>"
        colour, dashed = f"s{number % COLOURS}", " again" * (number >= COLOURS)
        drawn.append(f'<polyline class="line {colour}{dashed}" points="{path}">{title}</polyline>')
        for mark in line.marks:
            x, y = place(*mark)
            told = f"<title>{escape(line.name)}: folded before message {mark[0]:,.0f}</title>"
            drawn.append(f'<circle class="dot {colour}" cx="{x:.1f}" cy="{y:.1f}" r="3.5">{told}</circle>')
    drawn += [
        f'<text class="small" x="{WIDTH - _RIGHT}" y="{HEIGHT - 8}" text-anchor="end">{escape(x_label)}</text>',
        f'<text class="small" x="{_LEFT}" y="{HEIGHT - 8}">{escape(y_label)}</text>',
    ]
    return _svg(drawn, HEIGHT, f"{y_label} over {x_label}")


def bars(rows: Sequence[ChartRow], *, most: float, label: str) -> str:
    """Return a chart of bars, those of a row under each other; a tick shows what they are held against."""
    drawn: list[str] = []
    y = float(_GAP)
    span = WIDTH - _LABEL - _TOLD
    for row in rows:
        drawn.append(f'<text x="{_LABEL - 10}" y="{y + _ROW / 2 + 4:.1f}" text-anchor="end">{escape(row.name)}</text>')
        for number, bar in enumerate(row.bars):
            drawn += _bar(bar, number, y, span, most)
            y += _ROW
        y += _GAP
    return _svg(drawn, y, label)


def stacks(
    rows: Sequence[tuple[str, Sequence[tuple[str, float]]]],
    *,
    label: str,
    most: float | None = None,
    tell: Callable[[str, float], str] = lambda _, whole: f"{whole:,.0f}",
) -> str:
    """Return a chart of stacked bars, each as long as the whole; with `most` each by its length. `tell` ends a row."""
    drawn: list[str] = []
    y = float(_GAP)
    span = WIDTH - _LABEL - _TOLD
    for name, parts in rows:
        whole = sum(count for _, count in parts)
        drawn.append(f'<text x="{_LABEL - 10}" y="{y + _ROW / 2 + 4:.1f}" text-anchor="end">{escape(name)}</text>')
        x = float(_LABEL)
        for part, count in parts:
            wide = count / ((whole if most is None else most) or 1) * span
            told = f"{count:,}" if isinstance(count, int) else f"${count:,.4f}"
            title = f"<title>{escape(name)}: {told} {escape(part.replace('_', ' '))}</title>"
            box = f'x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{_ROW - 6}"'
            drawn.append(f'<rect class="{escape(part)}" {box}>{title}</rect>')
            x += wide
        said = escape(tell(name, whole))
        drawn.append(f'<text class="small" x="{x + 8:.1f}" y="{y + _ROW / 2 + 2:.1f}">{said}</text>')
        y += _ROW + _GAP
    return _svg(drawn, y, label)


def _bar(bar: Bar, number: int, y: float, span: float, most: float) -> list[str]:
    middle = y + (_ROW - 6) / 2
    if bar.value is None:
        return [f'<text class="small" x="{_LABEL}" y="{middle + 4:.1f}">{escape(bar.told)}</text>']

    def at(value: float) -> float:
        return _LABEL + min(1.0, value / most) * span if most else float(_LABEL)

    wide = at(bar.value) - _LABEL
    box = f'x="{_LABEL}" y="{y:.1f}" width="{wide:.1f}" height="{_ROW - 6}"'
    drawn = [f'<rect class="bar b{number}" {box}><title>{escape(bar.told)}</title></rect>']
    if bar.low is not None and bar.high is not None:
        ends = f'x1="{at(bar.low):.1f}" x2="{at(bar.high):.1f}"'
        drawn.append(f'<line class="interval" {ends} y1="{middle:.1f}" y2="{middle:.1f}"/>')
    if bar.beside is not None:
        x = at(bar.beside)
        drawn.append(f'<line class="beside" x1="{x:.1f}" x2="{x:.1f}" y1="{y - 2:.1f}" y2="{y + _ROW - 4:.1f}"/>')
    end = max(at(value) for value in (bar.value, bar.high or 0, bar.beside or 0))
    drawn.append(f'<text class="small" x="{end + 8:.1f}" y="{middle + 4:.1f}">{escape(bar.told)}</text>')
    return drawn


def _grid(tick: float, y: float) -> str:
    line = f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
    return f'{line}<text class="small" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{short(tick)}</text>'


def _ticks(top: float) -> list[float]:
    """Return round numbers from 0 up to the first that is not below the top."""
    rough = top / _TICKS
    size = 10 ** (len(str(int(rough))) - 1) if rough >= 1 else 1
    step = next(size * one for one in _ROUND if size * one >= rough)
    return [step * number for number in range(int(top // step) + 2)]


def short(number: float) -> str:
    """Write a number briefly: 12K, 1.5M."""
    for size, unit in ((1_000_000, "M"), (1_000, "K")):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:g}"


def _svg(drawn: Sequence[str], height: float, label: str) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(label)}">{"".join(drawn)}</svg>'
