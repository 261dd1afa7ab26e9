"""Gates: conditions on the figures of a replay, for a build that must not get worse.

    lost=0, cost<=1.1*mask, by_cue>=0.9*asked, needed.in_context>=0.8, lcm:cache_hit_share>0.9

A condition holds for every engine that is no baseline, or for the one that it names. A figure that nothing was measured
for fails it.
"""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from leporello.errors import GateError
from leporello.proof.baselines import ENGINES
from leporello.proof.figures import engine_figures
from leporello.proof.replay import RECORDED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_OPERATORS: Final[dict[str, Callable[[float, float], bool]]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "=": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}
_SHORT: Final = {
    "cost": "cost_usd",
    "lost": "probes.lost",
    "retained": "probes.retained",
    "asked": "probes.asked",
    "by_cue": "probes.by_cue",
    "by_value": "probes.by_value",
    "present": "needed.present",
    "in_context": "needed.in_context",
    "together": "needed.together",
    "cache": "cache_hit_share",
    "pause": "longest_pause_ms",
}
_CONDITION = re.compile(
    r"(?:(?P<engine>[\w.+-]+):)?(?P<figure>[a-z_.]+)\s*(?P<sign><=|>=|==|=|<|>)\s*"
    r"(?:(?P<number>\d+(?:\.\d+)?)(?:\s*\*\s*(?P<factor_of>[\w.+-]+))?|(?P<other>[A-Za-z][\w.+-]*))"
)
_OPEN = ("probes.kinds.", "needed.kinds.", "needed.beside.")
"""Figures by kinds and baselines, which depend on the conversations."""

_EXAMPLE = 'Write conditions such as "lost=0,cost<=1.1*mask,needed.in_context>=0.8".'


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One condition: a figure, a comparison, and a number, or a multiple of another figure.

    The other is the same figure of another engine, or another figure of the same engine.
    """

    text: str
    figure: str
    sign: str
    number: float
    engine: str = ""
    other: str = ""

    def failures(self, engines: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Return why the condition does not hold, one sentence for each engine."""
        if self.engine and self.engine not in engines:
            return [f"{self.text}: there is no engine {self.engine!r} in this replay"]
        chosen = [self.engine] if self.engine else [name for name in engines if name not in {*ENGINES, RECORDED}]
        if not chosen:
            return [f"{self.text}: there is no engine to check, only baselines"]
        return [told for name in chosen if (told := self._failure(name, engines))]

    def _failure(self, name: str, engines: Mapping[str, Mapping[str, Any]]) -> str:
        measured = _figure(engines[name], self.figure)
        if measured is None:
            return f"{self.text}: {name} has no {self.figure}"
        limit = self.number
        if self.other:
            whose, figure = (self.other, self.figure) if self.other in engines else (name, self.other_figure)
            beside = _figure(engines[whose], figure)
            if beside is None:
                return f"{self.text}: {whose} has no {figure}"
            limit *= beside
        if _OPERATORS[self.sign](measured, limit):
            return ""
        return f"{self.text}: {name} has {self.figure} {measured:g}, the limit is {limit:g}"

    @property
    def other_figure(self) -> str:
        """The other figure by its whole name, where it is one."""
        return _SHORT.get(self.other, self.other)


def parse(text: str, engines: Iterable[str] | None = None) -> list[Condition]:
    """Read conditions, separated by commas; with the names of the engines also what they speak of is checked."""
    found = [_condition(part.strip()) for part in text.split(",") if part.strip()] or _refuse(text)
    if engines is not None:
        _check(found, set(engines))
    return found


def _check(conditions: Iterable[Condition], engines: set[str]) -> None:
    """Refuse figures and engines that a replay of these engines cannot have."""
    for one in conditions:
        if one.engine and one.engine not in engines:
            raise GateError(f"{one.text!r}: there is no engine {one.engine!r} in this replay.")
        if not one.engine and not engines - {*ENGINES, RECORDED}:
            raise GateError(
                f"{one.text!r}: there is no engine to check, only baselines; name one, as in mask:{one.text}."
            )
        if one.figure.startswith("probes.") and not one.other and one.number % 1:
            raise GateError(f"{one.text!r}: {one.figure} is a number of probes; compare it as in by_cue>=0.9*asked.")
        for figure in (one.figure, *([one.other_figure] if one.other and one.other not in engines else [])):
            if not figure.startswith(_OPEN):
                _figure(_NOTHING, figure)


def _condition(text: str) -> Condition:
    found = _CONDITION.fullmatch(text)
    if not found:
        _refuse(text)
    assert found is not None  # noqa: S101 - refused above
    return Condition(
        text=text,
        figure=_SHORT.get(found["figure"], found["figure"]),
        sign=found["sign"],
        number=float(found["number"] or 1),
        engine=found["engine"] or "",
        other=found["factor_of"] or found["other"] or "",
    )


def _refuse(text: str) -> Any:
    raise GateError(f"{text!r} is no condition. {_EXAMPLE}")


def _figure(figures: Mapping[str, Any], name: str) -> float | None:
    """Return the figure of a dotted name, None where nothing was measured; GateError for a name that no figure has."""
    value: Any = figures
    for part in name.split("."):
        if not isinstance(value, dict) or part not in value:
            if name.startswith(_OPEN):
                return None
            raise GateError(f"there is no figure or engine {name!r}. {_EXAMPLE}")
        value = value[part]
    if value is not None and not isinstance(value, (int, float)):
        raise GateError(f"{name!r} is not a number. {_EXAMPLE}")
    return None if name.startswith("probes.") and not figures["probes"]["n"] else value


_NOTHING: Final = engine_figures(())
"""The figures of a replay of nothing: every name that a gate may speak of."""
