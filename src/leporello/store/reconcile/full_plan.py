"""The plan for a list that is read as a whole.

A host hands over its whole list, perhaps with its oldest messages dropped, tool outputs cleared, or a summary in front.
If every message is the next stored one, the rest is appended (`continuation_plan`). Otherwise the list is aligned with
the stored messages: as many as possible are matched in order (`longest_chain`), and each gap between two matches is
an insertion, an edit, a summary, or at the end an undo.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import TYPE_CHECKING

from leporello.messages import leading_systems
from leporello.messages.listed_message import read_message
from leporello.store.reconcile.continuation_plan import continuation_plan
from leporello.store.reconcile.longest_chain import Stretch, longest_chain, nearest
from leporello.store.reconcile.plan import (
    END,
    START,
    Plan,
    in_a_row,
    is_derived,
    is_shortened,
    placed,
    planned_prompt,
    spread,
    stored_systems,
)
from leporello.store.reconcile.same_conversation import has_answers, is_same_conversation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence, Set as AbstractSet

    from leporello.messages import Message
    from leporello.messages.listed_message import ListedMessage
    from leporello.store.reconcile.incremental_plan import ListState
    from leporello.store.reconcile.plan import Addition, BranchHistory, Emitted, Origins, StoredRow

FEWEST_SUMMARISED = 2  # messages; a summary stands for more than one


def full_plan(
    history: BranchHistory, messages: Sequence[Message], *, reading: ListState | None = None, settle: bool = False
) -> Plan:
    """Match a whole list with the stored history; `reading` is the state of the list that was read before, if any.

    With `settle`, stored messages behind the last one of the list count as undone even when nothing new follows.
    """
    seen = [read_message(message, f"messages[{index}]") for index, message in enumerate(messages)]
    for index in range(_prompt_length(history, messages, seen)):
        seen[index] = seen[index]._replace(system=True)
    emitted = history.emitted({item.fingerprint for item in seen})
    body = continuation_plan(history, seen, emitted) or _alignment_plan(history, seen, emitted, reading, settle=settle)
    prompt = [index for index, item in enumerate(seen) if item.system]
    known_prompt, new_prompt, repeated = planned_prompt(history, seen, prompt)
    shared = _shared(history, seen, emitted, body.known)
    return replace(
        body,
        seen=seen,
        known=body.known | known_prompt,
        added=(*new_prompt, *body.added),
        repeated=repeated,
        full=True,
        shared=shared,
        fits=body.fits and (shared > 0 or not body.added),
    )


def _shared(
    history: BranchHistory, seen: Sequence[ListedMessage], emitted: Emitted, known: Mapping[int, Origins]
) -> int:
    """Count the messages of a list that are stored on the path, or in the list that an engine handed out last."""
    made = [item.fingerprint for index, item in enumerate(seen) if item.fingerprint in emitted and index not in known]
    handed = history.handed_out() if made else None
    return len(known) + (len({*made} & {*handed.marks}) if handed else 0)


def _prompt_length(history: BranchHistory, messages: Sequence[Message], seen: list[ListedMessage]) -> int:
    """Return the number of messages of the system prompt: leading system messages, up to one stored as another message.

    A list whose first messages were dropped may begin with a system message from the middle.
    """
    leading = leading_systems(messages)
    marks = {item.fingerprint for item in seen[:leading]}
    later = {row.fingerprint for row in history.rows(marks, (), ())} if marks else set()
    prompts = stored_systems(history, later) if later else {}
    return next((at for at in range(leading) if seen[at].fingerprint in later - prompts.keys()), leading)


def _alignment_plan(
    history: BranchHistory, seen: list[ListedMessage], emitted: Emitted, reading: ListState | None, *, settle: bool
) -> Plan:
    """Return the plan for a list that was shortened, edited or folded.

    A list that would undo messages, and does not show that it is of this conversation, begins a new root.
    """
    stored = _Stored(history, seen, emitted)
    chain = longest_chain({index: stored.options(item) for index, item in enumerate(seen) if not item.system})
    derived = _derived(history, seen, emitted, chain, stored.fingerprints)
    forgotten = _deleted(history, seen, chain.keys() | derived)
    gaps = [_filled(history, seen, gap, settle=settle) for gap in _gaps(seen, chain, derived, forgotten)]
    known = {index: stretch.ids for index, stretch in chain.items()}
    sure = is_same_conversation(seen, chain, emitted, reading)
    if any(gap.superseded for gap in gaps) and not sure:
        deleted = forgotten if has_answers(seen, forgotten) else set()
        new = any(gap.new for gap in gaps)
        return _new_root_plan(history, seen, deleted) if new else Plan(known=known, settled=False)
    taken_back = bool(gaps[-1].superseded)
    changed = next((gap for gap in gaps[:-1] if gap.added), None)
    if changed and (taken_back or _changes_shared(history, gaps)):
        return _fork_plan(history, seen, known, changed, derived | forgotten)
    return Plan(
        known=known,
        added=tuple(addition for gap in gaps for addition in gap.added),
        superseded=tuple(row.id for gap in gaps for row in gap.superseded),
        fork=gaps[-1].after if taken_back else None,
        fits=not taken_back and changed is None,
        sure=sure,
        settled=gaps[-1].settled,
        crowded=any(gap.crowded for gap in gaps),
    )


def _changes_shared(history: BranchHistory, gaps: Sequence[_Gap]) -> bool:
    """Tell whether a list changes messages that are shared with other branches."""
    shared = history.shared_to()
    places = [addition.place for gap in gaps for addition in gap.added]
    places += [row.place for gap in gaps for row in gap.superseded]
    return any(place is not None and place <= shared for place in places)


def _fork_plan(
    history: BranchHistory,
    seen: list[ListedMessage],
    known: Mapping[int, Origins],
    gap: _Gap,
    ignored: AbstractSet[int],
) -> Plan:
    """Return the plan for a list that forks at a gap: everything behind it is stored on the fork."""
    first = gap.new[0]
    said = [index for index in range(first, len(seen)) if not (seen[index].system or index in ignored)]
    return Plan(
        known={index: ids for index, ids in known.items() if index < first},
        added=in_a_row(said, gap.after),
        superseded=tuple(row.id for row in history.between(gap.after)),
        fork=gap.after,
        fits=False,
        sure=True,
    )


def _new_root_plan(history: BranchHistory, seen: list[ListedMessage], deleted: AbstractSet[int]) -> Plan:
    """Return the plan for a new root: all messages are new, except those that were deleted on purpose.

    Their places are behind those of the path, so that roots are listed one after the other.
    """
    said = [index for index, item in enumerate(seen) if not item.system and index not in deleted]
    added = in_a_row(said, history.newest(1)[0].place)
    return Plan(added=added, root=bool(added), fits=not added, settled=bool(added))


class _Stored:
    """The stored messages that may match those of a list."""

    def __init__(self, history: BranchHistory, seen: list[ListedMessage], emitted: Emitted) -> None:
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

    def options(self, item: ListedMessage) -> list[tuple[Stretch, bool]]:
        """Return the stored messages that the next message of the list may match, and whether exactly."""
        exact = self._same.next(item.fingerprint)
        shortened = [row for row in self._called.only(item.call_key) if row not in exact and is_shortened(item, row)]
        made = [ids for ids in self._emitted.get(item.fingerprint, ()) if ids and self._by_id.keys() >= {*ids}]
        return [
            *((Stretch(self._by_id[ids[0]].place, self._by_id[ids[-1]].place, ids), True) for ids in made),
            *((Stretch(row.place, row.place, (row.id,)), True) for row in exact if (row.id,) not in made),
            *((Stretch(row.place, row.place, (row.id,)), False) for row in shortened),
        ]


class _Equals:
    """Rows by a key, returned for one message with that key after the other."""

    def __init__(self, rows: Sequence[StoredRow], keys: Sequence[str | None], wanted: Sequence[str | None]) -> None:
        self._rows: dict[str, list[StoredRow]] = {}
        for row, key in zip(rows, keys, strict=True):
            if key is not None:
                self._rows.setdefault(key, []).append(row)
        self._totals = Counter(wanted)
        self._numbers: Counter[str] = Counter()

    def next(self, key: str | None) -> Sequence[StoredRow]:
        """Return the rows that the next message with this key may match."""
        if key is None or key not in self._rows:
            return []
        self._numbers[key] += 1
        return nearest(self._rows[key], self._numbers[key] - 1, self._totals[key])

    def only(self, key: str | None) -> Sequence[StoredRow]:
        """Return the row with a key that one message and one row have: ids of calls that repeat identify nothing."""
        rows = self._rows.get(key or "", [])
        return rows if len(rows) == self._totals[key] == 1 else []


def _derived(
    history: BranchHistory,
    seen: list[ListedMessage],
    emitted: Emitted,
    chain: Mapping[int, Stretch],
    stored: AbstractSet[str],
) -> set[int]:
    """Return the messages that an engine wrote: those in `emitted`, and summaries of other hosts.

    A text with the prefix of a summary is one only if stored messages are missing at its place, directly before a
    matched one: any text can have the prefix. A message that an engine passed on unchanged, and that has no match, is
    new.
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
        if written or (item.marked and _replaces_stored(history, chain, index, following)):
            derived.add(index)
        else:
            following = None
    return derived


def _replaces_stored(history: BranchHistory, chain: Mapping[int, Stretch], index: int, following: int | None) -> bool:
    """Tell whether stored messages are missing at the place of a text with the prefix of a summary."""
    if following is None:
        return False
    before = max((known for known in chain if known < index), default=None)
    after = START if before is None else chain[before].end
    missing = islice(history.between(after, chain[following].start), FEWEST_SUMMARISED)
    return len(list(missing)) == FEWEST_SUMMARISED


@dataclass(frozen=True, kw_only=True)
class _Gap:
    """The new messages between two matched ones of a list, and the rows between those: what is added and replaced."""

    new: list[int]
    derived: bool
    after: float
    before: float
    added: tuple[Addition, ...] = ()
    superseded: tuple[StoredRow, ...] = ()
    settled: bool = True
    crowded: bool = False


def _deleted(history: BranchHistory, seen: list[ListedMessage], explained: AbstractSet[int]) -> set[int]:
    """Return the messages of a list that were deleted from the store on purpose."""
    marks = {
        index: {mark for mark in (item.fingerprint, item.call_key) if mark is not None}
        for index, item in enumerate(seen)
        if index not in explained
    }
    gone = history.forgotten({mark for both in marks.values() for mark in both})
    return {index for index, both in marks.items() if both & gone}


def _gaps(
    seen: list[ListedMessage], chain: Mapping[int, Stretch], derived: set[int], forgotten: set[int]
) -> list[_Gap]:
    """Return the gaps in order; in the last one, behind all matches, a message that equals a deleted one is new."""
    gaps = []
    after = START
    new: list[int] = []
    folded = False
    for index, item in enumerate(seen):
        if index in chain:
            new = [each for each in new if each not in forgotten]
            gaps.append(_Gap(new=new, derived=folded, after=after, before=chain[index].start))
            after, new, folded = chain[index].end, [], False
        elif index in derived:
            folded = True
        elif not item.system:
            new.append(index)
    return [*gaps, _Gap(new=new, derived=folded, after=after, before=END)]


def _filled(history: BranchHistory, seen: list[ListedMessage], gap: _Gap, *, settle: bool) -> _Gap:
    """Return a gap with its additions: an edit or an undo replaces stored messages, an insertion does not."""
    last = gap.before == END
    undone = last and settle and gap.after != START and not gap.derived
    if not gap.new and not undone:
        settled = not last or gap.derived or next(history.between(gap.after), None) is None
        return gap if settled else replace(gap, settled=False)
    rows = list(history.between(gap.after, gap.before))
    if last and not gap.derived:
        return replace(gap, added=in_a_row(gap.new, gap.after), superseded=tuple(rows))
    if not gap.derived and [row.role for row in rows] == [seen[index].role for index in gap.new]:
        return replace(gap, added=placed(gap.new, [row.place for row in rows]), superseded=tuple(rows))
    after = rows[-1].place if rows else gap.after
    places = spread(len(gap.new), after, gap.before)
    crowded = any(left >= right for left, right in pairwise((after, *places, gap.before)))
    return replace(gap, added=placed(gap.new, places), crowded=crowded)
