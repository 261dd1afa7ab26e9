"""The fast paths: a list that only grew since it was read last, and one that is recognised by its end."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from leporello.messages import copied, leading_systems
from leporello.store.reconcile.known import Addition, Plan, is_derived, is_row, once, stored_systems
from leporello.store.reconcile.seen import see

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leporello.messages import Message
    from leporello.store.reconcile.known import History, Origins, Row
    from leporello.store.reconcile.seen import Seen

RUN: Final = 64  # so many consecutive known messages make a list recognised
REACH: Final = 64  # so many messages at the end of a list may be new before the full reconciliation takes over


Version: TypeAlias = tuple[int, int]


class Read(NamedTuple):
    """A message of a list as it was read: a copy of it, what matching saw, and what it stands for."""

    message: Message
    seen: Seen
    origins: Origins


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What is remembered of a list: its length, its last messages by index, and at which version it was stored.

    A version is the number of the conversation and how often it was changed.
    """

    length: int
    version: Version
    end: dict[int, Read]


def remembered(
    messages: Sequence[Message], plan: Plan, origins: Mapping[int, Origins], version: Version, before: Reading | None
) -> Reading | None:
    """Remember a list that was just stored, for the next time; what was remembered before and is equal is kept.

    None for one that cannot be copied: a message in it is nested so deeply that it was only stored as its text.
    """
    known = {} if before is None else before.end
    reads = {}
    for index in range(max(plan.start, len(messages) - RUN), len(messages)):
        seen, read = plan.seen[index], known.get(index)
        if read is None or read.seen is not seen:
            try:
                read = Read(copied(messages[index]), seen, origins.get(index, ()))
            except RecursionError:
                return None
        reads[index] = read
    return Reading(length=len(messages), version=version, end=reads)


def extended(
    reading: Reading, messages: Sequence[Message], seen: Sequence[Seen], stored: Sequence[int], version: Version
) -> Reading:
    """Remember a list with messages that were appended to it since."""
    reads = {
        index: Read(copied(message), item, (number,))
        for index, (message, item, number) in enumerate(zip(messages, seen, stored, strict=True), reading.length)
    }
    length = reading.length + len(messages)
    end = {index: read for index, read in (reading.end | reads).items() if index >= length - RUN}
    return Reading(length=length, version=version, end=end)


def quick_plan(history: History, messages: Sequence[Message], reading: Reading, version: Version) -> Plan | None:
    """Recognise a list by its last messages, whatever its length, or return None.

    That it only grew since it was read last is tried first: then a message that repeats an older one is not taken for
    it. Else the newest stored messages are looked for near its end.
    """
    end = _End(messages, reading)
    return _grown(history, end, reading, version) or _recognised(history, end)


class _End:
    """The end of a list, read backwards as far as needed; what is still equal is not read again."""

    def __init__(self, messages: Sequence[Message], reading: Reading) -> None:
        self.messages = messages
        self.seen: dict[int, Seen] = {}
        self.prompts = leading_systems(messages)
        self._reads = reading.end

    def __getitem__(self, index: int) -> Seen:
        if index not in self.seen:
            read = self._reads.get(index)
            same = read is not None and read.message == self.messages[index]
            self.seen[index] = read.seen if read and same else self._see(index)
        return self.seen[index]

    def _see(self, index: int) -> Seen:
        return see(self.messages[index], f"messages[{index}]", system=index < self.prompts)

    def __len__(self) -> int:
        return len(self.messages)


def _grown(history: History, end: _End, reading: Reading, version: Version) -> Plan | None:
    """Return the plan for a list that begins as it was, when nothing else was stored meanwhile."""
    start = max(0, reading.length - RUN)
    if version != reading.version or not start <= reading.length <= len(end):
        return None
    reads = [reading.end.get(index) for index in range(start, reading.length)]
    keys = Counter(read.seen.call_key for read in reads if read)
    known: dict[int, Origins] = {}
    for index, read in enumerate(reads, start):
        if read is None or not _is_still(end[index], read.seen, unique=keys[read.seen.call_key] == 1):
            return None
        if read.origins and not read.seen.system:
            known[index] = read.origins
    newest = history.newest(1)
    return _plan(history, end, start, reading.length, known, newest[0].place) if newest else None


def _is_still(seen: Seen, before: Seen, *, unique: bool) -> bool:
    """Tell whether a message is the one that stood there before, perhaps with its output cleared."""
    same_call = unique and seen.call_key is not None and seen.call_key == before.call_key
    return seen.fingerprint == before.fingerprint or (same_call and seen.size <= before.size)


def _recognised(history: History, end: _End) -> Plan | None:
    """Return the plan for a list that has the newest stored messages near its end, so many of them in a row."""
    newest = history.newest(RUN)
    if len(newest) < RUN:
        return None
    for anchor in range(len(end) - 1, max(-1, len(end) - 1 - REACH), -1):
        if not end[anchor].system and is_row(end[anchor], newest[0]):
            known = _run(end, anchor, newest)
            if known:
                return _plan(history, end, min(known), anchor + 1, known, newest[0].place, sure=False)
    return None


def _run(end: _End, anchor: int, newest: Sequence[Row]) -> dict[int, Origins] | None:
    """Match the list backwards from `anchor`, message by message, with the newest rows; None when they differ."""
    known: dict[int, Origins] = {}
    keys: set[str] = set()
    rows = iter(newest)
    row = next(rows)
    for index in range(anchor, -1, -1):
        seen = end[index]
        if seen.system:
            continue
        # ids of calls that repeat identify nothing
        if seen.fingerprint != row.fingerprint and (seen.call_key in keys or not is_row(seen, row)):
            return None
        known[index] = (row.id,)
        keys.add(seen.call_key or "")
        following = next(rows, None)
        if following is None:
            return known
        row = following
    return None


def _plan(
    history: History, end: _End, start: int, new: int, known: dict[int, Origins], place: float, *, sure: bool = True
) -> Plan | None:
    """Return the plan for a list that is stored from `start` up to `new`; what stands there and behind is new.

    When that is not sure, a message there that an engine made of stored ones asks for a look at the whole list.
    """
    systems = [index for index in range(end.prompts) if end[index].system]
    stored = stored_systems(history, {end[index].fingerprint for index in systems}) if systems else {}
    added = [Addition(index=index, place=None) for index in systems if end[index].fingerprint not in stored]
    known |= {index: stored[end[index].fingerprint] for index in systems if end[index].fingerprint in stored}
    said = [index for index in range(new, len(end)) if not end[index].system]
    emitted = history.emitted({end[index].fingerprint for index in said}) if said else {}
    for index in said:
        made = emitted.get(end[index].fingerprint)
        if made and not is_derived(made) and not sure:
            return None
        if not is_derived(made):
            place += 1
            added.append(Addition(index=index, place=place))
    kept, repeated = once(end.seen, added)
    return Plan(start=start, known=known, added=kept, repeated=repeated, seen=end.seen)
