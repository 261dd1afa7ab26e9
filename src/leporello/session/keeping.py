"""The part of a turn that keeps things: what was said, what the lines stand for, what was sent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from leporello.errors import StoreError
from leporello.messages import role_of, text_of
from leporello.session import steps
from leporello.session.lines import Said, line_of
from leporello.session.walk import telling, trying
from leporello.store.codec import verbatim

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from leporello.messages import Message
    from leporello.session.conversation import Conversation
    from leporello.session.lines import Line
    from leporello.session.walk import Walk
    from leporello.store import Request

SLICE_MESSAGES = 64
SLICE_CHARACTERS = 256 * 1024
"""How much is stored in one transaction: others that write wait for no more than that."""

_RECENT = 8  # lines at the end: there the newest message is nearly always, so they are looked at first


def saying(talk: Conversation, message: Message) -> Walk[None]:
    """Store a message that the session itself received or made, and put it into the window."""
    said = Said(message=message)
    yield from storing(talk, [said])
    talk.window.extend([line_of(message, said=[said])])


def hearing(talk: Conversation, message: Message, lines: int, row: Request) -> Walk[None]:
    """Store the answer to a request and the request's row of the journal, at once, and put it into the window."""
    if talk.waiting:  # what the row speaks of must be stored first
        yield from saying(talk, message)
        yield from writing(talk, lines, row)
        return
    said = Said(message=message)
    entry = _entry(talk, lines, row)
    yield from storing(talk, [said], entry.row)
    if talk.waiting:
        talk.unwritten.append(row)
    else:
        entry.note(talk)
    talk.window.extend([line_of(message, said=[said])])


def storing(talk: Conversation, said: Sequence[Said] = (), row: Request | None = None) -> Walk[None]:
    """Store what was said, and what the store could not take before; when it fails again, the conversation goes on."""
    if not (talk.waiting or said):
        return
    if said:
        talk.newest = said[-1]
    waiting = [*talk.unspoken, *talk.waiting, *said]
    if talk.withdrawn and talk.withdrawn[0][1] not in waiting:
        yield from withdrawing(talk)
        if talk.withdrawn and talk.withdrawn[0][1] not in waiting:
            _check(said)
            talk.unspoken, talk.waiting = [], waiting
            yield from telling(talk, "the conversation is not stored at the moment: an undo waits for the store")
            return
    slices = list(_slices(waiting, [last for _, last in talk.withdrawn]))
    if len(slices) > 1:  # a message that cannot be stored is refused before any is
        _check(said)
    for number, part in enumerate(slices, 1):
        try:
            request = row if number == len(slices) else None
            ids = yield steps.Append(messages=[one.message for one in part], request=request, prompt=part[0].prompt)
        except StoreError as error:
            _check(said)
            talk.unspoken = []
            talk.waiting = [one for later in slices[number - 1 :] for one in later]
            yield from telling(talk, f"the conversation is not stored at the moment: {error}")
            return
        for one, id_ in zip(part, ids, strict=True):
            one.id = id_
        talk.unspoken = []
        talk.waiting = [one for later in slices[number:] for one in later]
        yield from withdrawing(talk)
        if talk.withdrawn and talk.withdrawn[0][1] not in talk.waiting:
            return  # what was said after an undo stands on the branch that it makes
    yield from withdrawing(talk)
    yield from _writing_late(talk)


def newest_said(talk: Conversation) -> Walk[Said | None]:
    """Return what was said last, also when a fold has taken it out of the window; None when that is not known."""
    if talk.newest is not None or talk.waiting or talk.withdrawn:
        return talk.newest
    id_ = yield from trying(talk, steps.Newest())
    return None if id_ is None else Said(message={}, id=id_)


def _check(said: Sequence[Said]) -> None:
    """Refuse messages that no store can keep."""
    for one in said:
        verbatim(one.message)


def _slices(said: Sequence[Said], ends: Sequence[Said]) -> Iterator[list[Said]]:
    """Cut what is to be stored into what one transaction takes, so that others can write in between; also at ends.

    A new system prompt is stored by itself.
    """
    part: list[Said] = []
    size = 0
    for one in said:
        if part and part[-1].prompt != one.prompt:
            yield part
            part, size = [], 0
        part.append(one)
        size += len(text_of(one.message))
        if len(part) == SLICE_MESSAGES or size >= SLICE_CHARACTERS or one in ends:
            yield part
            part, size = [], 0
    if part:
        yield part


def withdrawing(talk: Conversation) -> Walk[None]:
    """Fork before what was taken back, as soon as it is all stored."""
    while talk.withdrawn and talk.withdrawn[0][1] not in talk.waiting:
        first, _ = talk.withdrawn[0]
        if (yield from trying(talk, steps.TakeBack(first=first.id or ""))) is None:
            break
        talk.withdrawn.pop(0)


def unstored_turn(talk: Conversation) -> list[Line]:
    """Return the newest turn that the store still waits for and that was not taken back, unless the window shows it."""
    left = list(talk.waiting)
    for first, last in talk.withdrawn:
        if first in left or last in left:
            start = left.index(first) if first in left else 0
            stop = left.index(last) if last in left else len(left) - 1
            del left[start : stop + 1]
    users = [at for at, one in enumerate(left) if role_of(one.message) == "user"]
    turn = left[users[-1] :] if users else []
    shown = any(one is turn[0] for line in talk.window.lines for one in line.said) if turn else True
    return [] if shown else [line_of(one.message, said=[one]) for one in turn]


def catching_up(talk: Conversation) -> Walk[None]:
    """Before a turn, go on from where another process has taken the conversation meanwhile.

    Two that speak at the same time are not brought together: each goes on with what it knows, and the store keeps all.
    """
    if talk.sent or talk.waiting or talk.withdrawn:
        return
    newest = yield from trying(talk, steps.Newest())
    lines = talk.window.lines
    if newest is None or newest in _ids(lines[-_RECENT:]) or newest in _ids(lines):
        return
    saved = yield from trying(talk, steps.Load())
    if saved is None or not saved.knows(_ids(lines[talk.journalled :])):
        return
    talk.cut(0, "another process went on with the conversation")
    talk.resume(saved)
    talk.unspoken = []
    yield from telling(talk, "another process went on with this conversation: it is taken up from there")


def _ids(lines: Sequence[Line]) -> set[str]:
    """Return the stored messages that lines stand for."""
    hidden = {item["m"] for line in lines for item in line.kept if "m" in item}
    return hidden | {one.id for line in lines for one in line.said if one.id is not None}


def mending(talk: Conversation) -> Walk[None]:
    """Make the window valid; what had to be changed stays in it, as it is sent."""
    changed = talk.sound.mend(talk.window, talk.dialect)
    if changed is not None:
        talk.cut(changed, "mended", sound=True)
    yield from handing_out(talk)


def handing_out(talk: Conversation) -> Walk[None]:
    """Before the engine sees a list that is not simply longer: let the store know what each message stands for.

    Else an engine that stores what it is shown would take repairs for said, and moved messages for new ones.
    """
    if talk.edited and not talk.waiting:
        yield from trying(talk, steps.HandOut(lines=talk.window.lines))
        talk.edited = False


def writing(talk: Conversation, lines: int, row: Request) -> Walk[None]:
    """Write a row of the journal, with what the window has up to this line that the store's window has not."""
    if talk.waiting:
        talk.unwritten.append(row)
        return
    entry = _entry(talk, lines, row)
    if (yield from trying(talk, steps.Journal(request=entry.row))) is None:
        talk.unwritten.append(row)
    else:
        entry.note(talk)


def _writing_late(talk: Conversation) -> Walk[None]:
    """Write the rows that the store could not take, for what they used and cost, with the window as it is now."""
    while talk.unwritten and not talk.waiting:
        entry = _entry(talk, len(talk.window), talk.unwritten[0])
        if (yield from trying(talk, steps.Journal(request=entry.row))) is None:
            return
        entry.note(talk)
        talk.unwritten.pop(0)


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """A row of the journal, and how many lines of the window the store has with it."""

    row: Request
    lines: int

    def note(self, talk: Conversation) -> None:
        """Take note that it is written."""
        talk.journalled, talk.items = self.lines, self.row.keep + len(self.row.added)


def _entry(talk: Conversation, lines: int, row: Request) -> _Entry:
    lines = max(lines, talk.journalled)  # a fold since the request has saved more than that
    added = tuple(item for line in talk.window.lines[talk.journalled : lines] for item in line.items())
    return _Entry(row=replace(row, keep=talk.items, added=added), lines=lines)
