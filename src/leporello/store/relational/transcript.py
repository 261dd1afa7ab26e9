"""What was said, read: by id, along the path of a branch, around a message."""

# ruff: noqa: S608 - statements are put together from constants; values are always bound

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from leporello.messages.listed_message import raw_calls
from leporello.store.relational.branch_path import is_on, on_path, path_of, rows_on
from leporello.store.relational.reading import load
from leporello.store.relational.rows import NEW, Part, find, number_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from leporello.store.records import Stored
    from leporello.store.relational.branch_path import BranchPath
    from leporello.store.relational.dialect import Connection

PAGE: Final = 256
PAGE_CHARACTERS: Final = 8 * 1024 * 1024
"""How many messages are read at once, and how much text in them."""


class TranscriptRows(Part):
    """Reading what was said."""

    def get(
        self, ids: Iterable[str], *, owner: str = "", branch: int | None = None, conversation: str | None = None
    ) -> dict[str, Stored]:
        """Fetch messages by id, of one conversation or of all; unknown ids, and those of others, are left out."""
        numbers = [number for id_ in ids if (number := number_of(id_, "m")) is not None]
        if not numbers:
            return {}
        with self._db.read() as connection:
            within = _number(connection, conversation, owner)
            rows = load(connection, numbers, owner=owner, branch=branch, conversation=within)
            return {stored.id: stored for stored in rows.values()}

    def messages(
        self,
        conversation: str,
        *,
        owner: str = "",
        branch: int | None = None,
        first: int | None = None,
        last: int | None = None,
        superseded: bool = False,
        system: bool = False,
        newest_first: bool = False,
        by_arrival: bool = False,
    ) -> Iterator[Stored]:
        """Read the messages on the path of a branch in order, by a range of seq.

        With `superseded` those that are not on the path too: a replaced one before the one that took its place. With
        `system` also the system messages, before all others; `by_arrival` in the order of seq. They are read in pages;
        what is stored meanwhile behind the reader may be among them.
        """
        if first is None and last is None and not (superseded or system or by_arrival):
            return self._pages(conversation, owner, branch, newest_first=newest_first)
        with self._db.read() as connection:
            found = find(connection, conversation, owner) or NEW
            on, values = (
                ("", ()) if superseded else on_path(connection, path_of(connection, found.id, branch or found.head))
            )
            where = "" if superseded else f" AND (kind = 1 OR {on})"
            rows = connection.execute(
                f"SELECT id, size FROM messages WHERE conversation = ? AND seq BETWEEN ? AND ?{where}"
                f"{'' if system else ' AND kind = 0'} ORDER BY {'seq' if by_arrival else 'kind DESC, place, id'}",
                (found.id, first or 0, found.next_seq if last is None else last, *values),
            ).fetchall()
        return self._listed(rows[::-1] if newest_first else rows, branch, found.id)

    def neighbours(
        self, ids: Iterable[str], *, before: int, after: int, owner: str = "", conversation: str | None = None
    ) -> list[Stored]:
        """Return messages with those around each, on the path of the head or else of its own branch; each once."""
        numbers = [number for id_ in ids if (number := number_of(id_, "m")) is not None]
        if not numbers:
            return []
        with self._db.read() as connection:
            within = _number(connection, conversation, owner)
            found = [each for number in numbers for each in _with_neighbours(connection, number, before, after, within)]
            return list(load(connection, list(dict.fromkeys(found)), owner=owner, conversation=within).values())

    def asking(
        self, conversation: str, tools: Collection[str], *, owner: str = "", branch: int | None = None
    ) -> tuple[str, ...]:
        """Return the ids of a call of these tools that waits for its result, and of what led to it in its turn."""
        with self._db.read() as connection:
            found = find(connection, conversation, owner)
            if found is None:
                return ()
            path = path_of(connection, found.id, branch or found.head)
            turn = _newest_turn(rows_on(connection, found.id, path, "id, role, tool", newest_first=True))
            calling = next((row for row in turn if row[1] == "assistant"), None)
            if calling is None or not _waits(connection, found.id, calling[0], turn.index(calling), tools):
                return ()
        return tuple(f"m{id_}" for id_, role, tool in turn if role == "user" or not _is_apart(tool, tools))

    def _pages(self, conversation: str, owner: str, branch: int | None, *, newest_first: bool) -> Iterator[Stored]:
        """Read the messages of a path page by page."""
        sign, place = ("<", float("inf")) if newest_first else (">", float("-inf"))
        number = 0
        while True:
            with self._db.read() as connection:
                found = find(connection, conversation, owner) or NEW
                path = path_of(connection, found.id, branch or found.head)
                rows = list(
                    rows_on(
                        connection,
                        found.id,
                        path,
                        "id, size, place",
                        f" AND (place, id) {sign} (?, ?)",
                        (place, number),
                        newest_first=newest_first,
                        limit=PAGE,
                    )
                )
                length = _page_length(rows)
                page = load(connection, [row[0] for row in rows[:length]], branch=branch, conversation=found.id)
            yield from page.values()
            if len(rows) < PAGE and length >= len(rows):
                return
            number, _, place = rows[length - 1]

    def _listed(self, rows: list[tuple[int, int]], branch: int | None, conversation: int) -> Iterator[Stored]:
        start = 0
        while start < len(rows):
            ahead = rows[start : start + PAGE]
            numbers = [number for number, _ in ahead[: _page_length(ahead)]]
            start += len(numbers)
            with self._db.read() as connection:
                page = load(connection, numbers, branch=branch, conversation=conversation)
            yield from page.values()


def _newest_turn(newest_first: Iterable[tuple[int, str, str]]) -> list[tuple[int, str, str]]:
    """Return number, role and tools of the messages back to the newest one of the user."""
    turn = []
    for row in newest_first:
        turn.append(row)
        if row[1] == "user":
            break
    return turn


def _waits(connection: Connection, conversation: int, calling: int, results: int, tools: Collection[str]) -> bool:
    """Tell whether a message calls one of the tools, and has more calls than the results behind it."""
    names = [name for _, name, _ in raw_calls(load(connection, [calling], conversation=conversation)[calling].message)]
    return len(names) > results and not _is_apart(" ".join(names), tools)


def _is_apart(tool: str, tools: Collection[str]) -> bool:
    """Tell whether none of these tools is called, or answers, in a message."""
    return not any(name in tools for name in tool.split())


def _page_length(rows: Sequence[tuple[int, int, *tuple[Any, ...]]]) -> int:
    """Return how many of the next rows (id, size, …) are read at once: at least one, fewer of very long ones."""
    sizes = accumulate(row[1] for row in rows)
    return max(1, sum(size <= PAGE_CHARACTERS for size in sizes))


def _number(connection: Connection, conversation: str | None, owner: str) -> int | None:
    """Return the number of a conversation, 0 when there is none of this name, or None for any."""
    return None if conversation is None else (find(connection, conversation, owner) or NEW).id


def _with_neighbours(connection: Connection, number: int, before: int, after: int, within: int | None) -> list[int]:
    """Return the numbers of a message and of those around it, in order; a system message stands alone."""
    known, values = ("", ()) if within is None else (f" AND {connection.dialect.message_of}", (within,))
    row = connection.execute(
        "SELECT m.conversation, m.place, m.kind, m.branch, m.seq, m.gone, c.head FROM messages m"
        f" JOIN conversations c ON c.id = m.conversation WHERE m.id = ?{known}",
        (number, *values),
    ).fetchone()
    if row is None:
        return []
    conversation, place, kind, own, seq, gone, head = row
    if kind:
        return [number]
    path = path_of(connection, conversation, head)
    if not is_on(path, own, place, seq, gone):
        path = path_of(connection, conversation, own)
    earlier = _beside(connection, conversation, path, place, before, later=False)
    return [*earlier, number, *_beside(connection, conversation, path, place, after, later=True)]


def _beside(
    connection: Connection, conversation: int, path: BranchPath, place: float, count: int, *, later: bool
) -> list[int]:
    """Return the messages next to a place on a path, in order."""
    where = f" AND place {'>' if later else '<'} ?"
    rows = rows_on(connection, conversation, path, "id", where, (place,), newest_first=not later, limit=count)
    numbers = [id_ for (id_,) in rows]
    return numbers if later else numbers[::-1]
