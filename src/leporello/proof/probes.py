"""Probes: what a conversation said, asked for again at its end.

Each is retained (it stands in the window), or found with at most two calls of the engine's own tools, really made, or
lost. A probe is asked for in two ways that are reported apart: by cue, with words that stood around it and none of its
own; and by value.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from leporello.messages import leading_systems, role_of, text_of
from leporello.plugins import dispatch
from leporello.proof.exact_values import values_in, whole_words
from leporello.proof.lines import Units, units_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from leporello.engine import ContextEngine
    from leporello.messages import Message

Kind: TypeAlias = Literal["value", "decision", "rule", "request"]
Outcome: TypeAlias = Literal["retained", "by_cue", "by_value", "lost"]

_MOST: Final[dict[Kind, int]] = {"value": 40, "decision": 10, "rule": 10, "request": 1}
_RARE = 3  # in how many lines or calls a value may stand to be a fact of its own
_MOST_OPENED = 20_000  # tokens
_CUE_WORDS, _FEWEST_WORDS = 8, 2
_NEAR = 3  # lines on either side that lend a cue their words
_PART = re.compile(r"[^\W_]{3,}")  # of a value: a word with it tells too much
_LONGEST_SENTENCE, _SHORTEST_SENTENCE = 240, 20
_BETWEEN_SENTENCES = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
_RULE = re.compile(
    r"\b(?:must(?: not)?|never|always|do not|don'?t|make sure|only use|avoid|required|prefer)\b|必须|不要|总是|禁止",
    re.IGNORECASE,
)
_DECISION = re.compile(
    r"\b(?:decided|decision|instead of|rather than|let'?s use|i'?ll use|we'?ll use|going with|switched to|i chose)\b"
    r"|决定|改用|采用",
    re.IGNORECASE,
)
_SEARCHES = re.compile(r"grep|search|find|recall", re.IGNORECASE)
_OPENS = re.compile(r"expand|fetch|read|get|load|open", re.IGNORECASE)
_QUERY = ("query", "pattern", "q", "text", "search")
_ID = ("id", "node_id", "message_id", "ref", "handle")
_ECHO = frozenset({*_QUERY, "question", "error"})


@dataclass(frozen=True, kw_only=True)
class Probe:
    """Something that was said, and where; `cue` are words that stood around it."""

    kind: Kind
    text: str
    cue: str
    at: int


@dataclass(frozen=True, kw_only=True)
class Probed:
    """A probe and what came of it: in the window, found by its cue, found by its own words."""

    probe: Probe
    retained: bool
    by_cue: bool = False
    by_value: bool = False

    @property
    def outcome(self) -> Outcome:
        """The best that holds."""
        if self.retained:
            return "retained"
        return "by_cue" if self.by_cue else "by_value" if self.by_value else "lost"


def probes_of(messages: Sequence[Message]) -> list[Probe]:
    """Return the probes of a conversation, spread evenly over it; they follow from it alone."""
    spots = list(_spots(messages))
    frequency = Counter(word for spot in spots for word in spot.words)
    found = [*_values(spots, frequency), *_sentences(messages, spots, frequency)]
    newest = max((at for at, message in enumerate(messages) if role_of(message) == "user"), default=-1)
    if newest >= 0 and text_of(messages[newest]).strip():
        found.append(Probe(kind="request", text=text_of(messages[newest]).strip(), cue="", at=newest))
    return found


def ask_all(probes: Iterable[Probe], engine: ContextEngine, window: list[Message], upto: int) -> list[Probed]:
    """Ask for each probe: in the window, then with the engine's tools."""
    units = Units.of(window)
    whole = _normal("\n".join(units.units))
    tools = _Tools.of(engine, window)
    return [_asked(probe, units, whole, tools) for probe in probes if probe.at < upto]


def _asked(probe: Probe, units: Units, window: str, tools: _Tools) -> Probed:
    retained = probe.text in units if probe.kind == "value" else _normal(probe.text) in window
    if retained or probe.kind == "request":
        return Probed(probe=probe, retained=retained)
    return Probed(
        probe=probe,
        retained=False,
        by_cue=bool(probe.cue) and tools.find(probe.cue, probe),
        by_value=tools.find(probe.text, probe),
    )


@dataclass(frozen=True, kw_only=True)
class _Spot:
    """A line or call, where it stands, and its content words."""

    at: int
    text: str
    words: frozenset[str]


def _spots(messages: Sequence[Message]) -> Iterator[_Spot]:
    for at in range(leading_systems(messages), len(messages)):
        for unit in units_of(messages[at]):
            short = unit if len(unit) <= _LONGEST_SPOT else unit[:_LONGEST_SPOT].rsplit(maxsplit=1)[0]
            yield _Spot(at=at, text=short, words=frozenset(whole_words(short)))


_LONGEST_SPOT = 4_000


def _values(spots: Sequence[_Spot], frequency: Counter[str]) -> list[Probe]:
    """Return rare values with a cue, evenly spread."""
    first: dict[str, int] = {}
    count: Counter[str] = Counter()
    for number, spot in enumerate(spots):
        for value in dict.fromkeys(value for value, _ in values_in(spot.text)):
            first.setdefault(value, number)
            count[value] += 1
    rare = [(value, number) for value, number in first.items() if count[value] <= _RARE]
    found = []
    for value, number in _spread(rare, 4 * _MOST["value"]):
        cue = _cue(value, _near(spots, number, alone=True), frequency)
        if cue:
            found.append(Probe(kind="value", text=value, cue=cue, at=spots[number].at))
    return _spread(found, _MOST["value"])


def _sentences(messages: Sequence[Message], spots: Sequence[_Spot], frequency: Counter[str]) -> list[Probe]:
    """Return the rules of the user, and the decisions of user and assistant, with a cue from what stood around them."""
    lines: dict[int, list[int]] = {}
    for number, spot in enumerate(spots):
        lines.setdefault(spot.at, []).append(number)
    found: dict[Kind, list[Probe]] = {"rule": [], "decision": []}
    for at, message in enumerate(messages):
        role = role_of(message)
        if role not in ("user", "assistant"):
            continue
        for sentence in map(str.strip, _BETWEEN_SENTENCES.split(text_of(message))):
            kind = _sentence_kind(role, sentence)
            if kind:
                held = next((number for number in lines.get(at, ()) if sentence in spots[number].text), None)
                tried = () if held is None else (_near(spots, held, alone=alone) for alone in (True, False))
                cue = next(filter(None, (_cue(sentence, near, frequency) for near in tried)), "")
                found[kind].append(Probe(kind=kind, text=sentence, cue=cue, at=at))
    return [probe for kind, probes in found.items() for probe in _spread(probes, _MOST[kind])]


def _sentence_kind(role: str, sentence: str) -> Kind | None:
    if not _SHORTEST_SENTENCE <= len(sentence) <= _LONGEST_SENTENCE:
        return None
    if role == "user" and _RULE.search(sentence):
        return "rule"
    return "decision" if _DECISION.search(sentence) else None


def _near(spots: Sequence[_Spot], number: int, *, alone: bool) -> list[_Spot]:
    """Return a line or call and those around it, the nearest first; with `alone` only those of the same message."""
    around = range(max(0, number - _NEAR), min(len(spots), number + _NEAR + 1))
    near = [spots[beside] for beside in sorted(around, key=lambda beside: abs(beside - number))]
    return [spot for spot in near if not alone or spot.at == spots[number].at]


def _cue(value: str, spots: Iterable[_Spot], frequency: Counter[str]) -> str:
    """Return the rarest words of each spot in turn that share nothing with a value; "" when there are too few."""
    own, parts = value.lower(), [part.lower() for part in _PART.findall(value)]
    found: dict[str, None] = {}
    for spot in spots:
        words = whole_words(spot.text.replace(value, " "))
        apart = {word for word in words if word not in own and not any(part in word for part in parts)}
        found |= dict.fromkeys(sorted(apart, key=lambda word: (frequency[word], word)))
    return " ".join(list(found)[:_CUE_WORDS]) if len(found) >= _FEWEST_WORDS else ""


def _spread(items: Sequence[Any], most: int) -> list[Any]:
    """Return at most `most` items, evenly spread."""
    if len(items) <= most:
        return list(items)
    return [items[index * len(items) // most] for index in range(most)]


@dataclass(frozen=True, kw_only=True)
class _Tools:
    """The tools by which an engine finds something again: one that searches, one that opens a hit."""

    engine: ContextEngine
    window: list[Message]
    search: tuple[str, str] | None = None
    open: tuple[str, str] | None = None
    budget: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, engine: ContextEngine, window: list[Message]) -> _Tools:
        schemas = [_bare(schema) for schema in engine.get_tool_schemas()]
        opens = _tool(schemas, _OPENS, _ID)
        return cls(
            engine=engine,
            window=window,
            search=_tool(schemas, _SEARCHES, _QUERY),
            open=opens,
            budget=_budget(schemas, opens[0]) if opens else {},
        )

    def find(self, query: str, probe: Probe) -> bool:
        """Search, then open the best hit: at most two calls."""
        if self.search is None:
            return False
        answer = self._call(*self.search, query)
        if _says(answer, probe):
            return True
        hit = _first_id(answer)
        return self.open is not None and bool(hit) and _says(self._call(*self.open, hit, self.budget), probe)

    def _call(self, name: str, parameter: str, value: str, options: dict[str, int] | None = None) -> Any:
        text = dispatch(self.engine, name, {parameter: value, **(options or {})}, self.window)
        try:
            return json.loads(text)
        except ValueError:
            return text.replace(value, " ") if parameter in _ECHO else text


def _bare(schema: dict[str, Any]) -> dict[str, Any]:
    inner = schema.get("function")
    return inner if isinstance(inner, dict) else schema


def _taken(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters that a tool takes."""
    parameters = schema.get("parameters") or schema.get("input_schema") or {}
    properties = parameters.get("properties") if isinstance(parameters, dict) else None
    return properties if isinstance(properties, dict) else {}


def _budget(schemas: Iterable[dict[str, Any]], name: str) -> dict[str, int]:
    """Return the largest budget that a tool which opens a hit takes, up to a bound."""
    taken = next((_taken(schema) for schema in schemas if schema.get("name") == name), {})
    return (
        {"max_tokens": min(int(taken["max_tokens"].get("maximum", _MOST_OPENED)), _MOST_OPENED)}
        if "max_tokens" in taken
        else {}
    )


def _tool(
    schemas: Iterable[dict[str, Any]], named: re.Pattern[str], parameters: Sequence[str]
) -> tuple[str, str] | None:
    """Return the first tool of such a name that takes one of the parameters, and that parameter."""
    for schema in schemas:
        name = str(schema.get("name") or "")
        parameter = next((one for one in parameters if one in _taken(schema)), None)
        if named.search(name) and parameter:
            return name, parameter
    return None


def _says(answer: Any, probe: Probe) -> bool:
    """Tell whether an answer holds what was asked for; where it repeats the question does not count."""
    said = list(_leaves(answer))
    if probe.kind == "value":
        return probe.text in Units(said)
    return _normal(probe.text) in _normal("\n".join(said))


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            if key not in _ECHO or not isinstance(item, str) or key == "text":
                yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, str):
        yield value


def _first_id(answer: Any) -> str:
    if isinstance(answer, dict):
        for key in _ID:
            if isinstance(answer.get(key), (str, int)):
                return str(answer[key])
        return next((found for item in answer.values() if (found := _first_id(item))), "")
    if isinstance(answer, list):
        return next((found for item in answer if (found := _first_id(item))), "")
    return ""


def _normal(text: str) -> str:
    return " ".join(text.lower().split())
