"""A branch as it is loaded from the store: the entries of its saved window, and of the messages since."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING

from leporello.session.window import Source, entry_of
from leporello.summary.blocks import shown
from leporello.summary.payloads import is_shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leporello.messages import Message
    from leporello.session.window import Entry, Window
    from leporello.store import Branch, Stored, StoredWindow, WindowItem


@dataclass(frozen=True, kw_only=True)
class SavedBranch:
    """A branch as it was loaded: the items of its saved window with their entries, and those of the later messages.

    `whole` tells that every item has its entry, so that the journal can continue.
    """

    entries: list[Entry]
    later: list[Entry]
    items: tuple[WindowItem, ...]
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
    later, turn = _newest(branch, after=max(last, window.folded_to))
    if any(row.superseded for row in rows.values()):
        _insert_replacements(entries, branch, rows, window.folded_to, last)
    if turn:
        entries, later = _with_turn(entries, later, turn)
    systems = [] if items else _newest_system(branch)
    return SavedBranch(
        entries=entries,
        later=[_entry_of_row(row) for row in (*systems, *reversed(later))],
        items=items,
        whole=sum(len(entry.stored_as) for entry in entries) == len(items),
    )


def window_upto(branch: Branch, id_: str) -> list[Entry]:
    """Return the window that a fork behind a message begins with; an empty one if that message is folded."""
    saved = load(branch)
    entries = [*saved.entries, *saved.later]
    end = next((at + 1 for at, entry in enumerate(entries) if any(one.id == id_ for one in entry.sources)), 0)
    if not end:
        return []
    _, turn = _newest(branch, after=inf, upto=branch.get([id_])[id_].place)
    return _with_turn(entries[:end], [], turn)[0] if turn else entries[:end]


def _newest(branch: Branch, after: float, upto: float = inf) -> tuple[list[Stored], list[Stored]]:
    """Return the messages behind a place, and those from the newest message of the user on, each newest first.

    Messages behind the place `upto` are ignored.
    """
    later: list[Stored] = []
    turn: list[Stored] = []
    for row in branch.messages(newest_first=True):
        if row.place > upto:
            continue
        is_later = row.place > after
        asked = bool(turn) and turn[-1].role == "user"
        if asked and not is_later:
            break
        if is_later:
            later.append(row)
        if not asked:
            turn.append(row)
    return later, turn if turn and turn[-1].role == "user" else []


def _with_turn(entries: list[Entry], later: list[Stored], turn: Sequence[Stored]) -> tuple[list[Entry], list[Stored]]:
    """Return a window and the messages behind it with all of the newest turn, whose question may be folded or short."""
    question = turn[-1]
    entries = [_whole(entry, question) for entry in entries]
    shown = {one.id for entry in entries for one in entry.sources} | {row.id for row in later}
    if question.id in shown:
        return entries, later
    missing = [row for row in turn if row.id not in shown]
    at = _first_of(entries, {row.id for row in turn})
    if at is None:
        return entries, [*later, *missing]
    return [*entries[:at], *(_entry_of_row(row) for row in reversed(missing)), *entries[at:]], later


def _whole(entry: Entry, row: Stored) -> Entry:
    """Return the entry of a message that was shortened with all that it says; any other as it is."""
    is_its_own = entry.source_ids == (row.id,)
    return _entry_of_row(row) if is_its_own and is_shortened(entry.message, row.message) else entry


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
            group[0].get("as") or message, sources=[said[i] for i in message_ids(group) if i in said], stored_as=group
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
    return Source(message=row.message, id=row.id).entry()


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


def message_ids(items: Sequence[WindowItem]) -> list[str]:
    """Return the ids of the messages in these items."""
    return [item["m"] for item in items if "m" in item]
