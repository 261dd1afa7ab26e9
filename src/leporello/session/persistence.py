"""Writes a conversation to its branch of the store: messages, window, journal. Nothing else writes there.

While the store cannot be used, the conversation goes on; what it did not take is kept here, and stored in order later.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from leporello.errors import StaleTipError, StaleWindowError, StoreError
from leporello.messages import role_of, text_of
from leporello.session.saved_branch import load
from leporello.session.window import Source
from leporello.store import StoredWindow
from leporello.store.codec import verbatim

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from leporello.session.saved_branch import SavedBranch
    from leporello.session.window import Entry, Window
    from leporello.store import Branch, JournalRow, Proposal, Stored, WindowItem

T = TypeVar("T")

SLICE_MESSAGES = 64
SLICE_CHARACTERS = 256 * 1024
"""The limits of one transaction, so that other writers do not wait for long."""


class Persistence:
    """Stores one conversation on its branch; `notice` is called with what the store could not do."""

    def __init__(self, branch: Branch, notice: Callable[[str], None]) -> None:
        self.branch = branch
        self._store = branch.store
        self.lease_token: str = uuid4().hex
        """Identifies this session as the holder of a lease."""
        self.unstored: list[Source] = []
        """Messages that the store has not taken yet."""
        self.unstored_prompt: list[Source] = []
        """The system prompt of an empty conversation; it is stored with the first message."""
        self.unwritten_rows: list[JournalRow] = []
        """Journal rows that the store has not taken yet."""
        self.undone: list[tuple[Source, Source]] = []
        """The first and the last message of each undo that the store has not taken yet."""
        self.newest: Source | None = None
        """The newest message, if it is known."""
        self.tip: str | None = None
        """The id of the message behind which the next one is stored; on a fork if the branch has another tip by then.

        None stores at the end of the branch, "" stands for an empty branch.
        """
        self.journalled: int = 0
        """How many leading entries the store's window has; the next journal row adds the others."""
        self._items = 0
        """How many items of the store those entries are."""
        self._notice = notice

    def resume(self, saved: SavedBranch) -> None:
        """Take over the state of a branch that was just loaded."""
        self.newest = None
        self.journalled, self._items = (len(saved.entries), len(saved.items)) if saved.whole else (0, 0)

    def changed_from(self, index: int, window: Window) -> None:
        """Mark the entries from an index on as not in the store's window."""
        if index < self.journalled:
            self._items = len(items_of(window.entries[:index]))
            self.journalled = index

    # messages

    def store(self, window: Window, sources: Sequence[Source], row: JournalRow | None = None) -> None:
        """Store messages, and with an answer the journal row of its request; keep them if the store cannot be used."""
        self.newest = sources[-1]
        if self.unstored_prompt or self.unstored or self.undone or self.unwritten_rows or len(sources) > 1:
            self._store_in_order(window, sources, row)
            return
        try:
            self._append(sources, row)
        except StoreError as error:
            _check(sources)
            self.unstored = list(sources)
            self._notice(f"the conversation is not stored at the moment: {error}")

    def flush(self, window: Window) -> None:
        """Store what the store could not take before: messages, undos and journal rows, in order."""
        if self.unstored:
            self._store_in_order(window, (), None)
        elif self.undone or self.unwritten_rows:
            self._fork_undone()
            self._write_late(window)

    def _store_in_order(self, window: Window, sources: Sequence[Source], row: JournalRow | None) -> None:
        """Store earlier and new messages in slices; an undo between them forks the branch when its slice is stored."""
        waiting = [*self.unstored_prompt, *self.unstored, *sources]
        if self.undone and self.undone[0][1] not in waiting:
            self._fork_undone()
            if self.undone and self.undone[0][1] not in waiting:
                _check(sources)
                self.unstored_prompt, self.unstored = [], waiting
                self._notice("the conversation is not stored at the moment: an undo waits for the store")
                return
        slices = list(_slices(waiting, [last for _, last in self.undone]))
        if len(slices) > 1:  # a message that cannot be stored is refused before any is
            _check(sources)
        for number, part in enumerate(slices, 1):
            try:
                self._append(part, row if number == len(slices) else None)
            except StoreError as error:
                _check(sources)
                self.unstored_prompt = []
                self.unstored = [one for later in slices[number - 1 :] for one in later]
                self._notice(f"the conversation is not stored at the moment: {error}")
                return
            self.unstored_prompt = []
            self.unstored = [one for later in slices[number:] for one in later]
            self._fork_undone()
            if self.undone and self.undone[0][1] not in self.unstored:
                return
        self._fork_undone()
        self._write_late(window)

    def store_answer(self, source: Source, window: Window, upto: int, row: JournalRow) -> None:
        """Store an answer and the journal row of its request in one transaction."""
        if self.unstored:  # the messages that the row refers to are stored first
            self.store(window, [source])
            self.write(window, upto, row)
            return
        written, until = self._with_items(window, upto, row)
        try:
            self.store(window, [source], written)
        except StaleTipError:
            self.fork_behind_tip()
            written, until = self._with_items(window, upto, row)
            self.store(window, [source], written)
        if self.unstored:
            self.unwritten_rows.append(row)
        else:
            self.journalled, self._items = until, written.keep + len(written.added)

    def newest_source(self) -> Source | None:
        """Return the newest message, also one that is folded; None when it is not known."""
        if self.newest is not None or self.unstored or self.undone:
            return self.newest
        id_ = self._newest_id()
        return None if id_ is None else Source(message={}, id=id_)

    def undo(self, first: Source, last: Source) -> None:
        """Go on from a fork before the first of these messages."""
        self.undone.append((first, last))
        self.newest = None
        self._fork_undone()

    def _fork_undone(self) -> None:
        """Fork before the messages of each undo, as soon as they are stored."""
        while self.undone and self.undone[0][1] not in self.unstored:
            first, _ = self.undone[0]
            if self._try(partial(self._fork_before, first.id or "")) is None:
                break
            self.undone.pop(0)

    def fork_behind_tip(self) -> None:
        """Fork the branch behind the tip, or begin a new root if the branch is empty."""
        store, conversation = self.branch.store, self.branch.conversation
        if self.tip:
            self._switch(store.fork(conversation, behind=self.tip, head=False, **self.branch.here))
        else:
            self._switch(store.begin_root(conversation, owner=self.branch.owner))

    def unstored_turn(self, window: Window) -> list[Entry]:
        """Return the newest turn that is not stored yet and was not undone, unless the window shows it."""
        left = list(self.unstored)
        for first, last in self.undone:
            if first in left or last in left:
                start = left.index(first) if first in left else 0
                stop = left.index(last) if last in left else len(left) - 1
                del left[start : stop + 1]
        users = [at for at, one in enumerate(left) if role_of(one.message) == "user"]
        turn = left[users[-1] :] if users else []
        shown = any(one is turn[0] for entry in window.entries for one in entry.sources) if turn else True
        return [] if shown else [source.entry() for source in turn]

    # reading

    def load(self) -> SavedBranch | None:
        """Read the branch; None when the store cannot be used."""
        return self._try(partial(load, self.branch))

    def changed_elsewhere(self, window: Window) -> SavedBranch | None:
        """Return the branch if another process has added to it what this one knows; None when there is nothing new.

        If both have added messages, the two are not merged: each goes on with its own, and the store has them all.
        """
        if self.unstored or self.undone or self.tip is not None:
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

    def write(self, window: Window, upto: int, row: JournalRow) -> None:
        """Write a journal row, which adds the entries before `upto` to the store's window."""
        if self.unstored or self.undone or not self._write(window, upto, row):
            self.unwritten_rows.append(row)

    def save(self, window: Window, row: JournalRow) -> None:
        """Replace the store's window by this one."""
        if self.unstored or self._try(partial(self._save, items_of(window.entries), row)) is None:
            self.unwritten_rows.append(row)
        else:
            self.is_saved(window)

    def commit(self, entries: Sequence[Entry], proposal: Proposal, row: JournalRow) -> None:
        """Replace the store's window by one that an engine proposed, with its nodes and its row, in one transaction.

        Raises StaleWindowError when the window was replaced meanwhile, StoreError when the store cannot be used.
        """
        window = replace(proposal.window, items=items_of(entries))
        self.branch.commit(replace(proposal, window=window), row)

    def is_saved(self, window: Window) -> None:
        """Mark all entries of a window as stored."""
        self.journalled, self._items = len(window), len(items_of(window.entries))

    def end(self) -> None:
        """Mark the conversation as ended, if it is stored."""
        branch = self.branch
        if self._store.info(branch.conversation, owner=branch.owner) is not None:
            self._store.end(branch.conversation, owner=branch.owner)

    # calls of the store
    def _append(self, sources: Sequence[Source], row: JournalRow | None) -> None:
        """Store messages behind the tip, on a fork if another process has stored some there.

        With a journal row StaleTipError is raised instead: the row belongs to the window of this branch.
        """
        prompt = sources[0].prompt
        behind = None if prompt else self.tip
        append = partial(
            self._store.append,
            self.branch.conversation,
            [source.message for source in sources],
            request=row,
            prompt=prompt,
            behind=behind,
            known={n: source.known for n, source in enumerate(sources) if source.known},
        )
        try:
            ids = append(**self.branch.here)
        except StaleTipError:
            if row is not None:
                raise
            self.fork_behind_tip()
            ids = append(**self.branch.here)
        for source, id_ in zip(sources, ids, strict=True):
            source.id = id_
        if behind is not None:
            self.tip = ids[-1]

    def _switch(self, number: int) -> None:
        """Go on on another branch; the next journal row writes the whole window."""
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

    def _journal(self, row: JournalRow) -> int:
        return self._store.record_request(self.branch.conversation, row, **self.branch.here)

    def _save(self, items: tuple[WindowItem, ...], row: JournalRow) -> int:
        try:
            return self._save_once(items, row)
        except StaleWindowError:
            return self._save_once(items, row)

    def _save_once(self, items: tuple[WindowItem, ...], row: JournalRow) -> int:
        window = StoredWindow(version=self.branch.window().version, items=items)
        return self._store.save_window(self.branch.conversation, window, row, **self.branch.here).version

    def _write_late(self, window: Window) -> None:
        """Write the journal rows that the store could not take before, with the window as it is now."""
        while self.unwritten_rows and not (self.unstored or self.undone):
            if not self._write(window, len(window), self.unwritten_rows[0]):
                return
            self.unwritten_rows.pop(0)

    def _write(self, window: Window, upto: int, row: JournalRow) -> bool:
        """Write a journal row with the entries before `upto`; False when the store cannot be used."""
        written, upto = self._with_items(window, upto, row)
        if self._try(partial(self._journal, written)) is None:
            return False
        self.journalled, self._items = upto, written.keep + len(written.added)
        return True

    def _with_items(self, window: Window, upto: int, row: JournalRow) -> tuple[JournalRow, int]:
        """Return a row with the items that it adds to the store's window, and how many entries that window has then."""
        upto = max(upto, self.journalled)  # a fold since the request has saved more than that
        added = items_of(window.entries[self.journalled : upto])
        return replace(row, keep=self._items, added=added), upto

    def _try(self, work: Callable[[], T]) -> T | None:
        """Call the store; returns None, with a notice, when it cannot be used."""
        try:
            return work()
        except StoreError as error:
            self._notice(str(error))
            return None


def items_of(entries: Sequence[Entry]) -> tuple[WindowItem, ...]:
    """Return how the store's window writes these entries."""
    return tuple(item for entry in entries for item in entry.items())


def _check(sources: Sequence[Source]) -> None:
    """Raise MessageError for a message that no store can keep."""
    for one in sources:
        verbatim(one.message)


def _slices(sources: Sequence[Source], ends: Sequence[Source]) -> Iterator[list[Source]]:
    """Yield the messages of one transaction after the other; a slice ends at each of `ends`.

    A new system prompt is stored by itself.
    """
    part: list[Source] = []
    size = 0
    for one in sources:
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
    """Return the ids of the stored messages behind entries."""
    hidden = {item["m"] for entry in entries for item in entry.stored_as if "m" in item}
    return hidden | {one.id for entry in entries for one in entry.sources if one.id is not None}
