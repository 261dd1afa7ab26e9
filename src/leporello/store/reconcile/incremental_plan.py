"""The plan for a list that has grown since it was read last, or that is recognised by its last messages.

Only the end of the list is read, so the time does not grow with its length.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from leporello.messages import copied, leading_systems
from leporello.messages.listed_message import read_message
from leporello.store.reconcile.plan import Plan, in_a_row, is_derived, is_row, planned_prompt

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leporello.messages import Message
    from leporello.messages.listed_message import ListedMessage
    from leporello.store.reconcile.plan import BranchHistory, Origins, StoredRow

RUN: Final = 64  # consecutive known messages that make a list recognised
REACH: Final = 64  # messages at the end of a list that may be new before the full reconciliation takes over


Version: TypeAlias = tuple[int, int]


class Read(NamedTuple):
    """A message of a list that was read: a copy of it, its fields for matching, and its origins."""

    message: Message
    seen: ListedMessage
    origins: Origins


@dataclass(frozen=True, kw_only=True)
class ListState:
    """The state of a list that was read: its length, its last messages by index, and the version of the store then.

    A version is the number of the conversation and of its last change.
    """

    length: int
    version: Version
    end: dict[int, Read]


def remembered(
    messages: Sequence[Message], plan: Plan, origins: Mapping[int, Origins], version: Version, before: ListState | None
) -> ListState | None:
    """Return the state of a list that was just stored; None when a message is nested too deeply to be copied."""
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
    return ListState(length=len(messages), version=version, end=reads)


def extended(
    reading: ListState,
    messages: Sequence[Message],
    seen: Sequence[ListedMessage],
    stored: Sequence[int],
    version: Version,
) -> ListState:
    """Return the state of a list with messages that were appended to it."""
    reads = {
        index: Read(copied(message), item, (number,))
        for index, (message, item, number) in enumerate(zip(messages, seen, stored, strict=True), reading.length)
    }
    length = reading.length + len(messages)
    end = {index: read for index, read in (reading.end | reads).items() if index >= length - RUN}
    return ListState(length=length, version=version, end=end)


def incremental_plan(
    history: BranchHistory, messages: Sequence[Message], reading: ListState, version: Version
) -> Plan | None:
    """Return the plan for a list that is recognised by its last messages, or None.

    First it is compared with the list that was read before, so that a repeated message is not taken for the older one;
    then the newest stored messages are searched near its end.
    """
    end = _End(messages, reading)
    return _grown_plan(history, end, reading, version) or _recognised_by_end(history, end)


class _End(dict[int, "ListedMessage"]):
    """The messages of a list by index, read when they are first used; those equal to the last list are not read."""

    def __init__(self, messages: Sequence[Message], reading: ListState) -> None:
        super().__init__()
        self.messages = messages
        self.prompts = leading_systems(messages)
        self._reads = reading.end

    def __missing__(self, index: int) -> ListedMessage:
        message, read = self.messages[index], self._reads.get(index)
        same = read is not None and read.message == message
        seen = read.seen if read and same else read_message(message, f"messages[{index}]", system=index < self.prompts)
        self[index] = seen
        return seen


def _grown_plan(history: BranchHistory, end: _End, reading: ListState, version: Version) -> Plan | None:
    """Return the plan for a list that begins as the last one did, if nothing else was stored meanwhile."""
    start = max(0, reading.length - RUN)
    if version != reading.version or not start <= reading.length <= len(end.messages):
        return None
    reads = [reading.end.get(index) for index in range(start, reading.length)]
    keys = Counter(read.seen.call_key for read in reads if read)
    known: dict[int, Origins] = {}
    for index, read in enumerate(reads, start):
        if read is None or not is_row(end[index], read.seen, unique=keys[read.seen.call_key] == 1):
            return None
        if read.origins and not read.seen.system:
            known[index] = read.origins
    newest = history.newest(1)
    return _plan(history, end, start, reading.length, known, newest[0].place) if newest else None


def _recognised_by_end(history: BranchHistory, end: _End) -> Plan | None:
    """Return the plan for a list with the newest stored messages near its end, `RUN` of them in a row."""
    newest = history.newest(RUN)
    if len(newest) < RUN:
        return None
    for anchor in range(len(end.messages) - 1, max(-1, len(end.messages) - 1 - REACH), -1):
        if not end[anchor].system and is_row(end[anchor], newest[0]):
            known = _run(end, anchor, newest)
            if known:
                return _plan(history, end, min(known), anchor + 1, known, newest[0].place, sure=False)
    return None


def _run(end: _End, anchor: int, newest: Sequence[StoredRow]) -> dict[int, Origins] | None:
    """Match the list backwards from `anchor` with the newest rows; None when they differ."""
    known: dict[int, Origins] = {}
    keys: set[str | None] = set()
    said = (index for index in range(anchor, -1, -1) if not end[index].system)
    for row, index in zip(newest, said, strict=False):
        seen = end[index]
        if not is_row(seen, row, unique=seen.call_key not in keys):  # ids of calls that repeat identify nothing
            return None
        known[index] = (row.id,)
        keys.add(seen.call_key)
    return known if len(known) == len(newest) else None


def _plan(
    history: BranchHistory,
    end: _End,
    start: int,
    new: int,
    known: dict[int, Origins],
    place: float,
    *,
    sure: bool = True,
) -> Plan | None:
    """Return the plan for a list that is stored from `start` up to `new`; the messages from there on are new.

    None, so that the whole list is read, when a new message was made by an engine of stored ones (unless `sure`), or
    when the list begins with a system message from the middle, because its first messages were dropped.
    """
    prompt = [index for index in range(end.prompts) if end[index].system]
    known_prompt, new_prompt, repeated = planned_prompt(history, end, prompt)
    if new_prompt and history.rows({end[addition.index].fingerprint for addition in new_prompt}, (), ()):
        return None
    said = [index for index in range(new, len(end.messages)) if not end[index].system]
    emitted = history.emitted({end[index].fingerprint for index in said})
    made = {index: emitted.get(end[index].fingerprint) for index in said}
    if not sure and any(found and not is_derived(found) for found in made.values()):
        return None
    added = in_a_row([index for index in said if not is_derived(made[index])], place)
    return Plan(start=start, known=known | known_prompt, added=(*new_prompt, *added), repeated=repeated, seen=end)
