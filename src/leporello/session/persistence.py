"""The store's side of a conversation: what was said, the window, the journal. The session is the only writer.

What the store cannot take waits here and is stored in its order as soon as it can; the conversation goes on.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from leporello.errors import StaleTipError, StaleWindowError, StoreError
from leporello.messages import role_of, text_of
from leporello.session.entries import load
from leporello.session.window import Source, entry_of
from leporello.store import Window as StoredWindow
from leporello.store.codec import verbatim

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from leporello.session.entries import Saved
    from leporello.session.window import Entry, Window
    from leporello.store import Branch, Proposal, Request, Stored, WindowItem

T = TypeVar("T")

SLICE_MESSAGES = 64
SLICE_CHARACTERS = 256 * 1024
"""How much is stored in one transaction: others that write wait for no more than that."""


class Persistence:
    """Stores one conversation on its branch; `notice` tells the user, once, what could not be done."""

    def __init__(self, branch: Branch, notice: Callable[[str], None]) -> None:
        self.branch = branch
        self._store = branch.store
        self.lease_token = uuid4().hex
        """The name under which this session holds the right to compact."""
        self.waiting: list[Source] = []
        """Messages that the store could not take yet."""
        self.unspoken: list[Source] = []
        """The system prompt of a conversation in which nothing was said yet: it is stored with the first message."""
        self.unwritten: list[Request] = []
        """Rows of the journal that the store could not take yet."""
        self.withdrawn: list[tuple[Source, Source]] = []
        """What was taken back, from and to, that the store does not know of yet."""
        self.newest: Source | None = None
        """What was said last, if that is known."""
        self.tip: str | None = None
        """The message behind which the next one is stored, on a fork if the branch has gone on; None: at its end.

        "" is a branch on which nothing was said yet.
        """
        self.journalled = 0
        """How many entries at the front the store's window has too; the next row of the journal writes the others."""
        self._items = 0
        """How many items those are."""
        self._notice = notice

    def resume(self, saved: Saved) -> None:
        """Go on from the conversation as it stands in the store."""
        self.newest = None
        self.journalled, self._items = (len(saved.entries), saved.items) if saved.whole else (0, 0)

    def cut(self, index: int, window: Window) -> None:
        """Take note that the entries from a place on are others than the store's window has."""
        if index < self.journalled:
            self._items = len(items_of(window.entries[:index]))
            self.journalled = index

    # what was said

    def store(self, window: Window, said: Sequence[Source], row: Request | None = None) -> None:
        """Store what was said, with the row of the journal that it answers; when the store cannot take it, it waits."""
        self.newest = said[-1]
        if self.unspoken or self.waiting or self.withdrawn or self.unwritten or len(said) > 1:
            self._store_in_order(window, said, row)
            return
        try:
            self._append(said, row)
        except StoreError as error:
            _check(said)
            self.waiting = list(said)
            self._notice(f"the conversation is not stored at the moment: {error}")

    def flush(self, window: Window) -> None:
        """Store what the store could not take before: messages, forks and rows of the journal, in their order."""
        if self.waiting:
            self._store_in_order(window, (), None)
        elif self.withdrawn or self.unwritten:
            self._fork_withdrawn()
            self._write_late(window)

    def _store_in_order(self, window: Window, said: Sequence[Source], row: Request | None) -> None:
        """Store what waits and what was said, in slices; what was said after an undo stands on the fork it makes."""
        waiting = [*self.unspoken, *self.waiting, *said]
        if self.withdrawn and self.withdrawn[0][1] not in waiting:
            self._fork_withdrawn()
            if self.withdrawn and self.withdrawn[0][1] not in waiting:
                _check(said)
                self.unspoken, self.waiting = [], waiting
                self._notice("the conversation is not stored at the moment: an undo waits for the store")
                return
        slices = list(_slices(waiting, [last for _, last in self.withdrawn]))
        if len(slices) > 1:  # a message that cannot be stored is refused before any is
            _check(said)
        for number, part in enumerate(slices, 1):
            try:
                self._append(part, row if number == len(slices) else None)
            except StoreError as error:
                _check(said)
                self.unspoken = []
                self.waiting = [one for later in slices[number - 1 :] for one in later]
                self._notice(f"the conversation is not stored at the moment: {error}")
                return
            self.unspoken = []
            self.waiting = [one for later in slices[number:] for one in later]
            self._fork_withdrawn()
            if self.withdrawn and self.withdrawn[0][1] not in self.waiting:
                return
        self._fork_withdrawn()
        self._write_late(window)

    def store_answer(self, said: Source, window: Window, upto: int, row: Request) -> None:
        """Store the answer to a request and the request's row of the journal, at once."""
        if self.waiting:  # what the row speaks of must be stored first
            self.store(window, [said])
            self.write(window, upto, row)
            return
        written, until = self._with_items(window, upto, row)
        try:
            self.store(window, [said], written)
        except StaleTipError:
            self.fork_behind_tip()
            written, until = self._with_items(window, upto, row)
            self.store(window, [said], written)
        if self.waiting:
            self.unwritten.append(row)
        else:
            self.journalled, self._items = until, written.keep + len(written.added)

    def newest_said(self) -> Source | None:
        """Return what was said last, also when a fold has taken it out of the window; None when that is not known."""
        if self.newest is not None or self.waiting or self.withdrawn:
            return self.newest
        id_ = self._newest_id()
        return None if id_ is None else Source(message={}, id=id_)

    def withdraw(self, first: Source, last: Source) -> None:
        """Take back what was said, from and to: the conversation goes on on a fork before it."""
        self.withdrawn.append((first, last))
        self.newest = None
        self._fork_withdrawn()

    def _fork_withdrawn(self) -> None:
        """Fork before what was taken back, as soon as it is all stored."""
        while self.withdrawn and self.withdrawn[0][1] not in self.waiting:
            first, _ = self.withdrawn[0]
            if self._try(partial(self._fork_before, first.id or "")) is None:
                break
            self.withdrawn.pop(0)

    def fork_behind_tip(self) -> None:
        """Fork the branch behind the tip, or begin a new root where nothing was said before."""
        store, conversation = self.branch.store, self.branch.conversation
        if self.tip:
            self._switch(store.fork(conversation, behind=self.tip, head=False, **self.branch.here))
        else:
            self._switch(store.begin_root(conversation, owner=self.branch.owner))

    def unstored_turn(self, window: Window) -> list[Entry]:
        """Return the newest turn that waits for the store and was not taken back, unless the window shows it."""
        left = list(self.waiting)
        for first, last in self.withdrawn:
            if first in left or last in left:
                start = left.index(first) if first in left else 0
                stop = left.index(last) if last in left else len(left) - 1
                del left[start : stop + 1]
        users = [at for at, one in enumerate(left) if role_of(one.message) == "user"]
        turn = left[users[-1] :] if users else []
        shown = any(one is turn[0] for entry in window.entries for one in entry.sources) if turn else True
        return [] if shown else [entry_of(one.message, sources=[one]) for one in turn]

    # where it stands

    def load(self) -> Saved | None:
        """Read the branch as it stands in the store."""
        return self._try(partial(load, self.branch))

    def went_on_elsewhere(self, window: Window) -> Saved | None:
        """Return the conversation as another process has taken it on since; None when it is as it is here.

        Two that speak at the same time are not brought together: each goes on with what it knows, and the store keeps
        all.
        """
        if self.waiting or self.withdrawn or self.tip is not None:
            return None
        newest = self._newest_id()
        if newest is None or (self.newest is not None and newest == self.newest.id) or newest in _ids(window.entries):
            return None
        saved = self.load()
        return saved if saved is not None and saved.knows(_ids(window.entries[self.journalled :])) else None

    def pinned(self) -> list[Stored]:
        """Return the pinned messages on this branch, oldest first."""
        return self._try(self._pinned) or []

    # the window and the journal

    def write(self, window: Window, upto: int, row: Request) -> None:
        """Write a row of the journal, with what the window has up to a place that the store's window has not."""
        if self.waiting or self.withdrawn:
            self.unwritten.append(row)
            return
        written, upto = self._with_items(window, upto, row)
        if self._try(partial(self._journal, written)) is None:
            self.unwritten.append(row)
        else:
            self.journalled, self._items = upto, written.keep + len(written.added)

    def save(self, window: Window, row: Request) -> None:
        """Replace the store's window by this one, whatever it was."""
        if self.waiting or self._try(partial(self._save, items_of(window.entries), row)) is None:
            self.unwritten.append(row)
        else:
            self.is_saved(window)

    def commit(self, entries: Sequence[Entry], proposal: Proposal, row: Request) -> None:
        """Replace the store's window by one that an engine proposed, with its nodes and its row, all at once.

        Raises StaleWindowError when it was replaced since, StoreError when the store cannot be used.
        """
        window = replace(proposal.window, items=items_of(entries))
        self.branch.commit(replace(proposal, window=window), row)

    def is_saved(self, window: Window) -> None:
        """Take note that the store's window is this one."""
        self.journalled, self._items = len(window), len(items_of(window.entries))

    def end(self) -> None:
        """Mark the end of the conversation, if anything of it is stored."""
        branch = self.branch
        if self._store.info(branch.conversation, owner=branch.owner) is not None:
            self._store.end(branch.conversation, owner=branch.owner)

    # one step on the store each

    def _append(self, said: Sequence[Source], row: Request | None) -> None:
        """Store messages behind the tip; if something else was said there meanwhile, on a fork of their own.

        Raises StaleTipError when there is a row of the journal: it speaks of the window of another branch then.
        """
        prompt = said[0].prompt
        behind = None if prompt else self.tip
        try:
            ids = self._appended(said, row, prompt=prompt, behind=behind)
        except StaleTipError:
            if row is not None:
                raise
            self.fork_behind_tip()
            ids = self._appended(said, row, prompt=prompt, behind=behind)
        for one, id_ in zip(said, ids, strict=True):
            one.id = id_
        if behind is not None:
            self.tip = ids[-1]

    def _appended(
        self, said: Sequence[Source], row: Request | None, *, prompt: bool, behind: str | None
    ) -> tuple[str, ...]:
        branch, messages = self.branch, [one.message for one in said]
        known = {n: one.known for n, one in enumerate(said) if one.known}
        return self._store.append(
            branch.conversation, messages, request=row, prompt=prompt, behind=behind, known=known, **branch.here
        )

    def _switch(self, number: int) -> None:
        """Turn to another branch, which begins with a window of its own: the next row writes all of it."""
        self.branch.switch(number)
        self.journalled = self._items = 0

    def _newest_id(self) -> str | None:
        """Return the id of the newest message in the store; None when there is none, or the store cannot be used."""
        try:
            return self._store.newest(self.branch.conversation, **self.branch.here)
        except StoreError as error:
            self._notice(str(error))
            return None

    def _fork_before(self, id_: str) -> bool:
        first = self.branch.get([id_]).get(id_)
        if first is not None and not first.superseded:
            self._switch(self._store.fork(self.branch.conversation, before=first.id, **self.branch.here))
        return True

    def _pinned(self) -> list[Stored]:
        ids = self._store.pins(self.branch.conversation, owner=self.branch.owner)
        return [row for row in self.branch.get(ids).values() if not row.superseded] if ids else []

    def _journal(self, row: Request) -> int:
        return self._store.record_request(self.branch.conversation, row, **self.branch.here)

    def _save(self, items: tuple[WindowItem, ...], row: Request) -> int:
        try:
            return self._save_once(items, row)
        except StaleWindowError:
            return self._save_once(items, row)

    def _save_once(self, items: tuple[WindowItem, ...], row: Request) -> int:
        window = StoredWindow(version=self.branch.window().version, items=items)
        return self._store.save_window(self.branch.conversation, window, row, **self.branch.here).version

    def _write_late(self, window: Window) -> None:
        """Write the rows that the store could not take, for what they used and cost, with the window as it is now."""
        while self.unwritten and not (self.waiting or self.withdrawn):
            written, upto = self._with_items(window, len(window), self.unwritten[0])
            if self._try(partial(self._journal, written)) is None:
                return
            self.journalled, self._items = upto, written.keep + len(written.added)
            self.unwritten.pop(0)

    def _with_items(self, window: Window, upto: int, row: Request) -> tuple[Request, int]:
        """Return a row with what it adds to the store's window, and how many entries that window has then."""
        upto = max(upto, self.journalled)  # a fold since the request has saved more than that
        added = items_of(window.entries[self.journalled : upto])
        return replace(row, keep=self._items, added=added), upto

    def _try(self, work: Callable[[], T]) -> T | None:
        """Do something on the store; that it cannot be used is told, and does not end the conversation."""
        try:
            return work()
        except StoreError as error:
            self._notice(str(error))
            return None


def items_of(entries: Sequence[Entry]) -> tuple[WindowItem, ...]:
    """Return how the store's window writes these entries."""
    return tuple(item for entry in entries for item in entry.items())


def _check(said: Sequence[Source]) -> None:
    """Refuse messages that no store can keep."""
    for one in said:
        verbatim(one.message)


def _slices(said: Sequence[Source], ends: Sequence[Source]) -> Iterator[list[Source]]:
    """Cut what is to be stored into what one transaction takes, so that others can write in between; also at ends.

    A new system prompt is stored by itself.
    """
    part: list[Source] = []
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


def _ids(entries: Sequence[Entry]) -> set[str]:
    """Return the stored messages that entries stand for."""
    hidden = {item["m"] for entry in entries for item in entry.stored_as if "m" in item}
    return hidden | {one.id for entry in entries for one in entry.sources if one.id is not None}
