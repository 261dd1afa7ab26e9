"""Needed later: of what was said before a cut, the exact values that the assistant writes before it sees them again.

What is needed follows from the transcript alone, so it is the same for every policy. A policy's window at the cut is
then asked three things about it:

present     does the value stand in it;
in context  does it stand in a line or call with something that stood in a line or call with it before: two content
            words, a file, or a command;
together    of two needed values that stood in one line or call before, and that the assistant uses in one again: do
            they still stand in one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

from leporello.messages import leading_systems, role_of
from leporello.proof.exact_values import KINDS, Kind, content_words, error_texts, files_in, values_in
from leporello.proof.lines import Units, commands_in, units_of, written_units
from leporello.tokens import count_message

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leporello.messages import Message

REACH = 80
"""How many messages behind a cut are looked at."""

_REACH_IN_UNIT = 2_000  # characters around a value that count, in a line or call that is longer
_ENOUGH_WORDS = 2


class Need(NamedTuple):
    """A value that is needed, its kind, and what stood with it."""

    value: str
    kind: Kind
    words: frozenset[str]
    files: frozenset[str]
    commands: frozenset[str]
    enough: int
    """How many of the words make a context: two, or as many as ever stood with the value in one line or call."""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """How many needed values, or pairs of them, there are, and how many a window holds."""

    n: int = 0
    present: int = 0
    in_context: int = 0
    pairs: int = 0
    together: int = 0

    def __add__(self, other: Kept) -> Kept:
        return Kept(
            n=self.n + other.n,
            present=self.present + other.present,
            in_context=self.in_context + other.in_context,
            pairs=self.pairs + other.pairs,
            together=self.together + other.together,
        )


@dataclass(frozen=True, kw_only=True)
class Score:
    """What a window holds of what is needed, altogether and by kind; `missing` names what it does not hold."""

    all: Kept = field(default_factory=Kept)
    kinds: dict[Kind, Kept] = field(default_factory=dict)
    missing: tuple[str, ...] = ()


def cuts_by_growth(messages: Sequence[Message], window: int) -> list[int]:
    """Return the places at which a conversation is looked at turn by turn: they follow from it alone.

    The first is the answer before which the history fills half of the window, where most policies begin to fold; then
    one wherever it has grown by half a window more.
    """
    cuts: list[int] = []
    tokens, due = 0, window / 2
    for at, message in enumerate(messages):
        if role_of(message) == "assistant" and tokens >= due:
            cuts.append(at)
            due = tokens + window / 2
        tokens += count_message(message)
    return cuts


def in_context(values: Iterable[str], said: Sequence[Message], window: Iterable[Message]) -> list[str]:
    """Return the values that stand in a window beside something that stood beside them when they were said."""
    past, units, commands = Units.of(said), Units.of(window), commands_in(said)
    return [value for value in values if _stands_in_context(units, _need(past, value, "path", commands))]


class Cut:
    """A place in a conversation, and what is needed behind it of what was said before it."""

    def __init__(self, messages: Sequence[Message], at: int, reach: int = REACH) -> None:
        self.at = at
        self._before = messages[:at]
        self._after = messages[at : at + reach]

    @cached_property
    def needs(self) -> list[Need]:
        """The needed values, in the order in which they are written."""
        prompt = leading_systems(self._before)
        past, constant = Units.of(self._before[prompt:]), Units.of(self._before[:prompt])
        errors = set(error_texts("\n".join(past.units)))
        commands = commands_in(self._before)
        shown: list[str] = []
        decided: set[str] = set()
        needs: list[Need] = []
        for message in self._after:
            if role_of(message) != "assistant":
                shown += units_of(message)
                continue
            seen = Units(shown)
            for value, kind in _written(message, errors):
                if value in decided:
                    continue
                decided.add(value)
                if value in past and value not in seen and value not in constant:
                    needs.append(_need(past, value, kind, commands))
        return needs

    @cached_property
    def pairs(self) -> list[tuple[str, str]]:
        """The pairs of needed values that stood in one line or call and are used in one again."""
        values = [need.value for need in self.needs]
        used = _pairs_in(Units(unit for message in self._after for unit in written_units(message)), values)
        past = _pairs_in(Units.of(self._before), values)
        return sorted(used & past)

    def score(self, window: Iterable[Message]) -> Score:
        """Tell how much of what is needed a window holds."""
        units = Units.of(window)
        n, present, in_context = Counter[Kind](), Counter[Kind](), Counter[Kind]()
        missing = []
        for need in self.needs:
            n[need.kind] += 1
            is_there = need.value in units
            present[need.kind] += is_there
            in_context[need.kind] += is_there and _stands_in_context(units, need)
            if not is_there:
                missing.append(need.value)
        together = len(_pairs_in(units, [need.value for need in self.needs]) & set(self.pairs))
        kinds = {kind: Kept(n=n[kind], present=present[kind], in_context=in_context[kind]) for kind in KINDS if n[kind]}
        whole = Kept(
            n=n.total(),
            present=present.total(),
            in_context=in_context.total(),
            pairs=len(self.pairs),
            together=together,
        )
        return Score(all=whole, kinds=kinds, missing=tuple(missing))


def _written(message: Message, errors: set[str]) -> list[tuple[str, Kind]]:
    """Return the values that an answer writes: those of its text and calls, and error messages that it repeats."""
    text = "\n".join(units_of(message))
    found: list[tuple[str, Kind]] = [(value, kind) for value, kind in values_in(text)]
    return found + [(said, "error") for said in errors if said in text]


def _need(past: Units, value: str, kind: Kind, commands: set[str]) -> Need:
    words: set[str] = set()
    files: set[str] = set()
    run: set[str] = set()
    most = 0
    for place in past.holding(value):
        beside = _beside(past.units[place], value)
        found = content_words(beside)
        most = max(most, len(found))
        words |= found
        files |= files_in(beside)
        run |= {command for command in commands if command in beside and command not in value}
    enough = min(_ENOUGH_WORDS, most)
    return Need(value, kind, frozenset(words), frozenset(files), frozenset(run), enough)


def _beside(unit: str, value: str) -> str:
    """Return what stands beside a value in a line or call, without the value."""
    if len(unit) > _REACH_IN_UNIT:
        at = unit.find(value)
        unit = unit[max(0, at - _REACH_IN_UNIT // 2) : at + len(value) + _REACH_IN_UNIT // 2]
    return unit.replace(value, " ")


def _stands_in_context(units: Units, need: Need) -> bool:
    return any(_is_context(units.units[place], need) for place in units.holding(need.value))


def _is_context(unit: str, need: Need) -> bool:
    beside = _beside(unit, need.value)
    if len(content_words(beside) & need.words) >= need.enough:
        return True
    return any(command in beside for command in need.commands) or not need.files.isdisjoint(files_in(beside))


def _pairs_in(units: Units, values: Sequence[str]) -> set[tuple[str, str]]:
    """Return the pairs of values that stand in one unit."""
    inside: dict[int, list[str]] = {}
    for value in sorted(values):
        for place in units.holding(value):
            inside.setdefault(place, []).append(value)
    return {
        (one, other)
        for found in inside.values()
        for one, other in combinations(found, 2)
        if one not in other and other not in one
    }
