"""The report of a replay: one page that needs nothing else, with the same figures as JSON in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment

from leporello.proof import charts
from leporello.proof.baselines import ENGINES

if TYPE_CHECKING:
    from leporello.proof.figures import Figures
    from leporello.proof.replay import Run

_MOST_POINTS = 600
_MEASURES = ("present", "in_context", "together")
PAID: Final[dict[str, tuple[str, ...]]] = {
    "read": ("cache read",),
    "written": ("cache write, 5 minutes", "cache write, 1 hour"),
    "input": ("input",),
    "output": ("output",),
    "compactions": ("compactions",),
}
_OUTCOMES = ("retained", "by_cue", "by_value", "lost")
_TEMPLATE = Path(__file__).with_name("report.html")


def page(figures: Figures) -> str:
    """Return the page."""
    told = figures.as_dict()
    engines: dict[str, Any] = told["engines"]
    template = Environment(autoescape=True).from_string(_TEMPLATE.read_text("utf-8"))
    return template.render(
        told=told,
        engines=engines,
        baselines=set(ENGINES),
        shown=figures.longest[0].session if figures.longest else "",
        window_chart=_window(figures),
        window_names=[run.engine for run in figures.longest if run.points],
        cost_chart=_costs(engines),
        needed_chart=_needed(engines),
        probe_charts=_probes(engines),
        data=json.dumps(told, ensure_ascii=False).replace("</", "<\\/"),
        short=charts.short,
        colours=charts.COLOURS,
    )


def _window(figures: Figures) -> str:
    series = [charts.Line(name=run.engine, points=_thinned(run), marks=_folds(run)) for run in figures.longest]
    return charts.lines(series, x_label="messages", y_label="tokens in the request", limit=figures.window)


def _thinned(run: Run) -> list[tuple[float, float]]:
    step = max(1, len(run.points) // _MOST_POINTS)
    return [(point.at, point.tokens) for at, point in enumerate(run.points) if at % step == 0 or point.folded]


def _folds(run: Run) -> list[tuple[float, float]]:
    return [(point.at, point.tokens) for point in run.points if point.folded]


def _costs(engines: dict[str, Any]) -> str:
    """Return the chart of dollars, each bar by what was paid for."""
    driven = {name: one for name, one in engines.items() if one["requests"]}
    rows = [
        (name, [(mark, sum(one["dollars"].get(kind, 0.0) for kind in kinds)) for mark, kinds in PAID.items()])
        for name, one in driven.items()
    ]
    most = max((one["cost_usd"] or 0 for one in driven.values()), default=0)
    return charts.stacks(rows, label="cost by engine", most=most, tell=lambda name, _: _price_told(name, engines))


def _price_told(name: str, engines: dict[str, Any]) -> str:
    """Write the dollars of an engine, and how they compare with no management."""
    one, none = engines[name], engines.get("none", {}).get("cost_usd")
    if one["cost_usd"] is None:
        return "price not known"
    beside = "" if name == "none" or not none else f" = {one['cost_usd'] / none:.2f} × none"
    return f"${one['cost_usd']:,.2f}{' (does not fit)' if one['overflows'] else beside}"


def _needed(engines: dict[str, Any]) -> str:
    rows = []
    for name, one in engines.items():
        needed, beside = one["needed"], one["needed"]["beside"].get("mask", {})
        bars = []
        for measure in _MEASURES:
            value, interval = needed[measure], needed["intervals"][measure] or (None, None)
            told = f"{measure.replace('_', ' ')} {'–' if value is None else f'{value:.2f}'}"
            bars.append(
                charts.Bar(value=value, told=told, low=interval[0], high=interval[1], beside=beside.get(measure))
            )
        if needed["cuts"]:
            rows.append(charts.ChartRow(name=f"{name}, {charts.short(needed['tokens'])}", bars=bars))
    return charts.bars(rows, most=1.0, label="needed later, by engine") if rows else ""


def _probes(engines: dict[str, Any]) -> list[tuple[str, str]]:
    """Return a chart for every kind of probe."""
    kinds = dict.fromkeys(kind for one in engines.values() for kind in one["probes"]["kinds"])
    found = []
    for kind in kinds:
        rows = [(name, _parts(one["probes"]["kinds"][kind])) for name, one in engines.items() if one["probes"]["n"]]
        found.append((kind, charts.stacks(rows, label=f"probes: {kind}")))
    return found


def _parts(outcomes: dict[str, int]) -> list[tuple[str, float]]:
    """Return the best outcome of each probe, counted."""
    found = outcomes["asked"] - outcomes["lost"]
    cue = outcomes["by_cue"]
    return list(zip(_OUTCOMES, (outcomes["retained"], cue, found - cue, outcomes["lost"]), strict=True))
