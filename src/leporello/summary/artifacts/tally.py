"""Counting while a conversation is read: the changeable side of the traces."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from leporello.summary.artifacts.model import CommandTrace, DecisionTrace, ErrorTrace, FileTrace, ValueTrace, kept


@dataclass(kw_only=True, slots=True)
class Tally:
    """Where something was first and last seen, and in how many messages."""

    first: int
    last: int = -1
    count: int = 0


@dataclass(kw_only=True, slots=True)
class FileTally(Tally):
    """A file while it is being counted."""

    actions: Counter[str] = field(default_factory=Counter)
    bulk: int = 1_000_000

    def trace(self, text: str) -> FileTrace:
        """Return what was counted."""
        return FileTrace(
            text=text,
            first=self.first,
            last=self.last,
            count=self.count,
            actions=tuple((action, count) for action, count in self.actions.items() if action),
            bulk=self.bulk,
        )


@dataclass(kw_only=True, slots=True)
class CommandTally(Tally):
    """A command while its runs are being counted."""

    tool: str = ""
    outcome: str = "unknown"
    detail: str = ""
    failures: int = 0

    def trace(self, text: str) -> CommandTrace:
        """Return what was counted."""
        return CommandTrace(
            text=text,
            first=self.first,
            last=self.last,
            count=self.count,
            tool=self.tool,
            outcome=self.outcome,
            detail=self.detail,
            failures=self.failures,
        )


@dataclass(kw_only=True, slots=True)
class ErrorTally(Tally):
    """An error line while it is being counted."""

    def trace(self, text: str) -> ErrorTrace:
        """Return what was counted."""
        return ErrorTrace(text=text, first=self.first, last=self.last, count=self.count)


@dataclass(kw_only=True, slots=True)
class DecisionTally(Tally):
    """A decision while it is being counted."""

    role: str = "assistant"

    def trace(self, text: str) -> DecisionTrace:
        """Return what was counted."""
        return DecisionTrace(text=text, first=self.first, last=self.last, count=self.count, role=self.role)


@dataclass(kw_only=True, slots=True)
class ValueTally(Tally):
    """An exact value while it is being counted; `home` is the text where it was first seen."""

    kind: str = "pair"
    rank: int = 0
    siblings: int = 1
    home: str = ""

    def trace(self, text: str) -> ValueTrace:
        """Return what was counted."""
        return ValueTrace(
            text=text,
            first=self.first,
            last=self.last,
            count=self.count,
            kind=self.kind,
            rank=self.rank,
            siblings=self.siblings,
        )


AnyTally = TypeVar("AnyTally", bound=Tally)


class Tallies(Generic[AnyTally]):
    """Tallies by text, made when first asked for; beyond `most` the ones seen longest ago and least often go."""

    def __init__(self, kind: type[AnyTally], most: int) -> None:
        self._kind = kind
        self._most = most
        self.found: dict[str, AnyTally] = {}

    def seen(self, text: str, index: int) -> AnyTally:
        """Count a sighting and return its tally."""
        tally = self.found.get(text)
        if tally is None:
            if len(self.found) >= 4 * self._most:
                self._forget()
            tally = self.found[text] = self._kind(first=index)
        if index != tally.last:
            tally.last = index
            tally.count += 1
        return tally

    def best(self) -> list[tuple[str, AnyTally]]:
        """Return the newest half of `most` and the most frequent of the rest, in order of the last occurrence."""
        ordered = sorted(self.found.items(), key=lambda item: (item[1].last, item[1].first, item[0]))
        return kept(ordered, self._most, lambda item: (item[1].count, item[1].last))

    def _forget(self) -> None:
        by_worth = sorted(self.found, key=lambda text: (self.found[text].count > 1, self.found[text].last))
        for text in by_worth[: len(by_worth) // 2]:
            del self.found[text]
