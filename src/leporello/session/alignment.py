"""Aligns the window with a client's list of messages that differs from it.

Clients remove a reminder from an older message, write the time into the first one, clear tool outputs, trim the oldest
messages, or move a block of files to the end. Only the verbatim parts of the window, its end and its beginning, are
compared with the list; folded messages stay folded.

- a message that only the window has stays: the client trimmed it, or never saw it
- a message in the place of another one replaces it; a tool output that got shorter was cleared, and stays
- a message that only the list has is inserted
- a note, which is a system message between others, is removed when the list no longer has it
- a message that was taken out and comes again behind the others was moved
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from leporello.messages import copied, is_system, role_of, spoken, text_of, tool_calls_of
from leporello.session.window import Source, entry_of
from leporello.store import Revision

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from leporello.messages import Message
    from leporello.session.conversation import Conversation
    from leporello.session.window import Entry, Window

WHY = "the client changed its history"
_FRONT = -1  # in front of everything that was said
_MOST_COMPARED = 400  # messages before those that are equal at the end


@dataclass(frozen=True, eq=False, kw_only=True)
class _Change:
    """A message of the list in the place of an entry of the window, or behind it."""

    at: int
    message: Message
    replaces: bool


def align(conversation: Conversation, listed: Sequence[Message]) -> None:
    """Change the window to a client's list, which ends with the newest answer of the window."""
    window = conversation.window
    start = _first_verbatim(window)
    names = conversation.attempt(conversation.engine.merged_tools, (), default=((), frozenset()))[1]
    hidden = _hidden_calls(window, names)
    shown = [at for at in range(len(window)) if _is_compared(window.entries[at], names, hidden)]
    tail = [at for at in shown if at >= start]
    said = [message for message in listed if not is_system(message)]
    changes = list(_changes(window, tail, said, folded=start > window.systems()))
    changes += _changes_of_head(window, [at for at in shown if at < start], said)
    inserted = next((change.at for change in changes if not change.replaces), None)
    if inserted is not None and _is_fresh_fork(conversation):
        _fork_earlier(conversation, changes, inserted)
    elif changes:
        before = window.tokens
        _apply(conversation, changes)
        conversation.put_back(window.tokens - before)


def add(
    conversation: Conversation, listed: Sequence[Message], new: Sequence[Message], known: Sequence[bytes] = ()
) -> None:
    """Add the messages of a client's list behind those that the window has.

    A message that the client removed from the middle of its list and sends again now was moved, not said again: its row
    in the store moves with it. Where another branch shares the row, the message is stored again, and its old entry is
    removed. Calls and their results are never moved.
    """
    taken_out = _taken_out(conversation, [message for message in listed if not is_system(message)])
    by_text = {spoken(entry.sources[0].message): entry for entry in taken_out}
    leading = (by_text.pop(spoken(message), None) for message in new[:-1])  # the last message is what was said
    moved = [entry for entry in takewhile(bool, leading) if entry is not None]
    if moved and _move(conversation, moved):
        new = new[len(moved) :]
    conversation.add(new, known)
    said = {spoken(message) for message in new}
    stored_again = [entry for entry in taken_out if spoken(entry.sources[0].message) in said]
    if stored_again:
        _remove(conversation, stored_again)


def drop_notes(conversation: Conversation, listed: Sequence[Message]) -> None:
    """Remove the notes that a client's list no longer has."""
    window = conversation.window
    if not window.has_notes:
        return
    spoken_left = sum(not is_system(message) for message in listed)
    kept = Counter(spoken(message) for message in listed if is_system(message))
    dropped: list[Entry] = []
    for entry in reversed(window.entries[_first_verbatim(window) :]):
        if not is_system(entry.message):
            spoken_left -= 1
            if spoken_left <= 0:
                break
        elif len(entry.sources) == 1:
            text = spoken(entry.sources[0].message)
            kept[text] -= 1
            if kept[text] < 0:
                dropped.append(entry)
    if dropped:
        _remove(conversation, dropped)


def _taken_out(conversation: Conversation, said: Sequence[Message]) -> list[Entry]:
    """Return the entries that a list has no more, though it has earlier and later ones."""
    window = conversation.window
    shown = [at for at in range(_first_verbatim(window), len(window)) if len(window.entries[at].sources) == 1]
    shown = [at for at in shown if not is_system(window.entries[at].message)]
    steps = _steps(_texts(window, shown), [spoken(message) for message in said])
    same = [number for number, step in enumerate(steps) if step.kind == "equal"]
    gone = [step for number, step in enumerate(steps) if step.kind == "delete" and same and same[0] < number < same[-1]]
    entries = [window.entries[at] for step in gone for at in shown[step.first : step.last]]
    return [entry for entry in entries if entry.role in ("user", "assistant") and "tool_calls" not in entry.message]


def _move(conversation: Conversation, entries: Sequence[Entry]) -> bool:
    """Move entries to the end of the window and of the branch; False when their rows have to stay where they are."""
    branch, persistence = conversation.branch, conversation.persistence
    ids = [entry.id or "" for entry in entries]
    if not branch.store.move(branch.conversation, ids, behind=persistence.tip or "", **branch.here):
        return False
    persistence.tip = ids[-1]
    _take_out(conversation, entries)
    conversation.window.extend(entry.sources[0].entry() for entry in entries)
    return True


def _remove(conversation: Conversation, entries: Sequence[Entry]) -> None:
    """Remove entries from the window, and from the branch if no other branch shares them."""
    branch = conversation.branch
    removals = [Revision(kind="remove", of=one.id or "", message=one.sources[0].message) for one in entries]
    ids = branch.store.revise(branch.conversation, removals, **branch.here)
    gone = [one for one, id_ in zip(entries, ids, strict=True) if id_ is not None]
    if gone:
        _take_out(conversation, gone)


def _take_out(conversation: Conversation, entries: Sequence[Entry]) -> None:
    window = conversation.window.entries
    first = min(window.index(one) for one in entries)
    conversation.change(first, [entry for entry in window[first:] if entry not in entries], WHY)


def _first_verbatim(window: Window) -> int:
    """Return the index of the first entry behind the last one that an engine wrote."""
    written = (
        at for at in range(len(window) - 1, -1, -1) if window.entries[at].is_block or window.entries[at].is_summary
    )
    return max(next(written, -1) + 1, window.systems())


def _is_compared(entry: Entry, names: frozenset[str], hidden: set[str]) -> bool:
    """Tell whether a client has the message of an entry: it does not have calls of engine tools and their results."""
    if len(entry.sources) != 1 or is_system(entry.message):
        return False
    if entry.role == "tool":
        return str(entry.message.get("tool_call_id")) not in hidden
    calls = tool_calls_of(entry.message) if names else ()
    return not (calls and all(call.name in names for call in calls))


def _hidden_calls(window: Window, names: frozenset[str]) -> set[str]:
    """Return the ids of the calls of the engine's tools."""
    calls = (call for message in window.messages if names for call in tool_calls_of(message))
    return {call.id for call in calls if call.name in names}


def _changes(window: Window, shown: list[int], said: Sequence[Message], *, folded: bool) -> Iterator[_Change]:
    """Yield the replaced and inserted messages of a list; none is inserted in front of a folded window."""
    for kind, first, last, start, stop in _steps(_texts(window, shown), [spoken(message) for message in said]):
        if kind in ("equal", "delete"):
            continue
        behind = shown[first - 1] if first else _FRONT
        for at, message in _paired(window, shown[first:last], said[start:stop]):
            if at is None:
                if behind != _FRONT or not folded:
                    yield _Change(at=behind, message=message, replaces=False)
                continue
            behind = at
            if not _is_cleared(window.entries[at], message):
                yield _Change(at=at, message=message, replaces=True)


def _texts(window: Window, shown: Sequence[int]) -> list[str]:
    return [spoken(window.entries[at].sources[0].message) for at in shown]


class _Step(NamedTuple):
    """One step of a diff: equal, replace, delete or insert, with the ranges of both lists."""

    kind: str
    first: int
    last: int
    start: int
    stop: int


def _steps(before: Sequence[str], after: Sequence[str]) -> list[_Step]:
    """Return the diff of two lists of texts, compared from their ends, as both end with the same answer."""
    steps = _from_the_front(before[::-1], after[::-1])
    n, m = len(before), len(after)
    return [_Step(kind, n - last, n - first, m - stop, m - start) for kind, first, last, start, stop in steps[::-1]]


def _from_the_front(one: Sequence[str], other: Sequence[str]) -> list[_Step]:
    """Return the diff of two lists, in which the equal texts at the front are one step.

    The number of texts compared behind those is bounded, as the time grows with its square.
    """
    same = _equal(one, other)
    cut = slice(same, same + _MOST_COMPARED)
    opcodes = SequenceMatcher(None, one[cut], other[cut], autojunk=False).get_opcodes()
    steps = [_Step(kind, a + same, b + same, c + same, d + same) for kind, a, b, c, d in opcodes]
    is_cut = max(len(one), len(other)) - same > _MOST_COMPARED
    if is_cut and steps and steps[-1].kind != "equal":  # what it stands against lies behind the cut
        del steps[-1]
    return [_Step("equal", 0, same, 0, same), *steps] if same else steps


def _equal(one: Sequence[object], other: Sequence[object]) -> int:
    """Return how many items at the front of two lists are equal."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))


def _changes_of_head(window: Window, shown: list[int], said: Sequence[Message]) -> list[_Change]:
    """Return the replaced messages at the beginning of a list, if it still has one of the first messages."""
    head: list[tuple[Entry, int, Message]] = []
    for at, message in zip(shown, said, strict=False):
        if window.entries[at].role != role_of(message):
            break
        head.append((window.entries[at], at, message))
    changed = [one for one in head if spoken(one[0].sources[0].message) != spoken(one[2])]
    if len(changed) == len(head):
        return []
    return [
        _Change(at=at, message=message, replaces=True)
        for entry, at, message in changed
        if not _is_cleared(entry, message)
    ]


def _paired(window: Window, places: Sequence[int], said: Sequence[Message]) -> list[tuple[int | None, Message]]:
    """Pair messages with entries of the same role, from the end; None for a message without an entry."""
    pairs: list[tuple[int | None, Message]] = []
    left = list(places)
    for message in reversed(said):
        at = next((at for at in reversed(left) if window.entries[at].role == role_of(message)), None)
        if at is not None:
            del left[left.index(at) :]
        pairs.append((at, message))
    return pairs[::-1]


def _is_cleared(entry: Entry, message: Message) -> bool:
    """Tell whether a tool's output only got shorter."""
    return entry.role == "tool" and len(text_of(message)) < len(text_of(entry.sources[0].message))


def _is_fresh_fork(conversation: Conversation) -> bool:
    """Tell whether a branch has no messages of its own yet."""
    tip, branch = conversation.persistence.tip, conversation.branch
    return bool(tip) and any(row.branch != branch.number for row in branch.get([tip]).values())


class _ByPlace:
    """Changes by the place of their entry."""

    def __init__(self, changes: Sequence[_Change]) -> None:
        self.replaced = {change.at: change for change in changes if change.replaces}
        self.inserted: dict[int, list[_Change]] = {}
        for change in changes:
            if not change.replaces:
                self.inserted.setdefault(change.at, []).append(change)


def _fork_earlier(conversation: Conversation, changes: Sequence[_Change], at: int) -> None:
    """Fork behind an entry and add the rest of the list again: a fork cannot change the messages that it shares."""
    window, persistence, by_place = conversation.window, conversation.persistence, _ByPlace(changes)
    start = window.systems() if at == _FRONT else at + 1
    said = [change.message for change in by_place.inserted.get(at, ())]
    for place in range(start, len(window)):
        change = by_place.replaced.get(place)
        said += [change.message] if change else window.entries[place].source_messages
        said += [change.message for change in by_place.inserted.get(place, ())]
    persistence.tip = "" if at == _FRONT else window.entries[at].id
    persistence.fork_behind_tip()
    conversation.change(start, [], WHY)
    conversation.add(said)


def _apply(conversation: Conversation, changes: Sequence[_Change]) -> None:
    """Store the changes and show them in the window."""
    window, branch, by_place = conversation.window, conversation.branch, _ByPlace(changes)
    revisions = [
        Revision(
            kind="replace" if change.replaces else "insert",
            of="" if change.at == _FRONT else window.entries[change.at].id or "",
            message=copied(change.message),
        )
        for change in changes
    ]
    ids = branch.store.revise(branch.conversation, revisions, **branch.here)
    entries = {
        change: _entry(revision.message, id_, window.entries[change.at])
        for change, revision, id_ in zip(changes, revisions, ids, strict=True)
    }
    front = window.systems()
    new = [entries[change] for change in by_place.inserted.get(_FRONT, ())]
    for at in range(front, len(window)):
        change = by_place.replaced.get(at)
        new.append(entries[change] if change else window.entries[at])
        new += [entries[change] for change in by_place.inserted.get(at, ())]
    same = _equal(new, window.entries[front:])
    conversation.change(front + same, new[same:], WHY)


def _entry(message: Message, id_: str | None, before: Entry) -> Entry:
    """Return the entry of a changed message; the stored one is not changed if other branches share it."""
    said = [Source(message=message, id=id_)] if id_ is not None else before.sources
    return entry_of(message, sources=said)
