"""The input and the result of reconciliation: what is read from the store (`BranchHistory`), and the `Plan`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from leporello.messages.listed_message import ListedMessage

Origins: TypeAlias = tuple[int, ...]
"""The numbers of the stored messages behind a message of a list, in order."""
Emitted: TypeAlias = "Mapping[str, tuple[Origins, ...]]"
"""Messages that an engine made, by fingerprint, with their origins in each place where it made them."""
START: Final = float("-inf")  # the place before all stored messages
END: Final = float("inf")  # the place behind them


class StoredRow(NamedTuple):
    """A message on the path of the branch, with the fields that matching needs."""

    id: int
    place: float
    fingerprint: str
    call_key: str | None
    size: int
    role: str


@dataclass(frozen=True, kw_only=True)
class HandedOut:
    """The list that an engine returned last: the fingerprint and the origins of each message.

    `newest` is the newest message that was stored then.
    """

    marks: tuple[str, ...]
    origins: tuple[Origins, ...]
    newest: int


class BranchHistory(Protocol):
    """Look-ups in the stored branch; the time of each grows with its result only."""

    def newest(self, count: int) -> Sequence[StoredRow]:
        """Return the newest rows, newest first."""

    def rows(
        self, fingerprints: Collection[str], call_keys: Collection[str], ids: Collection[int]
    ) -> Sequence[StoredRow]:
        """Return the rows that have one of these fingerprints, call keys or ids."""

    def between(self, after: float, before: float = END) -> Iterator[StoredRow]:
        """Yield the rows between two places, in order."""

    def shared_to(self) -> float:
        """Return the place up to which the history is shared with other branches."""

    def systems(self, fingerprints: Collection[str]) -> dict[str, int]:
        """Return the ids of stored messages of the system prompt by fingerprint."""

    def emitted(self, fingerprints: Collection[str]) -> Emitted:
        """Return the messages with these fingerprints that an engine made."""

    def handed_out(self) -> HandedOut | None:
        """Return the list that an engine returned last."""

    def forgotten(self, marks: Collection[str]) -> set[str]:
        """Return those of these fingerprints and call keys that belong to messages which were deleted on purpose."""


@dataclass(frozen=True, kw_only=True)
class Addition:
    """A message to store: its index in the list, and its place in the live history (None in the system prompt)."""

    index: int
    place: float | None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is to be stored of a list. Messages from `start` on that are neither known nor added are an engine's."""

    start: int = 0
    seen: Sequence[ListedMessage] | Mapping[int, ListedMessage] = ()
    """The messages of the list, by index."""
    known: dict[int, Origins] = field(default_factory=dict)
    added: tuple[Addition, ...] = ()
    superseded: tuple[int, ...] = ()
    """Stored messages that the list does not have: replaced by others, or behind the place of the fork."""
    fork: float | None = None
    """The place behind which the list forks; None when it continues at the end of the stored history."""
    root: bool = False
    """Whether the list begins a new root, because it shares nothing with the stored history."""
    shared: int = 0
    """How many messages of the list, without system messages, are stored or were handed out last."""
    fits: bool = True
    """Whether the list only appends to the stored history, or adds nothing."""
    sure: bool = False
    """Whether the list shows that its host knows the stored history."""
    repeated: dict[int, int] = field(default_factory=dict)
    """Messages of the system prompt that equal an added one of the same list, by index."""
    full: bool = False
    settled: bool = True
    """Whether nothing is stored behind the end of the list, except what an engine left out."""
    crowded: bool = False
    """Whether two places are equal as floats, so that the path must be renumbered first."""


def is_row(seen: ListedMessage, known: StoredRow | ListedMessage, *, unique: bool = True) -> bool:
    """Tell whether a message is a stored one: equal, or with the same unique call and no longer text."""
    return seen.fingerprint == known.fingerprint or (unique and is_shortened(seen, known))


def is_shortened(seen: ListedMessage, known: StoredRow | ListedMessage) -> bool:
    """Tell whether a message is the same call or result as a stored one, with no longer text."""
    return seen.call_key is not None and seen.call_key == known.call_key and seen.size <= known.size


def is_derived(origins: tuple[Origins, ...] | None) -> bool:
    """Tell whether an engine wrote a message that has no origins."""
    return origins is not None and () in origins


def stored_systems(history: BranchHistory, fingerprints: Collection[str]) -> dict[str, Origins]:
    """Return the origins of system prompts by fingerprint; one with an engine's note has those of the original."""
    noted = {mark: found[-1] for mark, found in history.emitted(fingerprints).items() if found[-1]}
    return noted | {mark: (id_,) for mark, id_ in history.systems(fingerprints).items()}


def planned_prompt(
    history: BranchHistory, seen: Sequence[ListedMessage] | Mapping[int, ListedMessage], prompt: Iterable[int]
) -> tuple[dict[int, Origins], list[Addition], dict[int, int]]:
    """Return the stored messages of the system prompt, the new ones, and those that repeat a new one."""
    marks = {index: seen[index].fingerprint for index in prompt}
    stored = stored_systems(history, set(marks.values()))
    known = {index: stored[mark] for index, mark in marks.items() if mark in stored}
    firsts: dict[str, int] = {}
    repeated = {
        index: firsts[mark]
        for index, mark in marks.items()
        if index not in known and firsts.setdefault(mark, index) != index
    }
    return known, [Addition(index=index, place=None) for index in firsts.values()], repeated


def in_a_row(indexes: Sequence[int], behind: float) -> tuple[Addition, ...]:
    """Return additions one after the other behind a place."""
    return placed(indexes, spread(len(indexes), behind))


def placed(indexes: Sequence[int], places: Sequence[float]) -> tuple[Addition, ...]:
    """Return additions at these places."""
    return tuple(Addition(index=index, place=place) for index, place in zip(indexes, places, strict=True))


def spread(count: int, after: float, before: float = END) -> list[float]:
    """Return evenly spread places between two others."""
    if before == END:
        return [(0.0 if after == START else after) + 1 + n for n in range(count)]
    if after == START:
        return [before - count + n for n in range(count)]
    return [after + (before - after) * (n + 1) / (count + 1) for n in range(count)]
