"""What is new in a host's list: pure functions over what is known.

A host hands over its whole list, perhaps with its oldest messages dropped, tool outputs cleared, or a summary in front.
`quick_plan` (in `quick`) looks at the end of the list only, and recognises it there or gives up. `full_plan` reads the
whole list: it follows it when it simply goes on (`continuing`), and aligns it with the stored history when it does not.
Both say which messages are known, which are new and at what place, and which stored ones the list replaces.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from leporello.messages import leading_systems
from leporello.store.reconcile.chain import longest_chain, nearest
from leporello.store.reconcile.continuing import continued
from leporello.store.reconcile.known import Addition, Plan, is_derived, is_shortened, once, stored_systems
from leporello.store.reconcile.new_beginning import has_answers, is_known_list
from leporello.store.reconcile.seen import see

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence, Set as AbstractSet

    from leporello.messages import Message
    from leporello.store.reconcile.continuing import Continued
    from leporello.store.reconcile.known import History, Origins, Row
    from leporello.store.reconcile.quick import Reading
    from leporello.store.reconcile.seen import Seen

FEWEST_SUMMARISED = 2  # messages; a summary stands for more than one


def full_plan(
    history: History, messages: Sequence[Message], *, reading: Reading | None = None, settle: bool = False
) -> Plan:
    """Align a whole list with the stored history; `reading` is what is remembered of the list before, if anything.

    With `settle` stored messages behind the last one of the list count as undone, even when nothing new follows.
    """
    seen = [see(message, f"messages[{index}]") for index, message in enumerate(messages)]
    for index in range(_prompt_length(history, messages, seen)):
        seen[index] = seen[index]._replace(system=True)
    emitted = history.emitted({item.fingerprint for item in seen})
    followed = continued(history, seen, emitted)
    body = _appended(seen, emitted, followed) if followed else _aligned(history, seen, emitted, reading, settle=settle)
    apart = [index for index, item in enumerate(seen) if item.system]
    systems = stored_systems(history, {seen[index].fingerprint for index in apart})
    known = {index: systems[seen[index].fingerprint] for index in apart if seen[index].fingerprint in systems}
    new = [Addition(index=index, place=None) for index in apart if index not in known]
    kept, repeated = once(seen, [*new, *body.added])
    shared = _shared(history, seen, emitted, body.known)
    return replace(
        body,
        seen=seen,
        known=body.known | known,
        added=kept,
        repeated=repeated,
        full=True,
        shared=shared,
        fits=body.fits and (shared > 0 or not body.added),
    )


def _shared(
    history: History, seen: Sequence[Seen], emitted: Mapping[str, tuple[Origins, ...]], known: Mapping[int, Origins]
) -> int:
    """Count the messages of a list that are stored on the path, or that an engine handed out there last."""
    made = [item.fingerprint for index, item in enumerate(seen) if item.fingerprint in emitted and index not in known]
    handed = history.handed_out() if made else None
    return len(known) + (len({*made} & {*handed.marks}) if handed else 0)


def _prompt_length(history: History, messages: Sequence[Message], seen: list[Seen]) -> int:
    """Return how many messages are the system prompt: the leading system messages, up to one that is known from later.

    A list whose first messages were dropped may begin with a system message of the middle.
    """
    leading = leading_systems(messages)
    marks = {item.fingerprint for item in seen[:leading]}
    later = {row.fingerprint for row in history.rows(marks, (), ())} if marks else set()
    prompts = stored_systems(history, later) if later else {}
    return next((at for at in range(leading) if seen[at].fingerprint in later - prompts.keys()), leading)


def _appended(seen: list[Seen], emitted: Mapping[str, tuple[Origins, ...]], followed: Continued) -> Plan:
    """Return the plan for a list that only grew: what stands behind the last stored message is new."""
    new = [
        index
        for index in range(followed.new, len(seen))
        if not seen[index].system and not is_derived(emitted.get(seen[index].fingerprint))
    ]
    added = [Addition(index=index, place=followed.place + 1 + n) for n, index in enumerate(new)]
    return Plan(known=followed.known, added=tuple(added))


def _aligned(
    history: History,
    seen: list[Seen],
    emitted: Mapping[str, tuple[Origins, ...]],
    reading: Reading | None,
    *,
    settle: bool,
) -> Plan:
    """Return the plan for a list that was shortened, edited or folded: what lies between known messages is filled.

    A list that would take messages back, and does not show that it is of this conversation, begins a new root.
    """
    stored = _Stored(history, seen, emitted)
    chain = longest_chain({index: stored.options(item) for index, item in enumerate(seen) if not item.system})
    derived = _derived(history, seen, emitted, chain, stored.fingerprints)
    forgotten = _forgotten(history, seen, chain.keys() | derived)
    gaps = _gaps(seen, chain, derived, forgotten)
    filled = [_fill(history, gap, settle=settle) for gap in gaps]
    sure = is_known_list(seen, chain, emitted, reading)
    if any(gap.superseded for gap in filled) and not sure:
        known = {index: stretch.ids for index, stretch in chain.items()}
        deleted = forgotten if has_answers(seen, forgotten) else set()
        new = any(gap.new for gap in gaps)
        return _begun_anew(history, seen, deleted) if new else Plan(known=known, settled=False)
    taken_back = bool(filled[-1].superseded)
    changed = next((gap for gap, fill in zip(gaps, filled[:-1], strict=False) if fill.added), None)
    if changed and (taken_back or _changes_shared(history, filled)):
        return _forked(history, seen, chain, changed, derived | forgotten)
    return Plan(
        known={index: stretch.ids for index, stretch in chain.items()},
        added=tuple(addition for gap in filled for addition in gap.added),
        superseded=tuple(row.id for gap in filled for row in gap.superseded),
        fork=_behind(gaps[-1].after) if taken_back else None,
        fits=not taken_back and changed is None,
        sure=sure,
        settled=filled[-1].settled,
        crowded=any(gap.crowded for gap in filled),
    )


def _changes_shared(history: History, filled: Sequence[_Filled]) -> bool:
    """Tell whether a list changes something before the end that other branches have too."""
    shared = history.shared_to()
    places = [addition.place for gap in filled for addition in gap.added]
    places += [row.place for gap in filled for row in gap.superseded]
    return any(place is not None and place <= shared for place in places)


def _forked(
    history: History, seen: list[Seen], chain: Mapping[int, Stretch], gap: _Gap, ignored: AbstractSet[int]
) -> Plan:
    """Return the plan for a list that goes its own way from a gap on: all of it behind that is stored on the fork."""
    place, first = _behind(gap.after), gap.new[0]
    said = [index for index in range(first, len(seen)) if not (seen[index].system or index in ignored)]
    return Plan(
        known={index: stretch.ids for index, stretch in chain.items() if index < first},
        added=tuple(Addition(index=index, place=max(place, 0.0) + 1 + n) for n, index in enumerate(said)),
        superseded=tuple(row.id for row in history.following(gap.after)),
        fork=place,
        fits=False,
        sure=True,
    )


def _behind(place: float | None) -> float:
    """Return a place that everything stands behind, where there is none."""
    return float("-inf") if place is None else place


def _begun_anew(history: History, seen: list[Seen], deleted: AbstractSet[int]) -> Plan:
    """Return the plan for the list of a host that forgot the conversation: all of it is new, but what was deleted.

    Its places are behind those of the path, so that roots stand one after the other where all are listed.
    """
    place = history.newest(1)[0].place
    said = [index for index, item in enumerate(seen) if not item.system and index not in deleted]
    added = tuple(Addition(index=index, place=place + 1 + n) for n, index in enumerate(said))
    return Plan(added=added, root=bool(added), fits=not added, settled=bool(added))


class Stretch(NamedTuple):
    """Stored messages that one message of a list may stand for: from one place to another, mostly the same."""

    start: float
    end: float
    ids: Origins


class _Stored:
    """The stored messages that those of a list may be."""

    def __init__(self, history: History, seen: list[Seen], emitted: Mapping[str, tuple[Origins, ...]]) -> None:
        said = [item for item in seen if not item.system]
        rows = history.rows(
            {item.fingerprint for item in said},
            {item.call_key for item in said if item.call_key is not None},
            {id_ for found in emitted.values() for ids in found for id_ in ids},
        )
        self._by_id = {row.id: row for row in rows}
        in_order = sorted(self._by_id.values(), key=lambda row: row.place)
        self._emitted = emitted
        self._same = _Equals(in_order, [row.fingerprint for row in in_order], [item.fingerprint for item in said])
        self._called = _Equals(in_order, [row.call_key for row in in_order], [item.call_key for item in said])
        self.fingerprints = {row.fingerprint for row in in_order}

    def options(self, item: Seen) -> list[tuple[Stretch, bool]]:
        """Return what the next message of the list may stand for, each with whether it is exactly that."""
        exact = self._same.next(item.fingerprint)
        shortened = [row for row in self._called.next(item.call_key) if row not in exact and is_shortened(item, row)]
        made = [ids for ids in self._emitted.get(item.fingerprint, ()) if ids and self._by_id.keys() >= {*ids}]
        return [
            *((Stretch(self._by_id[ids[0]].place, self._by_id[ids[-1]].place, ids), True) for ids in made),
            *((Stretch(row.place, row.place, (row.id,)), True) for row in exact if (row.id,) not in made),
            *((Stretch(row.place, row.place, (row.id,)), False) for row in shortened),
        ]


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


def _derived(
    history: History,
    seen: list[Seen],
    emitted: Mapping[str, tuple[Origins, ...]],
    chain: Mapping[int, Stretch],
    stored: AbstractSet[str],
) -> set[int]:
    """Return the messages that an engine made: registered ones, and another host's summaries.

    A text that begins like a summary is one only where it stands in for stored messages, directly before others of
    them: anybody can imitate how it begins, but not make a host leave messages out. What an engine passed on as it was
    stored, and what stands in no place of its own, is somebody's new message.
    """
    derived = set()
    following: int | None = None
    for index in range(len(seen) - 1, -1, -1):
        item = seen[index]
        if index in chain:
            following = index
            continue
        if item.system:
            continue
        made = emitted.get(item.fingerprint)
        written = is_derived(made) or (made and item.fingerprint not in stored)
        if written or (item.marked and _stands_in(history, chain, index, following)):
            derived.add(index)
        else:
            following = None
    return derived


def _stands_in(history: History, chain: Mapping[int, Stretch], index: int, following: int | None) -> bool:
    """Tell whether stored messages are missing where a text that begins like a summary stands."""
    if following is None:
        return False
    before = max((known for known in chain if known < index), default=None)
    after = None if before is None else chain[before].end
    return len(history.between(after, chain[following].start)) >= FEWEST_SUMMARISED


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


def _gaps(seen: list[Seen], chain: Mapping[int, Stretch], derived: set[int], forgotten: set[int]) -> list[_Gap]:
    """Return the gaps in order, the last one behind all known messages; there, what equals a deleted message is new."""
    gaps = []
    after: float | None = None
    new: list[int] = []
    folded = False
    for index, item in enumerate(seen):
        if index in chain:
            new = [each for each in new if each not in forgotten]
            gaps.append(_gap(seen, new, after, chain[index].start, derived=folded))
            after, new, folded = chain[index].end, [], False
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
    superseded: tuple[Row, ...] = ()
    settled: bool = True
    crowded: bool = False


def _fill(history: History, gap: _Gap, *, settle: bool) -> _Filled:
    """Place the new messages of a gap, and tell an edit or an undo from an insertion."""
    last = gap.before is None
    undone = last and settle and gap.after is not None and not gap.derived
    if not gap.new and not undone:
        return _Filled(settled=not last or gap.derived or next(history.following(gap.after), None) is None)
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
        superseded=tuple(replaced),
        crowded=crowded,
    )


def _spread(after: float | None, before: float | None, count: int) -> list[float]:
    """Return places for messages between two others."""
    if before is None:
        return [(after or 0.0) + 1 + n for n in range(count)]
    if after is None:
        return [before - count + n for n in range(count)]
    return [after + (before - after) * (n + 1) / (count + 1) for n in range(count)]
