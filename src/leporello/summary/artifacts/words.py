"""Paths and exact values in the words of a text."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from leporello.summary.artifacts import files
from leporello.summary.artifacts.model import LIMITS, ValueTrace
from leporello.summary.artifacts.tally import FileTally, Tallies, ValueTally
from leporello.summary.artifacts.values import MAY_HOLD_VALUE, named, spoken_numbers, values_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leporello.messages.types import ToolCall

SPOKEN, HANDED_OVER, OUTPUT = 2, 1, 0
_FILE = "file "
_COUNTING_LENGTH = 1_500
# Looking for a name in a very long text costs; a few hundred times is enough for what a summary can show.
_LONG_HOME, _FAR_LOOKS = 50_000, 300


class Passage(NamedTuple):
    """A text of the message at an index, how much weight its values have, and the call that it answers."""

    at: int
    rank: int
    role: str
    text: str
    answers: tuple[int, ToolCall] | None = None


class Words:
    """What the words of a conversation hold. Every word is looked at once; one that was seen before only counts."""

    def __init__(self, found_files: Tallies[FileTally]) -> None:
        self._files = found_files
        self.values: Tallies[ValueTally] = Tallies(ValueTally, LIMITS["values"])
        self._known: set[str] = set()
        self._telling: set[str] = set()
        self._meaning: dict[str, list[tuple[str, str]]] = {}

    def read(self, passages: Sequence[Passage]) -> None:
        """Take in some texts; of what a user says, every number counts."""
        spoken = [passage.text.split() for passage in passages]
        fresh = set(chain.from_iterable(spoken)) - self._known
        self._known |= fresh
        self._learn(sorted(word for word in fresh if not word.isalpha()))
        for passage, words in zip(passages, spoken, strict=True):
            telling = self._telling.intersection(words)
            if telling:
                self._count(sorted(telling), passage)
            if passage.role == "user":
                for phrase in spoken_numbers(passage.text[:_COUNTING_LENGTH]):
                    self._value(phrase, "pair", passage, 1)

    def read_pairs(self, passage: Passage, pairs: Iterable[str]) -> None:
        """Take in the named numbers of a text."""
        once = dict.fromkeys(pairs)
        names = [pair.partition(":")[0] for pair in once]
        siblings = Counter(names)
        for pair, name in zip(once, names, strict=True):
            self._value(pair, "pair", passage, siblings[name])

    def traces(self) -> tuple[ValueTrace, ...]:
        """Return the values, each with the name that stood before it where it was first seen."""
        traces: dict[str, ValueTrace] = {}
        far = 0
        for text, tally in self.values.best():
            far += len(tally.home) > _LONG_HOME
            told = text
            if tally.kind != "pair" and (len(tally.home) <= _LONG_HOME or far <= _FAR_LOOKS):
                told = named(tally.home, tally.kind, text)
            if told:
                traces[told] = tally.trace(told)
        return tuple(traces.values())

    def _learn(self, words: Sequence[str]) -> None:
        """Find out what new words hold: all of them as one text, one to a line."""
        meaning: dict[str, list[tuple[str, str]]] = {}
        for word, action, path in files.mentions(
            "\n".join(word for word in words if "/" in word or "." in word or "\\" in word)
        ):
            meaning.setdefault(word, []).append((f"{_FILE}{action}", path))
        for word, kind, value in values_in("\n".join([word for word in words if MAY_HOLD_VALUE.search(word)])):
            if word not in meaning or not any(value in path for _, path in meaning[word]):
                meaning.setdefault(word, []).append((kind, value))
        self._meaning.update(meaning)
        self._telling.update(meaning)

    def _count(self, words: list[str], passage: Passage) -> None:
        meanings = dict.fromkeys(meaning for word in words for meaning in self._meaning[word])
        shapes = Counter(kind for kind, _ in meanings)
        paths = sum(count for kind, count in shapes.items() if kind.startswith(_FILE))
        for kind, text in meanings:
            if kind.startswith(_FILE):
                tally = self._files.seen(text, passage.at)
                tally.bulk = min(tally.bulk, 1 if passage.rank == SPOKEN else paths)
                tally.actions[kind.removeprefix(_FILE)] += 1
            else:
                self._value(text, kind, passage, shapes[kind])

    def _value(self, text: str, kind: str, passage: Passage, siblings: int) -> None:
        tally = self.values.seen(text, passage.at)
        tally.siblings = siblings if tally.count == 1 else min(tally.siblings, siblings)
        tally.kind, tally.rank = kind, max(tally.rank, passage.rank)
        if not tally.home:
            tally.home = passage.text
