"""A client's list that tells the conversation differently than the window does: what it changed is taken over.

Clients take a reminder out of an older message, write the time into the first one, clear outputs, trim their head, or
move a block of files to the end. Only what the window shows word by word is compared, its end and its beginning: what
is folded stays so.

- what the window has and the list has not stays: the client trimmed it, or never saw it
- a message in the place of another one replaces it; an output that got shorter was cleared, and stays
- what the list has more is inserted
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher
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


@dataclass(frozen=True, kw_only=True)
class _Change:
    """A message of the list in the place of an entry of the window, or behind it."""

    at: int
    message: Message
    replaces: bool


def follow(conversation: Conversation, listed: Sequence[Message]) -> None:
    """Take over what a client's list, which ends with the newest answer of the window, tells differently."""
    window = conversation.window
    start = _first_word_by_word(window)
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
        _carry_out(conversation, changes)


def add(
    conversation: Conversation, listed: Sequence[Message], new: Sequence[Message], known: Sequence[bytes] = ()
) -> None:
    """Add what a client's list has behind the part that the window shows.

    What it took out between messages that it still has, and says again now, was moved: it is shown once, at its new
    place. Calls and their results are never taken for moved.
    """
    taken_out = _taken_out(conversation, [message for message in listed if not is_system(message)])
    conversation.add(new, known)
    again = {spoken(message) for message in new}
    moved = [entry for entry in taken_out if spoken(entry.sources[0].message) in again]
    if moved:
        _remove(conversation, moved)


def _taken_out(conversation: Conversation, said: Sequence[Message]) -> list[Entry]:
    """Return the entries that stand between others that a list still has."""
    window = conversation.window
    shown = [at for at in range(_first_word_by_word(window), len(window)) if len(window.entries[at].sources) == 1]
    shown = [at for at in shown if not is_system(window.entries[at].message)]
    steps = _steps(_texts(window, shown), [spoken(message) for message in said])
    same = [number for number, step in enumerate(steps) if step.kind == "equal"]
    gone = [step for number, step in enumerate(steps) if step.kind == "delete" and same and same[0] < number < same[-1]]
    entries = [window.entries[at] for step in gone for at in shown[step.first : step.last]]
    return [entry for entry in entries if entry.role in ("user", "assistant") and "tool_calls" not in entry.message]


def _remove(conversation: Conversation, entries: Sequence[Entry]) -> None:
    """Take entries out of the window, and out of the path where no other branch has them."""
    branch = conversation.branch
    removals = [Revision(kind="remove", of=one.id or "", message=one.sources[0].message) for one in entries]
    ids = branch.store.revise(branch.conversation, removals, **branch.here)
    gone = [one for one, id_ in zip(entries, ids, strict=True) if id_ is not None]
    if gone:
        window = conversation.window.entries
        first = min(window.index(one) for one in gone)
        conversation.change(first, [entry for entry in window[first:] if entry not in gone], WHY)


def _first_word_by_word(window: Window) -> int:
    """Return where the window begins to show what was said, behind the last entry that an engine wrote."""
    written = (
        at for at in range(len(window) - 1, -1, -1) if window.entries[at].is_block or window.entries[at].is_summary
    )
    return max(next(written, -1) + 1, window.systems())


def _is_compared(entry: Entry, names: frozenset[str], hidden: set[str]) -> bool:
    """Tell whether a client knows what an entry shows: not the calls of the engine's tools, and their results."""
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
    """Yield what a list has in the place of entries, and what it has more; in front of a folded window, nothing."""
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
    """What becomes of a run of the window's texts in a list: equal, replace, delete or insert."""

    kind: str
    first: int
    last: int
    start: int
    stop: int


def _steps(before: Sequence[str], after: Sequence[str]) -> list[_Step]:
    """Compare two lists of texts from their ends on: both end with the same answer."""
    matcher = SequenceMatcher(None, before[::-1], after[::-1], autojunk=False)
    ends = len(before), len(after)
    return [
        _Step(kind, ends[0] - last, ends[0] - first, ends[1] - stop, ends[1] - start)
        for kind, first, last, start, stop in reversed(_from_the_front(matcher, before[::-1], after[::-1]))
    ]


def _from_the_front(matcher: SequenceMatcher[str], one: Sequence[str], other: Sequence[str]) -> list[_Step]:
    """Return the steps between two lists, of which what is equal at their front stays so.

    Only so much behind that is compared: what it takes grows with the square, and a client may send anything.
    """
    same = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    matcher.set_seqs(one[same : same + _MOST_COMPARED], other[same : same + _MOST_COMPARED])
    steps = [_Step(kind, a + same, b + same, c + same, d + same) for kind, a, b, c, d in matcher.get_opcodes()]
    is_cut = max(len(one), len(other)) - same > _MOST_COMPARED
    if is_cut and steps and steps[-1].kind != "equal":  # what it stands against lies behind the cut
        del steps[-1]
    return [_Step("equal", 0, same, 0, same), *steps] if same else steps


def _changes_of_head(window: Window, shown: list[int], said: Sequence[Message]) -> list[_Change]:
    """Return what a list has in the place of the first messages, if it still begins with some of them."""
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
    """Return messages with the entry of the same role that each stands for, from the end on; None for what is more."""
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
    """Tell whether nothing was said on a branch yet: all that it shows is of the branch that it was forked from."""
    tip, branch = conversation.persistence.tip, conversation.branch
    return bool(tip) and any(row.branch != branch.number for row in branch.get([tip]).values())


def _fork_earlier(conversation: Conversation, changes: Sequence[_Change], at: int) -> None:
    """Go on on a fork behind an entry, and say again what a list has behind it: a fork cannot change what it shares."""
    window, persistence = conversation.window, conversation.persistence
    replaced = {change.at: change.message for change in changes if change.replaces}
    inserted: dict[int, list[Message]] = {}
    for change in changes:
        if not change.replaces:
            inserted.setdefault(change.at, []).append(change.message)
    start = window.systems() if at == _FRONT else at + 1
    said = list(inserted.get(at, ()))
    for place in range(start, len(window)):
        said += [replaced.get(place, window.entries[place].message), *inserted.get(place, ())]
    persistence.tip = "" if at == _FRONT else window.entries[at].id
    persistence.fork_behind_tip()
    conversation.change(start, [], WHY)
    conversation.add(said)


def _carry_out(conversation: Conversation, changes: Sequence[_Change]) -> None:
    """Store what was changed, and show it."""
    window, branch = conversation.window, conversation.branch
    revisions = [
        Revision(
            kind="replace" if change.replaces else "insert",
            of="" if change.at == _FRONT else window.entries[change.at].id or "",
            message=copied(change.message),
        )
        for change in changes
    ]
    ids = branch.store.revise(branch.conversation, revisions, **branch.here)
    replaced: dict[int, Entry] = {}
    inserted: dict[int, list[Entry]] = {}
    for change, revision, id_ in zip(changes, revisions, ids, strict=True):
        said = Source(message=revision.message, id=id_)
        if not change.replaces:
            inserted.setdefault(change.at, []).append(entry_of(said.message, sources=[said]))
        elif id_ is None:  # other branches have it too: it is shown as it is told now
            replaced[change.at] = entry_of(said.message, sources=window.entries[change.at].sources)
        else:
            replaced[change.at] = entry_of(said.message, sources=[said])
    front = window.systems()
    entries = list(inserted.get(_FRONT, ()))
    for at in range(front, len(window)):
        entries += [replaced.get(at, window.entries[at]), *inserted.get(at, ())]
    same = next(n for n, entry in enumerate(entries) if entry is not window.entries[front + n])
    conversation.change(front + same, entries[same:], WHY)
