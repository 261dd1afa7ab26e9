"""Writes a conversation to its branch of the store: messages, window, journal. Nothing else writes there.

While the store cannot be used, the conversation goes on; what it did not take is kept here, and stored in order later.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from uuid import uuid4

from leporello.errors import CommitUnknownError, StaleTipError, StaleWindowError, StoreError
from leporello.messages import role_of, text_of
from leporello.session.saved_branch import load
from leporello.store import StoredWindow
from leporello.store.codec import verbatim

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from leporello.session.saved_branch import SavedBranch
    from leporello.session.window import Entry, Source, Window
    from leporello.store import Branch, JournalRow, Proposal, Stored, WindowItem

T = TypeVar("T")

SLICE_MESSAGES = 64
SLICE_CHARACTERS = 256 * 1024
"""The limits of one transaction, so that other writers do not wait for long."""


class PendingUndo(NamedTuple):
    """An undo that the store has not taken yet: the branch is to be forked before this message."""

    before: Source


class Persistence:
    """Stores one conversation on its branch; `notice` is called with what the store could not do."""

    def __init__(self, branch: Branch, notice: Callable[[str], None]) -> None:
        self.branch = branch
        self._store = branch.store
        self.lease_token: str = uuid4().hex
        """Identifies this session as the holder of a lease."""
        self.waiting: list[list[Source] | PendingUndo] = []
        """What the store has not taken yet, in order: messages of one transaction each, and forks of an undo."""
        self._attempted: tuple[str, ...] = ()
        """The ids of the first messages that wait, if their commit was cut off: they may be stored."""
        self._attempted_row: JournalRow | None = None
        """The row of the journal that is stored then, too."""
        self.unstored_prompt: list[Source] = []
        """The system prompt of an empty conversation; it is stored with the first message."""
        self.unwritten_rows: list[JournalRow] = []
        """Journal rows that the store has not taken yet; they are written when nothing else waits.

        One whose commit was cut off has the number that it has if it is there.
        """
        self.newest: Source | None = None
        """The newest message, if it is known."""
        self.tip: str | None = None
        """The id of the message behind which the next one is stored; on a fork if the branch has another tip.

        None stores at the end of the branch, "" stands for an empty branch.
        """
        self.journalled: int = 0
        """How many leading entries the store's window has; the next journal row adds the others."""
        self._items = 0
        """How many items of the store those entries are."""
        self.failure: StoreError | None = None
        """Why the store did not take messages or an undo, the last time that it did not."""
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

    @property
    def unstored(self) -> list[Source]:
        """The messages that the store has not taken yet."""
        return [one for part in self.waiting if isinstance(part, list) for one in part]

    @property
    def undone(self) -> bool:
        """Whether an undo waits for the store."""
        return any(isinstance(part, PendingUndo) for part in self.waiting)

    def store(self, window: Window, sources: Sequence[Source], row: JournalRow | None = None) -> None:
        """Store messages, and with an answer the journal row of its request; they wait if the store cannot be used."""
        if self.waiting or self.unwritten_rows:
            self.flush(window)
        self.newest = sources[-1]
        parts = [list(sources)]
        if self.unstored_prompt or len(sources) > 1:
            parts = list(_slices([*self.unstored_prompt, *sources]))
            _check(parts)  # a message that cannot be stored is refused before any is
        while parts and not self.waiting:
            try:
                self._append(parts[0], row if len(parts) == 1 else None)
            except StoreError as error:
                self._wait(parts, error)
                return
            self.unstored_prompt = []
            del parts[0]
        if parts:
            self._wait(parts)

    def flush(self, window: Window) -> None:
        """Store what the store could not take before: messages and undos in order, then journal rows."""
        if self.waiting:
            self._store_waiting()
        while self.unwritten_rows and not self.waiting:
            left = self._write_again(window, self.unwritten_rows[0])
            if left is not None:
                self.unwritten_rows[0] = left
                return
            del self.unwritten_rows[0]

    def _store_waiting(self) -> None:
        while self.waiting:
            part = self.waiting[0]
            try:
                if isinstance(part, PendingUndo):
                    self._fork_before(part.before.id or "")
                else:
                    self._append_again(part)
            except StoreError as error:
                self._not_stored(error)
                return
            del self.waiting[0]

    def _append_again(self, part: list[Source]) -> None:
        """Store messages that had to wait, unless an earlier attempt did, whose commit was cut off."""
        attempted, row = self._attempted, self._attempted_row
        self._append(part, None)
        self._attempted, self._attempted_row = (), None
        if row in self.unwritten_rows and part[-1].id == attempted[-1]:
            self.unwritten_rows.remove(row)

    def _wait(self, parts: Sequence[list[Source]], error: StoreError | None = None) -> None:
        """Keep messages until the store can be used."""
        _check(parts)
        self.waiting += parts
        self.unstored_prompt = []
        if error is not None:
            self._not_stored(error)

    def _not_stored(self, error: StoreError) -> None:
        self.failure = error
        self._notice(f"the conversation is not stored at the moment: {error}")

    def store_answer(self, source: Source, window: Window, upto: int, row: JournalRow) -> None:
        """Store an answer and the journal row of its request in one transaction."""
        self.flush(window)  # the messages that the row refers to are stored first
        if self.waiting:
            self.newest = source
            self._wait([[source]])
            self.unwritten_rows.append(row)
            return
        written, until = self._with_items(window, upto, row)
        try:
            self.store(window, [source], written)
        except StaleTipError:
            self.fork_behind_tip()
            written, until = self._with_items(window, upto, row)
            self.store(window, [source], written)
        if self.waiting:
            self.unwritten_rows.append(row)
            self._attempted_row = row if self._attempted else None
        else:
            self.journalled, self._items = until, written.keep + len(written.added)

    def undo(self, first: Source) -> None:
        """Go on from a fork before a message."""
        self.waiting.append(PendingUndo(before=first))
        self.newest = None
        self._store_waiting()

    def fork_behind_tip(self) -> None:
        """Fork the branch behind the tip, or begin a new root if the branch is empty."""
        store, conversation = self.branch.store, self.branch.conversation
        if self.tip:
            self._switch(store.fork(conversation, behind=self.tip, head=False, **self.branch.here))
        else:
            self._switch(store.begin_root(conversation, owner=self.branch.owner))

    def unstored_turn(self, window: Window) -> list[Entry]:
        """Return the newest turn that is not stored yet and was not undone, unless the window shows it."""
        left: list[Source] = []
        for part in self.waiting:
            if isinstance(part, list):
                left += part
            else:
                del left[left.index(part.before) if part.before in left else 0 :]
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
        if self.waiting or self.tip is not None:
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
        left = row if self.waiting else self._write(window, upto, row)
        if left is not None:
            self.unwritten_rows.append(left)

    def save(self, window: Window, row: JournalRow) -> None:
        """Replace the store's window by this one."""
        left = row if self.waiting else self._journalled(partial(self._save, items_of(window.entries), row), row)
        if left is None:
            self.is_saved(window)
        else:
            self.unwritten_rows.append(left)

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
        if self._attempted:
            append = partial(append, attempted=self._attempted)
        try:
            ids = append(**self.branch.here)
        except StaleTipError:
            if row is not None:
                raise
            self.fork_behind_tip()
            ids = append(**self.branch.here)
        except CommitUnknownError as error:
            if error.ids != self._attempted:
                self._attempted, self._attempted_row = error.ids, None
            raise
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

    def _fork_before(self, id_: str) -> None:
        first = self.branch.get([id_]).get(id_)
        if first is not None and not first.superseded:
            self._switch(self._store.fork(self.branch.conversation, before=first.id, **self.branch.here))

    def _pinned(self) -> list[Stored]:
        ids = self._store.pins(self.branch.conversation, owner=self.branch.owner)
        return [row for row in self.branch.get(ids).values() if not row.superseded] if ids else []

    def _save(self, items: tuple[WindowItem, ...], row: JournalRow) -> int:
        try:
            return self._save_once(items, row)
        except StaleWindowError:
            return self._save_once(items, row)

    def _save_once(self, items: tuple[WindowItem, ...], row: JournalRow) -> int:
        window = StoredWindow(version=self.branch.window().version, items=items)
        return self._store.save_window(self.branch.conversation, window, row, **self.branch.here).version

    def _write(self, window: Window, upto: int, row: JournalRow) -> JournalRow | None:
        """Write a journal row with the entries before `upto`; return what is left of it, as `_journalled` does."""
        written, upto = self._with_items(window, upto, row)
        conversation, here = self.branch.conversation, self.branch.here
        left = self._journalled(partial(self._store.record_request, conversation, written, **here), row)
        if left is None:
            self.journalled, self._items = upto, written.keep + len(written.added)
        return left

    def _write_again(self, window: Window, row: JournalRow) -> JournalRow | None:
        """Write a journal row that had to wait, unless an earlier attempt did, whose commit was cut off."""
        if row.number:
            is_there = self._try(partial(self._is_there, row))
            if is_there is None:
                return row
            if is_there:
                self.journalled = self._items = 0  # the next row writes the whole window
                return None
        return self._write(window, len(window), replace(row, number=0))

    def _is_there(self, row: JournalRow) -> bool:
        """Tell whether the journal has a row by its number."""
        branch, at = self.branch, row.number
        found = self._store.journal(branch.conversation, owner=branch.owner, after=at - 1, upto=at)
        return any(_told(each) == _told(row) for each in found)

    def _journalled(self, work: Callable[[], object], row: JournalRow) -> JournalRow | None:
        """Write to the journal; return the row if the store did not take it, with its number if it may be there."""
        try:
            work()
        except CommitUnknownError as error:
            self._notice(str(error))
            return replace(row, number=error.row)
        except StoreError as error:
            self._notice(str(error))
            return row
        return None

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


def _told(row: JournalRow) -> tuple[object, ...]:
    """Return what is the same of a row before and after it was written."""
    return row.reason, row.usage, row.cost_usd, row.prefix


def items_of(entries: Sequence[Entry]) -> tuple[WindowItem, ...]:
    """Return how the store's window writes these entries."""
    return tuple(item for entry in entries for item in entry.items())


def _check(parts: Iterable[Sequence[Source]]) -> None:
    """Raise MessageError for a message that no store can keep."""
    for part in parts:
        for one in part:
            verbatim(one.message)


def _slices(sources: Sequence[Source]) -> Iterator[list[Source]]:
    """Yield the messages of one transaction after the other; a new system prompt is stored by itself."""
    part: list[Source] = []
    size = 0
    for one in sources:
        if part and (part[-1].prompt != one.prompt or len(part) == SLICE_MESSAGES or size >= SLICE_CHARACTERS):
            yield part
            part, size = [], 0
        part.append(one)
        size += len(text_of(one.message))
    yield part


def _ids(entries: Sequence[Entry]) -> set[str]:
    """Return the ids of the stored messages behind entries."""
    hidden = {item["m"] for entry in entries for item in entry.stored_as if "m" in item}
    return hidden | {one.id for entry in entries for one in entry.sources if one.id is not None}
