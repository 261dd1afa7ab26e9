"""Messages: appended, recognised, read."""

# ruff: noqa: S608 - statements are put together from constants; values are always bound

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, TypeVar

from leporello.messages import fingerprint
from leporello.store.match import full_plan
from leporello.store.protocol import Ingested
from leporello.store.quick import RUN, extended, quick_plan, remembered
from leporello.store.seen import raw_calls
from leporello.store.sqlite.history import SQLiteHistory
from leporello.store.sqlite.part import Conversation, Part, chunks, find, number_of, opened, placeholders, to_json
from leporello.store.sqlite.reading import load
from leporello.store.sqlite.windows import write_request
from leporello.store.sqlite.writing import are_named, call_names, insert, prepare

if TYPE_CHECKING:
    import sqlite3
    from collections import OrderedDict
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from leporello.messages import Message
    from leporello.store.known import Origins, Plan
    from leporello.store.protocol import Request, Stored
    from leporello.store.quick import Reading, Version
    from leporello.store.sqlite.writing import Prepared

PAGE: Final = 256
PAGE_CHARACTERS: Final = 8 * 1024 * 1024
"""How many messages are read at once, and how much text in them."""

REMEMBERED: Final = 256
_K = TypeVar("_K")
_V = TypeVar("_V")
_NEW = Conversation(id=0, owner="", next_seq=1, chain=b"", revision=0, ended=False)


class Messages(Part):
    """What was said."""

    _readings: OrderedDict[tuple[str, str], Reading]
    """What is remembered of the lists that were stored since this store was opened."""
    _called: OrderedDict[tuple[str, str], dict[str, str]]
    """The names of the tools that were called last, by the ids of the calls; the rows know them too."""

    def append(
        self, conversation: str, messages: Sequence[Message], *, owner: str = "", request: Request | None = None
    ) -> tuple[str, ...]:
        """Append messages by position, for a host that knows what is new; returns their ids.

        `request` is the row of the journal that they answer: it is written together with them, or not at all.
        """
        key, called = (owner, conversation), call_names(messages)
        tools = self._called.get(key, {}) | called
        if not are_named(messages, tools):
            tools |= self._recent_calls(conversation, owner)
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
            if request is not None:
                write_request(connection, found.id, request, self._clock())
        known |= dict(zip(new, numbers, strict=False))
        said = iter(numbers[len(new) :])
        stored = [known[row.seen.fingerprint] if row.seen.system else next(said) for row in prepared]
        reading = self._readings.get(key)
        if reading and reading.version == found.version:
            now = (found.id, found.revision + 1)
            longer = extended(reading, messages, [row.seen for row in prepared], stored, now)
            self._remember(key, longer)
        if called:
            _keep(self._called, key, called)
        return tuple(f"m{number}" for number in stored)

    def ingest(
        self, conversation: str, messages: Sequence[Message], *, owner: str = "", full: bool = False
    ) -> Ingested:
        """Store what is new in a host's whole list; `full` forces the full reconciliation.

        With `full` messages that the host took back count as undone even when nothing new follows them.
        """
        reading = self._readings.get((owner, conversation))
        with self._db.read() as connection:
            found = find(connection, conversation, owner) or _NEW
            plan = _plan(connection, found, messages, reading, quick=not full, settle=full)
        version = found.version
        stored: dict[int, int] = {}
        if plan.added or plan.superseded or found.ended:
            prepared = _prepared(plan, messages)
            plan, stored, version = self._store(
                conversation, owner, messages, found, plan, prepared, reading, full=full
            )
        origins = _origins(plan, stored)
        if plan.settled:
            self._remember((owner, conversation), remembered(messages, plan, origins, version, reading))
        return _ingested(plan, origins, stored, len(messages))

    def handed_out(
        self, conversation: str, messages: Sequence[tuple[Message, Sequence[str]]], *, owner: str = ""
    ) -> None:
        """Note a list that an engine hands to the host, each message with the ids of those it stands for.

        One that the engine wrote stands for none. Such messages are never stored, and the next list is read on from
        here.
        """
        marks = [bytes.fromhex(fingerprint(message)) for message, _ in messages]
        origins = [[number for id_ in ids if (number := number_of(id_, "m")) is not None] for _, ids in messages]
        with self._db.write() as connection:
            found = opened(connection, conversation, owner, self._clock())
            history = SQLiteHistory(connection, found.id)
            newest = history.newest(1)
            made = _made(connection, found.id, zip(marks, origins, strict=True))
            connection.executemany(
                "INSERT OR IGNORE INTO emitted (conversation, fingerprint, origins) VALUES (?, ?, ?)",
                [(found.id, mark, " ".join(map(str, numbers))) for mark, numbers in made],
            )
            connection.execute(
                "INSERT OR REPLACE INTO handed_out (conversation, newest, marks, origins) VALUES (?, ?, ?, ?)",
                (found.id, newest[0].id if newest else 0, b"".join(marks), to_json(origins)),
            )
        self._remember((owner, conversation), None)

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
            rows = connection.execute(
                f"SELECT id, size FROM messages WHERE conversation = ? AND seq BETWEEN ? AND ?{where}"
                " ORDER BY kind DESC, place, id",
                (found.id, first or 0, found.next_seq if last is None else last),
            ).fetchall()
        return self._listed(rows[::-1] if newest_first else rows)

    def newest(self, conversation: str, *, owner: str = "") -> str | None:
        """Return the id of the newest message that is not a system message, in live order; None when there is none."""
        with self._db.read() as connection:
            found = find(connection, conversation, owner)
            rows = SQLiteHistory(connection, found.id).newest(1) if found else []
        return f"m{rows[0].id}" if rows else None

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

    def asking(self, conversation: str, tools: Collection[str], *, owner: str = "") -> tuple[str, ...]:
        """Return the ids of a call of these tools that waits for its result, and of what led to it in its turn."""
        with self._db.read() as connection:
            found = find(connection, conversation, owner)
            rows = connection.execute(
                "SELECT id, role, tool FROM messages WHERE conversation = ? AND state = 0 AND kind = 0"
                " ORDER BY place DESC, id DESC",
                (found.id if found else 0,),
            )
            turn = _newest_turn(rows)
            calling = next((row for row in turn if row[1] == "assistant"), None)
            if calling is None or not _waits(connection, calling[0], turn.index(calling), tools):
                return ()
        return tuple(f"m{id_}" for id_, role, tool in turn if role == "user" or not _is_apart(tool, tools))

    def _store(
        self,
        conversation: str,
        owner: str,
        messages: Sequence[Message],
        found: Conversation,
        plan: Plan,
        prepared: dict[int, Prepared],
        reading: Reading | None,
        *,
        full: bool,
    ) -> tuple[Plan, dict[int, int], Version]:
        """Carry out a plan, made anew when somebody else wrote in between; return it, new numbers, and the version."""
        with self._db.write() as connection:
            now = opened(connection, conversation, owner, self._clock())
            if plan.crowded:
                _renumber(connection, now.id)
            if plan.crowded or now.revision != found.revision:
                plan = _plan(connection, now, messages, reading, quick=False, settle=full)
                prepared = _prepared(plan, messages)
            rows = [(prepared[addition.index], addition.place) for addition in plan.added]
            _supersede(connection, now.id, plan.superseded)
            numbers = insert(connection, now, rows, self._clock())
            revision: int = connection.execute("SELECT revision FROM conversations WHERE id = ?", (now.id,)).fetchone()[
                0
            ]
        return plan, dict(zip((addition.index for addition in plan.added), numbers, strict=True)), (now.id, revision)

    def _remember(self, key: tuple[str, str], reading: Reading | None) -> None:
        """Keep what was read from a list for the next time; of many conversations, the last ones."""
        if reading is None:
            self._readings.pop(key, None)
        else:
            _keep(self._readings, key, reading)

    def _recent_calls(self, conversation: str, owner: str) -> dict[str, str]:
        """Return the names of the tools that were called last."""
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
                    "SELECT id, size, place FROM messages WHERE conversation = ? AND state = 0 AND kind = 0"
                    f" AND (place, id) {sign} (?, ?) ORDER BY place {order}, id {order} LIMIT ?",
                    (found.id, place, number, PAGE),
                ).fetchall()
                length = _page_length(rows)
                page = load(connection, [row[0] for row in rows[:length]])
            yield from page.values()
            if len(rows) < PAGE and length >= len(rows):
                return
            number, _, place = rows[length - 1]

    def _listed(self, rows: list[tuple[int, int]]) -> Iterator[Stored]:
        start = 0
        while start < len(rows):
            ahead = rows[start : start + PAGE]
            numbers = [number for number, _ in ahead[: _page_length(ahead)]]
            start += len(numbers)
            with self._db.read() as connection:
                page = load(connection, numbers)
            yield from page.values()


def _newest_turn(newest_first: Iterable[tuple[int, str, str]]) -> list[tuple[int, str, str]]:
    """Return number, role and tools of the messages back to the newest one of the user."""
    turn = []
    for row in newest_first:
        turn.append(row)
        if row[1] == "user":
            break
    return turn


def _waits(connection: sqlite3.Connection, calling: int, results: int, tools: Collection[str]) -> bool:
    """Tell whether a message with so many results behind it calls one of the tools, and has more calls than these."""
    names = [name for _, name, _ in raw_calls(load(connection, [calling])[calling].message)]
    return len(names) > results and not _is_apart(" ".join(names), tools)


def _is_apart(tool: str, tools: Collection[str]) -> bool:
    """Tell whether none of these tools is called, or answers, in a message."""
    return not any(name in tools for name in tool.split())


def _page_length(rows: Sequence[tuple[int, int, *tuple[Any, ...]]]) -> int:
    """Return how many of the next rows (id, size, …) are read at once: at least one, fewer of very long ones."""
    sizes = accumulate(row[1] for row in rows)
    return max(1, sum(size <= PAGE_CHARACTERS for size in sizes))


def _keep(memory: OrderedDict[_K, _V], key: _K, value: _V) -> None:
    """Remember something, and forget what was not touched for longest."""
    memory[key] = value
    memory.move_to_end(key)
    while len(memory) > REMEMBERED:
        memory.popitem(last=False)


def _plan(
    connection: sqlite3.Connection,
    found: Conversation,
    messages: Sequence[Message],
    reading: Reading | None,
    *,
    quick: bool,
    settle: bool,
) -> Plan:
    """Decide what a list means; without an earlier reading, or when it got shorter, by the whole list."""
    history = SQLiteHistory(connection, found.id)
    plan = None
    if quick and reading is not None and len(messages) >= reading.length:
        plan = quick_plan(history, messages, reading, found.version)
    return plan or full_plan(history, messages, reading=reading, settle=settle)


def _prepared(plan: Plan, messages: Sequence[Message]) -> dict[int, Prepared]:
    new = {addition.index: messages[addition.index] for addition in plan.added}
    tools = call_names(new.values())
    if not are_named(new.values(), tools):
        tools = call_names(messages[max(0, min(new) - RUN) :])
    return {n: prepare(message, f"messages[{n}]", tools, plan.seen[n]) for n, message in new.items()}


def _origins(plan: Plan, stored: dict[int, int]) -> dict[int, Origins]:
    """Return what the messages of a list stand for, now that the new ones are stored."""
    origins = plan.known | {index: (number,) for index, number in stored.items()}
    return origins | {index: origins[first] for index, first in plan.repeated.items()}


def _ingested(plan: Plan, origins: dict[int, Origins], stored: dict[int, int], length: int) -> Ingested:
    return Ingested(
        ids=tuple(f"m{origins[n][0]}" if n in origins else None for n in range(plan.start, length)),
        start=plan.start,
        added=tuple(f"m{number}" for number in stored.values()),
        superseded=tuple(f"m{number}" for number in plan.superseded),
        full=plan.full,
        joined={n: tuple(f"m{number}" for number in found) for n, found in origins.items() if len(found) > 1},
    )


def _made(
    connection: sqlite3.Connection, conversation: int, messages: Iterable[tuple[bytes, list[int]]]
) -> list[tuple[bytes, list[int]]]:
    """Return those messages of a list that are not simply a stored one."""
    listed = list(messages)
    kept: dict[int, bytes] = {}
    for chunk in chunks([numbers[0] for _, numbers in listed if len(numbers) == 1]):
        kept.update(
            connection.execute(
                f"SELECT id, fingerprint FROM messages WHERE +conversation = ? AND id IN ({placeholders(chunk)})",
                (conversation, *chunk),
            )
        )
    return [(mark, numbers) for mark, numbers in listed if len(numbers) != 1 or kept.get(numbers[0]) != mark]


def _supersede(connection: sqlite3.Connection, conversation: int, numbers: Sequence[int]) -> None:
    for chunk in chunks(numbers):
        connection.execute(
            f"UPDATE messages SET state = 1 WHERE +conversation = ? AND kind = 0 AND id IN ({placeholders(chunk)})",
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
