"""Purging: every word of what was deleted leaves the file, its index and its write-ahead log.

Deleted rows are overwritten when they are removed, but the index keeps their words until its segments are merged, pages
keep copies of rows that SQLite moved to other pages, and the log keeps whatever was written last. A purge finishes
removals that were cut off, merges the index, overwrites the copies and empties the log: in slices of a few
milliseconds, between which others read and write. How far it came is kept in the store, so that any process can go on.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Literal

from leporello.store.relational.purging import Purges
from leporello.store.relational.rows import set_setting, setting
from leporello.store.sqlite.backups import copies_of
from leporello.store.sqlite.overwriting import overwrite, pages_with_remains, still_there

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leporello.store.records import PurgeStatus
    from leporello.store.relational.dialect import Connection
    from leporello.store.sqlite.connection import Database
    from leporello.store.sqlite.slack import Page

MERGED_PAGES: Final = 12  # of the index, in one slice
CLEANED_PAGES: Final = 4
ROUNDS: Final = 3
ATTEMPTS: Final = 50
_PAUSE: Final = 0.005
_LONG_PAUSE: Final = 0.05
_STRUCTURE_ROW: Final = 10  # where FTS5 keeps the list of its segments


class Purging(Purges):
    """Making sure that what was deleted is gone."""

    _db: Database
    _IS_NAMED = "typeof(c.owner) = 'text'"

    def purge(self, *, seconds: float | None = None) -> PurgeStatus:
        """Purge until nothing is left of what was deleted, or until the time is up; return how far it came.

        It ends before that when others keep it from going on.
        """
        deadline = float("inf") if seconds is None else time.monotonic() + seconds
        attempts = 0
        while True:
            start = time.monotonic()
            status = self.purge_status()
            if status.complete or attempts > ATTEMPTS or start >= deadline:
                return status
            attempts = 0 if self._purge_slice(status) else attempts + 1
            time.sleep(max(_LONG_PAUSE if attempts else _PAUSE, time.monotonic() - start))

    def _next_step(self, connection: Connection) -> Literal["index", "pages", "log", ""]:
        removed, merged, cleaned, purged = (
            setting(connection, key) for key in ("removed", "merged", "cleaned", "purged")
        )
        if merged < removed:
            return "index"
        if cleaned < merged:
            return "pages"
        return "log" if purged < cleaned else ""

    def _purge_slice(self, status: PurgeStatus) -> bool:
        """Do the next piece of work; return False when others kept it from being done."""
        if status.step == "rows":
            self._remove_some()
        elif status.step == "index":
            with self._db.write() as connection:
                _merge_some(connection)
        elif status.step == "pages":
            return self._clean_pages()
        elif not self._db.empty_log():
            return False
        else:
            self._remove_copies()
            self._note("purged", "cleaned")
        return True

    def _remove_copies(self) -> None:
        """Remove the copies of the file that were kept before it was brought up to date: they hold what was deleted."""
        for copy in copies_of(self._db.path) if self._db.path else ():
            copy.unlink(missing_ok=True)

    def _clean_pages(self) -> bool:
        """Overwrite what is left in the unused space of pages; return False when something is still there."""
        before = left = self._pages_with_remains()
        for _ in range(ROUNDS):
            if before is None or left is None:
                return False
            if not left:
                self._note("cleaned", "merged")
                return True
            self._overwrite(list(left.values()))
            now = self._pages_with_remains()
            left = now and {number: now[number] for number in left if still_there(before[number], now.get(number))}
        return False

    def _pages_with_remains(self) -> dict[int, Page] | None:
        """Return the pages with remains by their number; None when the file is not up to date with its log."""
        if self._db.path is None:
            return {}
        if not self._db.copy_log():
            return None
        with self._db.read() as connection:
            return {page.number: page for page in pages_with_remains(connection, self._db.path)}

    def _overwrite(self, pages: list[Page]) -> None:
        for start in range(0, len(pages), CLEANED_PAGES):
            with self._db.write() as connection:
                for page in pages[start : start + CLEANED_PAGES]:
                    overwrite(connection, page)
            time.sleep(_PAUSE)

    def _note(self, done: str, before: str) -> None:
        """Note that a step is done for everything that the step before it was done for."""
        with self._db.write() as connection:
            set_setting(connection, done, setting(connection, before))


def _merge_some(connection: Connection) -> None:
    """Merge a piece of the index.

    The first piece puts all segments on one level and begins to merge them. What is written meanwhile lies on lower
    levels. When no level from that one up is being merged, all that was in the index at the beginning is in one
    segment, without what was deleted from it before.
    """
    begun = setting(connection, "merge_level")
    if not begun:
        set_setting(connection, "merge_target", setting(connection, "removed"))
    connection.execute(
        "INSERT INTO search (search, rank) VALUES ('merge', ?)", (MERGED_PAGES if begun else -MERGED_PAGES,)
    )
    merging = [level for level, segments in enumerate(_merging(connection), 1) if segments]
    level = begun or max(merging, default=0)
    if any(number >= level for number in merging):
        set_setting(connection, "merge_level", level)
    else:
        set_setting(connection, "merge_level", 0)
        set_setting(connection, "merged", setting(connection, "merge_target"))


def _merging(connection: Connection) -> Iterator[int]:
    """Yield for each level of the index how many of its segments are being merged."""
    (block,) = connection.execute("SELECT block FROM search_data WHERE id = ?", (_STRUCTURE_ROW,)).fetchone()
    numbers = _varints(block[4:])  # behind the number of the configuration
    levels = next(numbers)
    next(numbers), next(numbers)  # how many segments, how many writes
    for _ in range(levels):
        yield next(numbers)
        for _ in range(3 * next(numbers)):  # of each segment: its number, its first and its last page
            next(numbers)


def _varints(data: bytes) -> Iterator[int]:
    """Read SQLite's variable-length integers, seven bits per byte, the highest first."""
    value = 0
    for byte in data:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            yield value
            value = 0
