"""What is new in a host's list: pure functions over what is known.

A host hands over its whole list, perhaps with its oldest messages dropped, tool outputs cleared, or a summary in front.
`quick_plan` looks at the end of the list only; it either recognises a run of stored messages there or gives up.
`full_plan` aligns the whole list with the stored history. Both say which messages are known, which are new and at what
place, and which stored ones the list replaces.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from leporello.messages import is_system
from leporello.store.chain import longest_chain, nearest
from leporello.store.seen import copied, see

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence, Set as AbstractSet

    from leporello.messages import Message
    from leporello.store.seen import Reading, Seen

RUN: Final = 64  # so many consecutive known messages make a list recognised
REACH: Final = 64  # so many messages at the end of a list may be new before the full reconciliation takes over


class Row(NamedTuple):
    """A live message of the store, as far as matching goes."""

    id: int
    place: float
    fingerprint: str
    call_key: str | None
    size: int
    role: str


class History(Protocol):
    """What is known of a conversation; every lookup costs in proportion to what is asked for."""

    def newest(self, count: int) -> Sequence[Row]:
        """Return the newest live rows, the newest first."""

    def rows(self, fingerprints: Collection[str], call_keys: Collection[str], ids: Collection[int]) -> Sequence[Row]:
        """Return the live rows that have one of these fingerprints, call keys or ids."""

    def between(self, after: float | None, before: float | None) -> Sequence[Row]:
        """Return the live rows between two places, in order; None: from the first, or to the last."""

    def systems(self, fingerprints: Collection[str]) -> dict[str, int]:
        """Return the ids of stored system messages by fingerprint."""

    def emitted(self, fingerprints: Collection[str]) -> dict[str, int | None]:
        """Return those that an engine made, with the id of the message each contains."""

    def forgotten(self, marks: Collection[str]) -> set[str]:
        """Return those fingerprints and call keys that belonged to messages which were deleted on purpose."""


@dataclass(frozen=True, kw_only=True)
class Addition:
    """A message to store: its index in the list, and its place in the live history (None for a system message)."""

    index: int
    place: float | None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What storing a list means. Messages from `start` on that are neither known nor added are derived."""

    start: int = 0
    known: dict[int, int] = field(default_factory=dict)
    added: tuple[Addition, ...] = ()
    superseded: tuple[int, ...] = ()
    repeated: dict[int, int] = field(default_factory=dict)
    """System messages that equal an added one of the same list, by index."""
    full: bool = False
    crowded: bool = False
    """Two places fell together: the live history must be numbered anew first."""


def _is(seen: Seen, row: Row) -> bool:
    """Tell whether a message is this row: the same, or the same call with no longer a text."""
    return seen.fingerprint == row.fingerprint or _is_shortened(seen, row)


def _is_shortened(seen: Seen, row: Row) -> bool:
    return seen.call_key is not None and seen.call_key == row.call_key and seen.size <= row.size


def quick_plan(history: History, messages: Sequence[Message], reading: Reading | None = None) -> Plan | None:
    """Recognise the end of a list, or return None; looks at no more than its last messages, whatever its length.

    `reading` is what was read from the list before; it is used where messages are still equal, and brought up to date.
    """
    newest = history.newest(RUN)
    if not newest:
        return None
    end = _End(history, messages, {} if reading is None else reading)
    for anchor in range(len(messages) - 1, max(-1, len(messages) - 1 - REACH), -1):
        if not end[anchor].system and _is(end[anchor], newest[0]):
            known = _run(end, anchor, newest, complete=len(newest) < RUN)
            if known is not None:
                return _quick(end, anchor, known, newest[0].place)
    return None


class _End:
    """The end of a list, read backwards as far as needed, with what is known about each message."""

    def __init__(self, history: History, messages: Sequence[Message], reading: Reading) -> None:
        self.history = history
        self.messages = messages
        self._reading = reading
        self._seen: dict[int, Seen] = {}

    def __getitem__(self, index: int) -> Seen:
        if index not in self._seen:
            self._seen[index] = self._read(index)
        return self._seen[index]

    def _read(self, index: int) -> Seen:
        message = self.messages[index]
        if index not in self._reading or self._reading[index][0] != message:
            seen = see(message, f"messages[{index}]")
            self._reading[index] = (copied(message), seen)
        return self._reading[index][1]

    def origin(self, index: int) -> tuple[bool, int | None]:
        """Tell whether an engine made this message, and the id of the message that it contains."""
        mark = self[index].fingerprint
        found = self.history.emitted([mark])
        return mark in found, found.get(mark)

    def repeats(self, index: int) -> bool:
        """Tell whether a later message has the same call key: ids that repeat identify nothing."""
        key = self[index].call_key
        return any(seen.call_key == key for later, seen in self._seen.items() if later > index)


def _run(end: _End, anchor: int, newest: Sequence[Row], *, complete: bool) -> dict[int, int] | None:
    """Match the list backwards from `anchor`, message by message, with the newest rows; None when they differ."""
    known: dict[int, int] = {}
    rows = iter(newest)
    row = next(rows, None)
    for index in range(anchor, -1, -1):
        if row is None and not complete:
            return known
        seen = end[index]
        if seen.system:
            continue
        if row and (seen.fingerprint == row.fingerprint or (_is_shortened(seen, row) and not end.repeats(index))):
            known[index] = row.id
            row = next(rows, None)
            continue
        made, origin = end.origin(index)
        if row and made and origin == row.id:
            known[index] = row.id
            row = next(rows, None)
        elif made or seen.marked:
            return known or None
        else:
            return None
    return known


def _quick(end: _End, anchor: int, known: dict[int, int], place: float) -> Plan | None:
    """Return the plan for a list whose stored messages end at `anchor`."""
    start = min(known)
    systems = [*_leading_systems(end, start), *(i for i in range(start, len(end.messages)) if end[i].system)]
    stored = _stored_systems(end.history, {end[index].fingerprint for index in systems}) if systems else {}
    added: list[Addition] = []
    for index in systems:
        if end[index].fingerprint in stored:
            known[index] = stored[end[index].fingerprint]
        else:
            added.append(Addition(index=index, place=None))
    for index in range(anchor + 1, len(end.messages)):
        if end[index].system:
            continue
        made, origin = end.origin(index)
        if origin is not None:
            return None
        if not made:
            place += 1
            added.append(Addition(index=index, place=place))
    kept, repeated = _once(end, added)
    return Plan(start=start, known=known, added=kept, repeated=repeated)


def _stored_systems(history: History, fingerprints: Collection[str]) -> dict[str, int]:
    """Return the ids of system messages by fingerprint; one with an engine's note is the one it came from."""
    noted = {mark: origin for mark, origin in history.emitted(fingerprints).items() if origin is not None}
    return noted | history.systems(fingerprints)


def _leading_systems(end: _End, stop: int) -> list[int]:
    """Return the system messages at the front of the list, without looking at what follows them."""
    count = 0
    while count < stop and is_system(end.messages[count]):
        count += 1
    return list(range(count))


def _once(seen: _End | list[Seen], added: list[Addition]) -> tuple[tuple[Addition, ...], dict[int, int]]:
    """Part additions from system messages that are added already: one text is stored once."""
    firsts: dict[str, int] = {}
    kept: list[Addition] = []
    repeated: dict[int, int] = {}
    for addition in sorted(added, key=lambda addition: addition.index):
        mark = seen[addition.index].fingerprint
        if addition.place is None and firsts.setdefault(mark, addition.index) != addition.index:
            repeated[addition.index] = firsts[mark]
        else:
            kept.append(addition)
    return tuple(kept), repeated


def full_plan(history: History, messages: Sequence[Message], *, settle: bool = False) -> Plan:
    """Align a whole list with the stored history.

    With `settle` stored messages behind the last one of the list count as undone, even when nothing new follows.
    """
    seen = [see(message, f"messages[{index}]") for index, message in enumerate(messages)]
    emitted = history.emitted({item.fingerprint for item in seen})
    systems = _stored_systems(history, {item.fingerprint for item in seen if item.system})
    chain = _aligned(history, seen, emitted)
    derived = _derived(seen, emitted, chain)
    known = {index: row.id for index, row in chain.items()}
    apart = [index for index, item in enumerate(seen) if item.system]
    known |= {index: systems[seen[index].fingerprint] for index in apart if seen[index].fingerprint in systems}
    added = [Addition(index=index, place=None) for index in apart if index not in known]
    forgotten = _forgotten(history, seen, known.keys() | derived)
    filled = [_fill(history, gap, settle=settle) for gap in _gaps(seen, chain, derived, forgotten)]
    added += [addition for gap in filled for addition in gap.added]
    kept, repeated = _once(seen, added)
    return Plan(
        known=known,
        added=kept,
        repeated=repeated,
        superseded=tuple(id_ for gap in filled for id_ in gap.superseded),
        full=True,
        crowded=any(gap.crowded for gap in filled),
    )


def _aligned(history: History, seen: list[Seen], emitted: dict[str, int | None]) -> dict[int, Row]:
    """Return the longest chain of known messages in stored order, by their index in the list."""
    said = {index: item for index, item in enumerate(seen) if not item.system}
    rows = history.rows(
        {item.fingerprint for item in said.values()},
        {item.call_key for item in said.values() if item.call_key is not None},
        {origin for origin in emitted.values() if origin is not None},
    )
    by_id = {row.id: row for row in rows}
    in_order = sorted(by_id.values(), key=lambda row: row.place)
    same = _Equals(in_order, [row.fingerprint for row in in_order], [item.fingerprint for item in said.values()])
    called = _Equals(in_order, [row.call_key for row in in_order], [item.call_key for item in said.values()])
    options: dict[int, list[tuple[Row, bool]]] = {}
    for index, item in said.items():
        origin = emitted.get(item.fingerprint)
        exact = [by_id[origin]] if origin in by_id else same.next(item.fingerprint)
        shortened = [row for row in called.next(item.call_key) if row not in exact and _is_shortened(item, row)]
        options[index] = [*((row, True) for row in exact), *((row, False) for row in shortened)]
    return longest_chain(options)


class _Equals:
    """Rows by a property, handed out to the messages that share it, in order."""

    def __init__(self, rows: Sequence[Row], keys: Sequence[str | None], wanted: Sequence[str | None]) -> None:
        self._rows: dict[str, list[Row]] = {}
        for row, key in zip(rows, keys, strict=True):
            if key is not None:
                self._rows.setdefault(key, []).append(row)
        self._totals = Counter(wanted)
        self._numbers: Counter[str] = Counter()

    def next(self, key: str | None) -> Sequence[Row]:
        """Return the rows that the next message with this property may be."""
        if key is None or key not in self._rows:
            return []
        self._numbers[key] += 1
        return nearest(self._rows[key], self._numbers[key] - 1, self._totals[key])


def _derived(seen: list[Seen], emitted: dict[str, int | None], chain: dict[int, Row]) -> set[int]:
    """Return the messages that an engine made: registered ones, and marked ones directly before stored messages."""
    derived = set()
    followed = False
    for index in range(len(seen) - 1, -1, -1):
        item = seen[index]
        if index in chain:
            followed = True
        elif item.system:
            continue
        elif item.fingerprint in emitted or (item.marked and followed):
            derived.add(index)
        else:
            followed = False
    return derived


@dataclass(frozen=True, kw_only=True)
class _Gap:
    """What lies between two known messages of a list."""

    new: tuple[int, ...]
    roles: tuple[str, ...]
    derived: bool
    after: float | None
    before: float | None


def _forgotten(history: History, seen: list[Seen], explained: AbstractSet[int]) -> set[int]:
    """Return the messages that were deleted on purpose, and that the host still has."""
    marks = {
        index: {mark for mark in (item.fingerprint, item.call_key) if mark is not None}
        for index, item in enumerate(seen)
        if index not in explained
    }
    gone = history.forgotten({mark for both in marks.values() for mark in both})
    return {index for index, both in marks.items() if both & gone}


def _gaps(seen: list[Seen], chain: dict[int, Row], derived: set[int], forgotten: set[int]) -> list[_Gap]:
    """Return the gaps in order, the last one behind all known messages; there, what equals a deleted message is new."""
    gaps = []
    after: float | None = None
    new: list[int] = []
    folded = False
    for index, item in enumerate(seen):
        if index in chain:
            new = [each for each in new if each not in forgotten]
            gaps.append(_gap(seen, new, after, chain[index].place, derived=folded))
            after, new, folded = chain[index].place, [], False
        elif index in derived:
            folded = True
        elif not item.system:
            new.append(index)
    return [*gaps, _gap(seen, new, after, None, derived=folded)]


def _gap(seen: list[Seen], new: list[int], after: float | None, before: float | None, *, derived: bool) -> _Gap:
    roles = tuple(seen[index].role for index in new)
    return _Gap(new=tuple(new), roles=roles, derived=derived, after=after, before=before)


@dataclass(frozen=True, kw_only=True)
class _Filled:
    """What becomes of a gap: its new messages with their places, and the stored ones that they replace."""

    added: tuple[Addition, ...] = ()
    superseded: tuple[int, ...] = ()
    crowded: bool = False


def _fill(history: History, gap: _Gap, *, settle: bool) -> _Filled:
    """Place the new messages of a gap, and tell an edit or an undo from an insertion."""
    last = gap.before is None
    undone = last and settle and gap.after is not None and not gap.derived
    if not gap.new and not undone:
        return _Filled()
    rows = history.between(gap.after, gap.before)
    if last and not gap.derived:
        return _placed(gap, _spread(gap.after, None, len(gap.new)), rows)
    if not gap.derived and tuple(row.role for row in rows) == gap.roles:
        return _placed(gap, [row.place for row in rows], rows)
    after = rows[-1].place if rows else gap.after
    places = _spread(after, gap.before, len(gap.new))
    bounds = [place for place in (after, *places, gap.before) if place is not None]
    crowded = any(left >= right for left, right in pairwise(bounds))
    return _placed(gap, places, (), crowded=crowded)


def _placed(gap: _Gap, places: Sequence[float], replaced: Sequence[Row], *, crowded: bool = False) -> _Filled:
    return _Filled(
        added=tuple(Addition(index=index, place=place) for index, place in zip(gap.new, places, strict=True)),
        superseded=tuple(row.id for row in replaced),
        crowded=crowded,
    )


def _spread(after: float | None, before: float | None, count: int) -> list[float]:
    """Return places for messages between two others."""
    if before is None:
        return [(after or 0.0) + 1 + n for n in range(count)]
    if after is None:
        return [before - count + n for n in range(count)]
    return [after + (before - after) * (n + 1) / (count + 1) for n in range(count)]
