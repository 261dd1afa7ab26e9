"""Makes the entries of a window: from the store (`load`), and from an engine's result (`folded_entries`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING

from leporello.messages import call_ids_of, fingerprint, is_system, leading_systems, role_of, text_of
from leporello.session.window import Entry, Source, entry_of
from leporello.summary.blocks import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from leporello.messages import Message
    from leporello.session.window import Window
    from leporello.store import Branch, Stored, StoredWindow, WindowItem


@dataclass(frozen=True, kw_only=True)
class SavedBranch:
    """A branch as it was loaded: the entries of its saved window, which has `items` items, and of the later messages.

    `whole` tells that every item has its entry, so that the journal can continue.
    """

    entries: list[Entry]
    later: list[Entry]
    items: int
    whole: bool

    def length_of(self, items: int) -> int:
        """Return the number of entries that the first `items` items make."""
        ends = accumulate(len(entry.stored_as) for entry in self.entries)
        return sum(end <= items for end in ends)

    def knows(self, ids: Iterable[str]) -> bool:
        """Tell whether it has all of these messages, in an entry or folded into a summary."""
        entries = [*self.entries, *self.later]
        summary = max((at for at, entry in enumerate(entries) if not entry.sources), default=-1)
        shown = {number_of(one.id): at for at, entry in enumerate(entries) for one in entry.sources if one.id}
        first = min((number for number, at in shown.items() if at > summary), default=0)
        return all(number in shown or number < first for number in map(number_of, ids))


def number_of(id_: str) -> int:
    """Return the number in the id of a stored message; numbers rise in order of storing."""
    return int(id_[1:])


def load(branch: Branch) -> SavedBranch:
    """Load a branch; the newest turn is shown in full, also if it is folded."""
    window = branch.window()
    items = window.items
    rows = branch.get(item.get("m") for item in items)
    entries = _saved(branch, window, rows)
    last = max((row.place for row in rows.values() if not row.system), default=window.folded_to)
    later: list[Stored] = []
    turn: list[Stored] = []
    for row in branch.messages(newest_first=True):
        is_new = row.place > max(last, window.folded_to)
        if is_new:
            later.append(row)
        if not turn or turn[-1].role != "user":
            turn.append(row)
        elif not is_new:
            break
    shown = {one.id for entry in entries for one in entry.sources}
    if any(row.superseded for row in rows.values()):
        _insert_replacements(entries, branch, rows, window.folded_to, last)
    if turn and turn[-1].role == "user" and turn[-1].id not in shown | {row.id for row in later}:
        missing = [row for row in turn if row.id not in shown and row not in later]
        at = _first_of(entries, {row.id for row in turn})
        if at is None:
            later += missing
        else:
            entries[at:at] = [_entry_of_row(row) for row in reversed(missing)]
    later.reverse()
    systems = [] if items else _newest_system(branch)
    return SavedBranch(
        entries=entries,
        later=[_entry_of_row(row) for row in (*systems, *later)],
        items=len(items),
        whole=sum(len(entry.stored_as) for entry in entries) == len(items),
    )


def _first_of(entries: Sequence[Entry], ids: set[str]) -> int | None:
    """Return the index of the first entry with one of these messages."""
    return next((at for at, entry in enumerate(entries) if any(one.id in ids for one in entry.sources)), None)


def _insert_replacements(
    entries: list[Entry], branch: Branch, rows: dict[str, Stored], after: float, before: float
) -> None:
    """Insert the messages that replaced others since the window was saved, in order of place."""
    missing = [row for row in branch.messages() if after < row.place <= before and row.id not in rows]
    for row in missing:
        places = [max((rows[one.id].place for one in entry.sources if one.id in rows), default=0) for entry in entries]
        at = next((at for at, place in enumerate(places) if place > row.place), len(entries))
        entries.insert(at, _entry_of_row(row))
        rows[row.id] = row


def _saved(branch: Branch, window: StoredWindow, rows: dict[str, Stored]) -> list[Entry]:
    items = window.items
    if any("n" in item for item in items):
        messages = shown(branch)
    else:
        messages = [message for item in items if (message := _message(item, rows)) is not None]
    said = {id_: Source(message=row.message, id=id_) for id_, row in rows.items() if not row.superseded}
    groups = grouped([item for item in items if "m" not in item or item["m"] in rows])  # others were deleted since
    entries = [
        entry_of(
            group[0].get("as") or message, sources=[said[i] for i in _message_ids(group) if i in said], stored_as=group
        )
        for message, group in zip(messages, groups, strict=False)
    ]
    gone = {id_ for id_, row in rows.items() if row.superseded}
    return [entry for entry in entries if entry.stored_as[0].get("m") not in gone]


def _message(item: WindowItem, rows: dict[str, Stored]) -> Message | None:
    if "t" in item:
        return item.get("as") or {"role": item["role"], "content": item["t"]}
    if item.get("as", True) is None or item["m"] not in rows:
        return None
    return item.get("as") or rows[item["m"]].message


def _newest_system(branch: Branch) -> list[Stored]:
    systems = [row for row in branch.messages(system=True) if row.system]
    return sorted(systems, key=lambda row: row.seq)[-1:]


def _entry_of_row(row: Stored) -> Entry:
    return entry_of(row.message, sources=[Source(message=row.message, id=row.id)])


def place_of(window: Window, id_: str) -> int:
    """Return the index at which a stored message belongs: before the first one that was stored after it."""
    number = number_of(id_)
    at = next(
        (at for at, entry in enumerate(window) if any(one.id and number_of(one.id) > number for one in entry.sources)),
        len(window),
    )
    while 0 < at < len(window) and window.entries[at].role == "tool":
        at -= 1
    return max(at, window.systems())


def common_prefix(window: Window, entries: Sequence[Entry]) -> int:
    """Return how many leading entries have the same content in both."""
    count = 0
    for old, new in zip(window.entries, entries, strict=False):
        if old.wire != new.wire:
            break
        count += 1
    return count


def grouped(items: Sequence[WindowItem]) -> list[list[WindowItem]]:
    """Group the items that make one message: neighbouring nodes, and `as: None` with the message before it."""
    groups: list[list[WindowItem]] = []
    for item in items:
        follows = groups and ("n" in item and "n" in groups[-1][-1])
        hidden = groups and "m" in item and item.get("as", True) is None
        if follows or hidden:
            groups[-1].append(item)
        else:
            groups.append([item])
    return groups


def _message_ids(items: Sequence[WindowItem]) -> list[str]:
    """Return the ids of the messages in these items."""
    return [item["m"] for item in items if "m" in item]


def proposed_entries(result: Sequence[Message], items: Sequence[WindowItem], before: Sequence[Entry]) -> list[Entry]:
    """Return the entries of a result that an engine proposed with these items; [] when their numbers differ."""
    groups = grouped(items)
    if len(groups) != len(result):
        return []
    said = {one.id: one for entry in before for one in entry.sources}
    return [
        entry_of(
            message, sources=[said[i] for i in _message_ids(group) if i in said], stored_as=_as_sent(group, message)
        )
        for message, group in zip(result, groups, strict=True)
    ]


def _as_sent(group: list[WindowItem], message: Message) -> list[WindowItem]:
    """Add the message itself to the items of a block: its text depends on the rest of the window, which changes."""
    more = "n" in group[0] or ("t" in group[0] and message.keys() - {"role", "content"})
    return [{**group[0], "as": message}, *group[1:]] if more else group


def folded_entries(result: Sequence[Message], given: Sequence[Message], before: Sequence[Entry]) -> list[Entry]:
    """Return the entries of an engine's result; `given` are the messages that it was given, `before` their entries.

    An unchanged message keeps its entry. A shortened one, or one with a summary in front, keeps the sources of the
    message that it was made of. Any other was written by the engine.
    """
    matches = _Matches(given, before)
    places = [matches.same(message) for message in result]
    prompt = leading_systems(result)
    for index, message in enumerate(result):
        if places[index] is None and (index < prompt or not is_system(message)):
            places[index] = matches.made_of(message, _next_place(places, index, len(before)))
    entries = [_folded(message, before, place) for message, place in zip(result, places, strict=True)]
    return _with_newest(entries, before)


class _Matches:
    """Finds the entry behind each message of a result; every entry is used once, equal ones in order."""

    def __init__(self, given: Sequence[Message], before: Sequence[Entry]) -> None:
        self._before = before
        self._objects = {id(message): place for place, message in enumerate(given)}
        self._texts: dict[str, list[int]] | None = None
        self._places: dict[tuple[str, ...], list[int]] | None = None
        self._used: set[int] = set()

    def same(self, message: Message) -> int | None:
        """Return the entry with the same message."""
        place = self._objects.get(id(message))
        if place is None or place in self._used or message != self._before[place].message:
            place = self._equal(message)
        if place is not None:
            self._used.add(place)
        return place

    def made_of(self, message: Message, following: int) -> int | None:
        """Return the entry that a changed message was made of."""
        place = next((at for at in self._candidates(message, following) if at not in self._used), None)
        if place is not None:
            self._used.add(place)
        return place

    def _equal(self, message: Message) -> int | None:
        if self._texts is None:
            self._texts = {}
            for place in range(len(self._before) - 1, -1, -1):
                self._texts.setdefault(fingerprint(self._before[place].message), []).append(place)
        places = self._texts.get(fingerprint(message), [])
        while places and places[-1] in self._used:
            places.pop()
        return places[-1] if places else None

    def _candidates(self, message: Message, following: int) -> Iterator[int]:
        """Yield the entries that a changed message may come from: with the same calls, or whose text it contains."""
        yield from self._keys().get(_key(message), ())
        last = following - 1
        if role_of(message) == "assistant" and last >= 0 and self._before[last].role == "assistant":
            text = text_of(self._before[last].message)
            if text and text in text_of(message):
                yield last

    def _keys(self) -> dict[tuple[str, ...], list[int]]:
        if self._places is None:
            self._places = {}
            prompt = leading_systems([entry.message for entry in self._before])
            for place, entry in enumerate(self._before):
                if entry.sources and (key := _key(entry.message)) and (place < prompt or not is_system(entry.message)):
                    self._places.setdefault(key, []).append(place)
        return self._places


def _key(message: Message) -> tuple[str, ...]:
    """Return what identifies a message whose text was changed: its calls, the call it answers, or the system prompt."""
    if is_system(message):
        return ("system",)
    if role_of(message) == "tool":
        return ("tool", str(message.get("tool_call_id")))
    ids = call_ids_of(message)
    return ("calls", *ids) if ids else ()


def _next_place(places: Sequence[int | None], index: int, end: int) -> int:
    return next((place for place in places[index + 1 :] if place is not None), end)


def _folded(message: Message, before: Sequence[Entry], place: int | None) -> Entry:
    if place is None:
        return entry_of(message)
    entry = before[place]
    return entry if message == entry.message else entry_of(message, sources=entry.sources)


def _with_newest(entries: list[Entry], before: Sequence[Entry]) -> list[Entry]:
    """Add the newest stored message to the last entry as hidden, so that a resumed window knows where it ends."""
    newest = next((entry.sources[-1] for entry in reversed(before) if entry.sources), None)
    if newest is None or newest.id is None or any(newest in entry.sources for entry in entries):
        return entries
    hidden: WindowItem = {"m": newest.id, "as": None, "folded": True}
    return [*entries[:-1], replace(entries[-1], stored_as=(*entries[-1].items(), hidden))]
