"""Messages: appended, recognised, read."""

# ruff: noqa: S608 - statements are put together from constants; values are always bound

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leporello.messages import fingerprint
from leporello.store.match import REACH, RUN, Plan, full_plan, quick_plan
from leporello.store.protocol import Ingested
from leporello.store.sqlite.history import SQLiteHistory
from leporello.store.sqlite.part import Conversation, Part, chunks, find, number_of, opened, placeholders
from leporello.store.sqlite.reading import load
from leporello.store.sqlite.writing import answered_call, call_names, insert, prepare

if TYPE_CHECKING:
    import sqlite3
    from collections import OrderedDict
    from collections.abc import Iterable, Iterator, Sequence

    from leporello.messages import Message
    from leporello.store.protocol import Stored
    from leporello.store.seen import Reading
    from leporello.store.sqlite.writing import Prepared

PAGE: Final = 256
REMEMBERED: Final = 256
_NEW = Conversation(id=0, owner="", next_seq=1, chain=b"", revision=0, listed=0, ended=False)


class Messages(Part):
    """What was said."""

    _readings: OrderedDict[tuple[str, str], Reading]
    """Conversations that were reconciled since this store was opened, and what was read from the end of each list."""

    def append(self, conversation: str, messages: Sequence[Message], *, owner: str = "") -> tuple[str, ...]:
        """Append messages by position, for a host that knows what is new; returns their ids."""
        tools = call_names(messages)
        tools |= self._recent_calls(conversation, owner, [m for m in messages if answered_call(m) not in {"", *tools}])
        prepared = [prepare(message, f"messages[{n}]", tools) for n, message in enumerate(messages)]
        with self._db.write() as connection:
            found = opened(connection, conversation, owner, self._clock())
            history = SQLiteHistory(connection, found.id)
            newest = history.newest(1)
            place = newest[0].place if newest else 0.0
            systems = {row.seen.fingerprint: row for row in prepared if row.seen.system}
            known = history.systems(systems)
            new = {mark: row for mark, row in systems.items() if mark not in known}
            rows: list[tuple[Prepared, float | None]] = [(row, None) for row in new.values()]
            rows += [(row, place + 1 + n) for n, row in enumerate(row for row in prepared if not row.seen.system)]
            numbers = insert(connection, found, rows, self._clock())
        known |= dict(zip(new, numbers, strict=False))
        said = iter(numbers[len(new) :])
        return tuple(f"m{known[row.seen.fingerprint] if row.seen.system else next(said)}" for row in prepared)

    def ingest(
        self, conversation: str, messages: Sequence[Message], *, owner: str = "", full: bool = False
    ) -> Ingested:
        """Store what is new in a host's whole list; `full` forces the full reconciliation.

        With `full` messages that the host took back count as undone even when nothing new follows them.
        """
        reading = self._readings.get((owner, conversation))
        reading = None if reading is None else dict(reading)
        with self._db.read() as connection:
            found = find(connection, conversation, owner) or _NEW
            plan = _plan(connection, found, messages, None if full else reading, settle=full)
        prepared = _prepared(plan, messages, reading or {})
        ids: dict[int, int] = {}
        if _changes(plan, found, messages):
            plan, ids = self._store(conversation, owner, messages, found, plan, prepared, settle=full)
        self._remember((owner, conversation), reading or {}, len(messages))
        return _ingested(plan, ids, len(messages))

    def emitted(self, conversation: str, messages: Sequence[tuple[Message, str | None]], *, owner: str = "") -> None:
        """Register messages that an engine made, each with the id of the message it contains, if any."""
        rows = [(bytes.fromhex(fingerprint(made)), origin and number_of(origin, "m")) for made, origin in messages]
        with self._db.write() as connection:
            found = opened(connection, conversation, owner, self._clock())
            connection.executemany(
                "INSERT INTO emitted (conversation, fingerprint, origin) VALUES (?, ?, ?)"
                " ON CONFLICT (conversation, fingerprint) DO UPDATE SET origin = excluded.origin",
                [(found.id, mark, origin) for mark, origin in rows],
            )

    def supersede(self, conversation: str, ids: Iterable[str], *, owner: str = "") -> None:
        """Mark messages as taken back, for a host that knows it; they stay stored."""
        numbers = [number for id_ in ids if (number := number_of(id_, "m")) is not None]
        with self._db.write() as connection:
            found = find(connection, conversation, owner)
            if found:
                _supersede(connection, found.id, numbers)

    def get(self, ids: Iterable[str], *, owner: str = "") -> dict[str, Stored]:
        """Fetch messages by id; unknown ids, and those of other owners, are left out."""
        numbers = [number for id_ in ids if (number := number_of(id_, "m")) is not None]
        with self._db.read() as connection:
            return {stored.id: stored for stored in load(connection, numbers, owner=owner).values()}

    def messages(
        self,
        conversation: str,
        *,
        owner: str = "",
        first: int | None = None,
        last: int | None = None,
        superseded: bool = False,
        system: bool = False,
        newest_first: bool = False,
    ) -> Iterator[Stored]:
        """Read messages in live order, by a range of seq; with `superseded` and `system` those too.

        System messages come before all others, a superseded message before the one that took its place. Messages are
        read in pages; those stored meanwhile behind the reader may be among them.
        """
        where = ("" if superseded else " AND state = 0") + ("" if system else " AND kind = 0")
        if first is None and last is None and not (superseded or system):
            return self._pages(conversation, owner, newest_first=newest_first)
        with self._db.read() as connection:
            found = find(connection, conversation, owner) or _NEW
            numbers = [
                row[0]
                for row in connection.execute(
                    f"SELECT id FROM messages WHERE conversation = ? AND seq BETWEEN ? AND ?{where}"
                    " ORDER BY kind DESC, place, id",
                    (found.id, first or 0, found.next_seq if last is None else last),
                )
            ]
        return self._listed(numbers[::-1] if newest_first else numbers)

    def neighbours(self, id: str, *, before: int, after: int, owner: str = "") -> list[Stored]:  # noqa: A002 - its name
        """Return a message with those around it, in live order."""
        number = number_of(id, "m")
        with self._db.read() as connection:
            row = connection.execute(
                "SELECT conversation, place, kind FROM messages WHERE id = ?", (number,)
            ).fetchone()
            if row is None or number is None:
                return []
            numbers = [number]
            if not row[2]:
                numbers = [*_beside(connection, row, "<", before), number, *_beside(connection, row, ">", after)]
            return list(load(connection, numbers, owner=owner).values())

    def _store(
        self,
        conversation: str,
        owner: str,
        messages: Sequence[Message],
        found: Conversation,
        plan: Plan,
        prepared: dict[int, Prepared],
        *,
        settle: bool,
    ) -> tuple[Plan, dict[int, int]]:
        """Carry out a plan; when somebody else wrote in between, make a new one first."""
        with self._db.write() as connection:
            now = opened(connection, conversation, owner, self._clock())
            if plan.crowded:
                _renumber(connection, now.id)
            if plan.crowded or now.revision != found.revision:
                plan = _plan(connection, now, messages, None, settle=settle)
                prepared = _prepared(plan, messages, {})
            rows = [(prepared[addition.index], addition.place) for addition in plan.added]
            _supersede(connection, now.id, plan.superseded)
            numbers = insert(connection, now, rows, self._clock())
            connection.execute("UPDATE conversations SET listed = ? WHERE id = ?", (len(messages), now.id))
        return plan, dict(zip((addition.index for addition in plan.added), numbers, strict=True))

    def _remember(self, key: tuple[str, str], reading: Reading, length: int) -> None:
        """Keep what was read from the end of a list, for the next time; of many conversations, the last ones."""
        self._readings[key] = {index: read for index, read in reading.items() if index >= length - RUN - REACH}
        self._readings.move_to_end(key)
        while len(self._readings) > REMEMBERED:
            self._readings.popitem(last=False)

    def _recent_calls(self, conversation: str, owner: str, messages: Sequence[Message]) -> dict[str, str]:
        """Return the names of the tools that were called last, when there are messages that need them."""
        if not messages:
            return {}
        with self._db.read() as connection:
            found = find(connection, conversation, owner)
            rows = connection.execute(
                "SELECT id FROM messages WHERE conversation = ? AND state = 0 AND kind = 0 AND role = 'assistant'"
                " AND call_key IS NOT NULL ORDER BY place DESC LIMIT 2",
                (found.id if found else 0,),
            )
            return call_names([stored.message for stored in load(connection, [id_ for (id_,) in rows]).values()])

    def _pages(self, conversation: str, owner: str, *, newest_first: bool) -> Iterator[Stored]:
        """Read the live messages page by page."""
        sign, order, edge = ("<", "DESC", float("inf")) if newest_first else (">", "ASC", float("-inf"))
        place, number = edge, 0
        while True:
            with self._db.read() as connection:
                found = find(connection, conversation, owner) or _NEW
                rows = connection.execute(
                    "SELECT id, place FROM messages WHERE conversation = ? AND state = 0 AND kind = 0"
                    f" AND (place, id) {sign} (?, ?) ORDER BY place {order}, id {order} LIMIT ?",
                    (found.id, place, number, PAGE),
                ).fetchall()
                page = load(connection, [row[0] for row in rows])
            yield from page.values()
            if len(rows) < PAGE:
                return
            number, place = rows[-1]

    def _listed(self, numbers: list[int]) -> Iterator[Stored]:
        for start in range(0, len(numbers), PAGE):
            with self._db.read() as connection:
                page = load(connection, numbers[start : start + PAGE])
            yield from page.values()


def _plan(
    connection: sqlite3.Connection,
    found: Conversation,
    messages: Sequence[Message],
    reading: Reading | None,
    *,
    settle: bool,
) -> Plan:
    """Decide what a list means; without an earlier reading, or when it got shorter, by the whole list."""
    history = SQLiteHistory(connection, found.id)
    quick = None if reading is None or len(messages) < found.listed else quick_plan(history, messages, reading)
    return quick or full_plan(history, messages, settle=settle)


def _changes(plan: Plan, found: Conversation, messages: Sequence[Message]) -> bool:
    """Tell whether there is anything to write."""
    changed = bool(plan.added or plan.superseded) or found.ended
    return changed or (bool(found.id) and found.listed != len(messages))


def _prepared(plan: Plan, messages: Sequence[Message], reading: Reading) -> dict[int, Prepared]:
    indexes = [addition.index for addition in plan.added]
    around = messages[max(0, indexes[0] - RUN) :] if indexes else ()
    tools = call_names(around)
    prepared = {}
    for index in indexes:
        message, seen = reading.get(index, (None, None))
        current = seen if message == messages[index] else None
        prepared[index] = prepare(messages[index], f"messages[{index}]", tools, current)
    return prepared


def _ingested(plan: Plan, stored: dict[int, int], length: int) -> Ingested:
    numbers = plan.known | stored
    numbers |= {index: numbers[first] for index, first in plan.repeated.items()}
    return Ingested(
        ids=tuple(f"m{numbers[n]}" if n in numbers else None for n in range(plan.start, length)),
        start=plan.start,
        added=tuple(f"m{number}" for number in stored.values()),
        superseded=tuple(f"m{number}" for number in plan.superseded),
        full=plan.full,
    )


def _supersede(connection: sqlite3.Connection, conversation: int, numbers: Sequence[int]) -> None:
    for chunk in chunks(numbers):
        connection.execute(
            f"UPDATE messages SET state = 1 WHERE conversation = ? AND kind = 0 AND id IN ({placeholders(chunk)})",
            (conversation, *chunk),
        )
    if numbers:
        connection.execute("UPDATE conversations SET revision = revision + 1 WHERE id = ?", (conversation,))


def _renumber(connection: sqlite3.Connection, conversation: int) -> None:
    """Give the live messages whole places again, in their order, when there is no room between two of them."""
    rows = connection.execute(
        "SELECT id FROM messages WHERE conversation = ? AND state = 0 AND kind = 0 ORDER BY place, id", (conversation,)
    ).fetchall()
    connection.executemany(
        "UPDATE messages SET place = ? WHERE id = ?", [(n + 1.0, row[0]) for n, row in enumerate(rows)]
    )


def _beside(connection: sqlite3.Connection, row: tuple[int, float, int], sign: str, count: int) -> list[int]:
    """Return the live messages next to a place, in live order."""
    order = "DESC" if sign == "<" else "ASC"
    found = connection.execute(
        "SELECT id FROM messages WHERE conversation = ? AND state = 0 AND kind = 0"
        f" AND place {sign} ? ORDER BY place {order}, id {order} LIMIT ?",
        (row[0], row[1], count),
    )
    numbers = [id_ for (id_,) in found]
    return numbers[::-1] if sign == "<" else numbers
