"""What a conversation leaves behind, exactly: traces that know where they happened.

`first` and `last` are message indexes, `count` the number of messages that show the trace. Everything is bounded:
what is newest and most frequent stays.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# How many traces of a kind are kept; far more than a summary can show, far fewer than memory can hold.
LIMITS = {"files": 2_000, "commands": 1_000, "errors": 500, "decisions": 300, "values": 2_000}


@dataclass(frozen=True, kw_only=True)
class Trace:
    """A text that occurred, and where."""

    text: str
    first: int
    last: int
    count: int = 1


@dataclass(frozen=True, kw_only=True)
class FileTrace(Trace):
    """A file (`text` is its path) and what happened to it: ("written", 3) and the like, in order of first occurrence.

    `bulk` is the least number of files that were named together with it: a path out of a long listing matters less.
    """

    actions: tuple[tuple[str, int], ...] = ()
    bulk: int = 1


@dataclass(frozen=True, kw_only=True)
class CommandTrace(Trace):
    """A tool call that is no plain reading or writing of a file; `text` is the command line or the call.

    `outcome` is that of the latest run: "ok", "failed", or "unknown" when no result tells. `detail` is what the result
    says about it, such as "8 passed, 2 failed" or "exit code 1". `failures` counts the runs that failed.
    """

    tool: str
    outcome: str = "unknown"
    detail: str = ""
    failures: int = 0


@dataclass(frozen=True, kw_only=True)
class ErrorTrace(Trace):
    """An error line as it stands in the output."""


@dataclass(frozen=True, kw_only=True)
class DecisionTrace(Trace):
    """A sentence that decides something; `role` says whose it is."""

    role: str = "assistant"


@dataclass(frozen=True, kw_only=True)
class ValueTrace(Trace):
    """An exact value, with its name where one stands next to it ("port: 8080").

    `kind` is url, uuid, hash, id, version, amount, address, setting, number or pair. `rank` is higher the more a reader
    depends on the value: 2 when a person or the assistant wrote it, 1 when it was handed to a tool, 0 when it only was
    in an output.
    `siblings` is how many values the same name has: the numbers of a long list matter less than one of a kind.
    """

    kind: str = "pair"
    rank: int = 0
    siblings: int = 1


AnyTrace = TypeVar("AnyTrace", bound=Trace)
Found = TypeVar("Found")


@dataclass(frozen=True, kw_only=True)
class Artifacts:
    """All traces of a conversation, each kind in order of the last occurrence."""

    files: tuple[FileTrace, ...] = ()
    commands: tuple[CommandTrace, ...] = ()
    errors: tuple[ErrorTrace, ...] = ()
    decisions: tuple[DecisionTrace, ...] = ()
    values: tuple[ValueTrace, ...] = ()
    messages: int = 0

    def merge(self, newer: Artifacts, *, offset: int = 0) -> Artifacts:
        """Add what came after; `offset` is the index in the whole conversation at which the newer messages begin."""
        moved = newer.moved(offset)
        return Artifacts(
            files=_merged(self.files, moved.files, LIMITS["files"], _one_file),
            commands=_merged(self.commands, moved.commands, LIMITS["commands"], _one_command),
            errors=_merged(self.errors, moved.errors, LIMITS["errors"], _one),
            decisions=_merged(self.decisions, moved.decisions, LIMITS["decisions"], _one),
            values=_merged(self.values, moved.values, LIMITS["values"], _one_value),
            messages=max(self.messages, offset + newer.messages),
        )

    def moved(self, offset: int) -> Artifacts:
        """Return the same traces with every index shifted."""
        if not offset:
            return self
        return Artifacts(
            files=tuple(_shifted(trace, offset) for trace in self.files),
            commands=tuple(_shifted(trace, offset) for trace in self.commands),
            errors=tuple(_shifted(trace, offset) for trace in self.errors),
            decisions=tuple(_shifted(trace, offset) for trace in self.decisions),
            values=tuple(_shifted(trace, offset) for trace in self.values),
            messages=self.messages + offset,
        )


def kept(ordered: list[Found], limit: int, worth: Callable[[Found], tuple[int, int]]) -> list[Found]:
    """Keep the newest half and the worthiest of the rest, in their order."""
    if len(ordered) <= limit:
        return ordered
    newest = len(ordered) - limit // 2
    worthy = sorted(range(newest), key=lambda number: worth(ordered[number]), reverse=True)[: limit - limit // 2]
    return [ordered[number] for number in sorted(worthy)] + ordered[newest:]


def _merged(
    old: Iterable[AnyTrace], new: Iterable[AnyTrace], limit: int, one: Callable[[AnyTrace, AnyTrace], AnyTrace]
) -> tuple[AnyTrace, ...]:
    found = {trace.text: trace for trace in old}
    for trace in new:
        found[trace.text] = one(found[trace.text], trace) if trace.text in found else trace
    ordered = sorted(found.values(), key=lambda trace: (trace.last, trace.first, trace.text))
    return tuple(kept(ordered, limit, lambda trace: (trace.count, trace.last)))


def _shifted(trace: AnyTrace, offset: int) -> AnyTrace:
    return replace(trace, first=trace.first + offset, last=trace.last + offset)


def _one(old: AnyTrace, new: AnyTrace) -> AnyTrace:
    return replace(new, first=min(old.first, new.first), last=max(old.last, new.last), count=old.count + new.count)


def _one_file(old: FileTrace, new: FileTrace) -> FileTrace:
    actions = Counter(dict(old.actions))
    actions.update(dict(new.actions))
    return replace(_one(old, new), actions=tuple(actions.items()), bulk=min(old.bulk, new.bulk))


def _one_command(old: CommandTrace, new: CommandTrace) -> CommandTrace:
    return replace(_one(old, new), failures=old.failures + new.failures)


def _one_value(old: ValueTrace, new: ValueTrace) -> ValueTrace:
    return replace(_one(old, new), rank=max(old.rank, new.rank), siblings=max(old.siblings, new.siblings))
