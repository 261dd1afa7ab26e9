"""What is known of a conversation when a host's list is matched against it, and what matching comes to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from leporello.store.reconcile.seen import Seen

Origins: TypeAlias = tuple[int, ...]
"""The numbers of the stored messages that a message of a list stands for, in their order."""


class Row(NamedTuple):
    """A live message of the store, as far as matching goes."""

    id: int
    place: float
    fingerprint: str
    call_key: str | None
    size: int
    role: str


@dataclass(frozen=True, kw_only=True)
class HandedOut:
    """The list that an engine handed out last: the fingerprint of each message, and what it stands for.

    `newest` is the newest message that was stored then: what came later stands behind this list.
    """

    marks: tuple[str, ...]
    origins: tuple[Origins, ...]
    newest: int


class History(Protocol):
    """What is known of a conversation; every lookup costs in proportion to what is asked for."""

    def newest(self, count: int) -> Sequence[Row]:
        """Return the newest live rows, the newest first."""

    def rows(self, fingerprints: Collection[str], call_keys: Collection[str], ids: Collection[int]) -> Sequence[Row]:
        """Return the live rows that have one of these fingerprints, call keys or ids."""

    def between(self, after: float | None, before: float | None) -> Sequence[Row]:
        """Return the live rows between two places, in order; None: from the first, or to the last."""

    def following(self, after: float | None) -> Iterator[Row]:
        """Walk the live rows behind a place, in order; None: from the first."""

    def shared_to(self) -> float:
        """Return up to which place the history belongs to other branches too."""

    def systems(self, fingerprints: Collection[str]) -> dict[str, int]:
        """Return the ids of stored messages of the system prompt by fingerprint."""

    def emitted(self, fingerprints: Collection[str]) -> dict[str, tuple[Origins, ...]]:
        """Return those that an engine made, each with what it stood for, perhaps in several places."""

    def handed_out(self) -> HandedOut | None:
        """Return the list that an engine handed out last."""

    def forgotten(self, marks: Collection[str]) -> set[str]:
        """Return those fingerprints and call keys that belonged to messages which were deleted on purpose."""


@dataclass(frozen=True, kw_only=True)
class Addition:
    """A message to store: its index in the list, and its place in the live history (None in the system prompt)."""

    index: int
    place: float | None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What storing a list means. Messages from `start` on that are neither known nor added are derived."""

    start: int = 0
    seen: Sequence[Seen] | Mapping[int, Seen] = ()
    """What was read from the list, by index."""
    known: dict[int, Origins] = field(default_factory=dict)
    added: tuple[Addition, ...] = ()
    superseded: tuple[int, ...] = ()
    """Stored messages that the list has no more: replaced by others, or behind the place of the fork."""
    fork: float | None = None
    """Behind which place the list goes on otherwise than the stored history; None when it goes on from its end."""
    root: bool = False
    """The list shares nothing with the stored history: its host forgot it, and begins a new root."""
    shared: int = 0
    """How many of its messages the stored history has, or was handed out last; without system messages."""
    fits: bool = True
    """The list only goes on from the end of the stored history, or adds nothing to it."""
    sure: bool = False
    """The list shows that its host knows the stored history."""
    repeated: dict[int, int] = field(default_factory=dict)
    """Messages of the system prompt that equal an added one of the same list, by index."""
    full: bool = False
    settled: bool = True
    """Nothing is stored behind the end of the list, unless an engine left it out."""
    crowded: bool = False
    """Two places fell together: the live history must be numbered anew first."""


def is_row(seen: Seen, row: Row) -> bool:
    """Tell whether a message is this row: the same, or the same call with no longer a text."""
    return seen.fingerprint == row.fingerprint or is_shortened(seen, row)


def is_shortened(seen: Seen, row: Row) -> bool:
    """Tell whether a message is the same call or result as this row, with no longer a text."""
    return seen.call_key is not None and seen.call_key == row.call_key and seen.size <= row.size


def is_derived(origins: tuple[Origins, ...] | None) -> bool:
    """Tell whether an engine wrote a message that stands for no stored one."""
    return origins is not None and () in origins


def stored_systems(history: History, fingerprints: Collection[str]) -> dict[str, Origins]:
    """Return what a system prompt stands for, by fingerprint; one with an engine's note is the one it came from."""
    noted = {mark: found[-1] for mark, found in history.emitted(fingerprints).items() if found[-1]}
    return noted | {mark: (id_,) for mark, id_ in history.systems(fingerprints).items()}


def once(
    seen: Sequence[Seen] | Mapping[int, Seen], added: list[Addition]
) -> tuple[tuple[Addition, ...], dict[int, int]]:
    """Part additions from those of the system prompt that are added already: one text is stored once."""
    firsts: dict[str, int] = {}
    kept: list[Addition] = []
    repeated: dict[int, int] = {}
    for addition in sorted(added, key=lambda addition: addition.index):
        mark = seen[addition.index].fingerprint if addition.place is None else ""
        if mark and firsts.setdefault(mark, addition.index) != addition.index:
            repeated[addition.index] = firsts[mark]
        else:
            kept.append(addition)
    return tuple(kept), repeated
