"""What was said, stored: appended by a host that knows what is new, or recognised in its whole list."""

# ruff: noqa: S608 - statements are put together from constants; values are always bound

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from leporello.errors import CommitUnknownError, StaleTipError
from leporello.messages import fingerprint, leading_systems
from leporello.store.reconcile.full_plan import full_plan
from leporello.store.reconcile.incremental_plan import RUN, extended, incremental_plan, remembered
from leporello.store.records import Ingested
from leporello.store.relational.branch_path import path_of, rows_on
from leporello.store.relational.branches import begin_root, fork_at, goes_on, newest_branches, set_head
from leporello.store.relational.history import StoredHistory
from leporello.store.relational.reading import load
from leporello.store.relational.recognition import note_known
from leporello.store.relational.renumber import renumber
from leporello.store.relational.rows import (
    NEW,
    ConversationRow,
    Part,
    by_number,
    chunks,
    find,
    known_branch,
    number_of,
    opened,
    placeholders,
    tip_of,
    to_json,
)
from leporello.store.relational.windows import write_request
from leporello.store.relational.writing import are_named, call_names, insert, prepare, replace_rows

if TYPE_CHECKING:
    from collections import OrderedDict
    from collections.abc import Iterable, Mapping, Sequence

    from leporello.messages import Message
    from leporello.store.reconcile.incremental_plan import ListState, Version
    from leporello.store.reconcile.plan import Origins, Plan
    from leporello.store.records import JournalRow
    from leporello.store.relational.dialect import Connection
    from leporello.store.relational.writing import Prepared

REMEMBERED: Final = 256
MOST_TRIED: Final = 8
"""Branches that are looked at for a list that does not go on from the head, the newest first."""
_K = TypeVar("_K")
_V = TypeVar("_V")


class Messages(Part):
    """Storing what was said."""

    _readings: OrderedDict[tuple[str, str, int], ListState]
    """What is remembered of the lists that were stored since this store was opened, by branch."""
    _called: OrderedDict[tuple[str, str], dict[str, str]]
    """The names of the tools that were called last, by the ids of the calls; the rows know them too."""

    def append(
        self,
        conversation: str,
        messages: Sequence[Message],
        *,
        owner: str = "",
        branch: int | None = None,
        request: JournalRow | None = None,
        prompt: bool = False,
        behind: str | None = None,
        known: Mapping[int, Sequence[bytes]] | None = None,
        attempted: Sequence[str] = (),
    ) -> tuple[str, ...]:
        """Append messages to a branch, for a host that knows what is new; returns their ids.

        `request` is the row of the journal that they answer: it is written together with them, or not at all. A branch
        becomes the head when a user goes on behind an answer on it. With `prompt` they are the system prompt from now
        on; else only system messages that nothing precedes belong to it. `known` has the hashes by which a client's
        history up to a message is recognised, by its index. With `behind` the branch must end with that message, else
        `StaleTipError` is raised. `attempted` are the ids of an earlier attempt that ended with `CommitUnknownError`:
        messages that are there by these ids are not stored again.
        """
        key = (owner, conversation)
        called, tools = self._tools(conversation, owner, branch, messages)
        prepared = [prepare(message, f"messages[{n}]", tools) for n, message in enumerate(messages)]
        ids = tuple(attempted)
        try:
            with self._db.write() as connection:
                found = opened(connection, conversation, owner, self._clock())
                if attempted and _are_there(connection, found.id, attempted, prepared):
                    return ids
                on = known_branch(connection, found, branch, self._db.place)
                tip = tip_of(connection, found.id, on)
                if behind is not None and (tip[0] if tip else None) != number_of(behind, "m"):
                    raise StaleTipError(behind, self._db.place)
                if on != found.head and goes_on(connection, found.id, on, [row.seen.role for row in prepared]):
                    set_head(connection, found.id, on)
                count = len(messages) if prompt else 0 if tip else leading_systems(messages)
                systems = {row.seen.fingerprint: row for row in prepared[:count]}
                prompts = StoredHistory(connection, found.id, on).systems(systems) if systems else {}
                new = {mark: row for mark, row in systems.items() if mark not in prompts}
                rows: list[tuple[Prepared, float | None]] = [(row, None) for row in new.values()]
                place = tip[1] + 1 if tip else 1.0
                rows += [(row, place + n) for n, row in enumerate(prepared[count:])]
                if known:
                    first = found.next_seq + len(new) - count
                    note_known(
                        connection, found.id, on, [(h, first + n) for n, found_by in known.items() for h in found_by]
                    )
                numbers = insert(connection, found, rows, self._clock(), on)
                prompts |= dict(zip(new, numbers, strict=False))
                stored = [*(prompts[row.seen.fingerprint] for row in prepared[:count]), *numbers[len(new) :]]
                ids = tuple(f"m{number}" for number in stored)
                if request is not None:
                    write_request(connection, found.id, request, self._clock(), on)
                reading = self._readings.get((*key, on))
                after = by_number(connection, found.id) if reading else found
        except CommitUnknownError as error:
            error.ids = ids
            raise
        if reading and reading.version == found.version:
            seen = [row.seen._replace(system=n < count) for n, row in enumerate(prepared)]
            self._remember((*key, on), extended(reading, messages, seen, stored, after.version))
        if called:
            _keep(self._called, key, called)
        return ids

    def _tools(
        self, conversation: str, owner: str, branch: int | None, messages: Sequence[Any]
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Return the names of the tools that these messages call, and of all that they answer, by the ids of calls."""
        if not any(isinstance(one, dict) and ("tool_calls" in one or "tool_call_id" in one) for one in messages):
            return {}, {}  # what is no message is refused when it is prepared
        called = call_names(messages)
        tools = self._called.get((owner, conversation), {}) | called
        if not are_named(messages, tools):
            tools |= self._recent_calls(conversation, owner, branch)
        return called, tools

    def newest(self, conversation: str, *, owner: str = "", branch: int | None = None) -> str | None:
        """Return the id of the newest message of a branch, the system prompt left out; None when there is none."""
        with self._db.read() as connection:
            found = find(connection, conversation, owner)
            tip = tip_of(connection, found.id, branch or found.head) if found else None
        return f"m{tip[0]}" if tip else None

    def ingest(
        self,
        conversation: str,
        messages: Sequence[Message],
        *,
        owner: str = "",
        branch: int | None = None,
        full: bool = False,
    ) -> Ingested:
        """Store what is new in a host's whole list; `full` forces the full reconciliation.

        A list that goes on elsewhere than at the end of the branch forks it, and the fork becomes the head. With `full`
        a list that only lacks the newest messages does so too. One that shares nothing with any branch begins a new
        root, which becomes the head; on a named branch it is stored behind what is there.
        """
        with self._db.read() as connection:
            found = find(connection, conversation, owner) or NEW
            reading = self._readings.get((owner, conversation, branch or found.head))
            on, plan = _plan(connection, found, branch, messages, reading, full=full)
        version = found.version
        stored: dict[int, int] = {}
        if plan.added or plan.superseded or found.ended:
            prepared = _prepared(plan, messages)
            plan, stored, version, on = self._store(
                conversation, owner, branch, on, messages, found, plan, prepared, full=full
            )
        origins = _origins(plan, stored)
        if plan.settled:
            self._remember((owner, conversation, on), remembered(messages, plan, origins, version, reading))
        return _ingested(plan, origins, stored, len(messages), on)

    def handed_out(
        self,
        conversation: str,
        messages: Sequence[tuple[Message, Sequence[str]]],
        *,
        owner: str = "",
        branch: int | None = None,
    ) -> None:
        """Note a list that an engine hands to the host, each message with the ids of those it stands for.

        One that the engine wrote stands for none. Such messages are never stored, and the next list is read on from
        here.
        """
        marks = [bytes.fromhex(fingerprint(message)) for message, _ in messages]
        origins = [[number for id_ in ids if (number := number_of(id_, "m")) is not None] for _, ids in messages]
        with self._db.write() as connection:
            found = opened(connection, conversation, owner, self._clock())
            on = known_branch(connection, found, branch, self._db.place)
            tip = tip_of(connection, found.id, on)
            made = _made(connection, found.id, zip(marks, origins, strict=True))
            connection.executemany(
                "INSERT INTO emitted (conversation, fingerprint, origins) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                [(found.id, mark, " ".join(map(str, numbers))) for mark, numbers in made],
            )
            connection.execute(
                "INSERT INTO handed_out (conversation, branch, newest, marks, origins) VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT (conversation, branch) DO UPDATE SET newest = excluded.newest, marks = excluded.marks,"
                " origins = excluded.origins",
                (found.id, on, tip[0] if tip else 0, b"".join(marks), to_json(origins)),
            )
        self._remember((owner, conversation, on), None)

    def _store(
        self,
        conversation: str,
        owner: str,
        branch: int | None,
        on: int,
        messages: Sequence[Message],
        found: ConversationRow,
        plan: Plan,
        prepared: dict[int, Prepared],
        *,
        full: bool,
    ) -> tuple[Plan, dict[int, int], Version, int]:
        """Carry out a plan, made anew when it is outdated; return it, new numbers, the version and the branch."""
        with self._db.write() as connection:
            now = opened(connection, conversation, owner, self._clock())
            if plan.crowded:
                renumber(connection, now.id)
            if plan.crowded or now.revision != found.revision:
                reading = self._readings.get((owner, conversation, branch or now.head))
                on, plan = _plan(connection, now, branch, messages, reading, full=full, quick=False)
                prepared = _prepared(plan, messages)
            on = known_branch(connection, now, on, self._db.place)
            if plan.root and branch is None:
                on = begin_root(connection, now, self._clock())
            elif plan.fork is not None:
                on = fork_at(connection, now, on, plan.fork, self._clock(), head=True)
            else:
                replace_rows(connection, now.id, on, plan.superseded, now.next_seq)
                if branch is None and on != now.head and plan.added:
                    set_head(connection, now.id, on)
            rows = [(prepared[addition.index], addition.place) for addition in plan.added]
            numbers = insert(connection, now, rows, self._clock(), on)
            version = by_number(connection, now.id).version
        stored = dict(zip((addition.index for addition in plan.added), numbers, strict=True))
        return plan, stored, version, on

    def _remember(self, key: tuple[str, str, int], reading: ListState | None) -> None:
        """Keep what was read from a list for the next time; of many conversations, the last ones."""
        if reading is None:
            self._readings.pop(key, None)
        else:
            _keep(self._readings, key, reading)

    def _recent_calls(self, conversation: str, owner: str, branch: int | None) -> dict[str, str]:
        """Return the names of the tools that were called last."""
        with self._db.read() as connection:
            found = find(connection, conversation, owner)
            if found is None:
                return {}
            path = path_of(connection, found.id, branch or found.head)
            calls = " AND role = 'assistant' AND call_key IS NOT NULL"
            rows = rows_on(connection, found.id, path, "id", calls, newest_first=True, limit=2)
            calling = load(connection, [id_ for (id_,) in rows], conversation=found.id)
            return call_names([stored.message for stored in calling.values()])


def _keep(memory: OrderedDict[_K, _V], key: _K, value: _V) -> None:
    """Remember something, and forget what was not touched for longest."""
    memory[key] = value
    memory.move_to_end(key)
    while len(memory) > REMEMBERED:
        memory.popitem(last=False)


def _are_there(connection: Connection, conversation: int, ids: Sequence[str], prepared: Sequence[Prepared]) -> bool:
    """Tell whether messages are stored by these ids: an earlier attempt to append them was committed."""
    wanted = {number_of(id_, "m"): bytes.fromhex(row.seen.fingerprint) for id_, row in zip(ids, prepared, strict=True)}
    found: dict[int, bytes] = {}
    for chunk in chunks(list(wanted)):
        rows = connection.execute(
            f"SELECT id, fingerprint FROM messages WHERE conversation = ? AND id IN ({placeholders(chunk)})",
            (conversation, *chunk),
        )
        found.update(rows.fetchall())
    return found == wanted


def _plan(
    connection: Connection,
    found: ConversationRow,
    branch: int | None,
    messages: Sequence[Message],
    reading: ListState | None,
    *,
    full: bool,
    quick: bool = True,
) -> tuple[int, Plan]:
    """Decide what a list means, and on which branch; without an earlier reading, or when it got shorter, by all of it.

    A list that does not go on from the end of the head may go on from that of another branch, or of another root.
    """
    on = branch or found.head
    history = StoredHistory(connection, found.id, on)
    plan = None
    if quick and not full and reading is not None and len(messages) >= reading.length:
        plan = incremental_plan(history, messages, reading, found.version)
    plan = plan or full_plan(history, messages, reading=reading, settle=full)
    if plan.fits or branch is not None:
        return on, plan
    for other in newest_branches(connection, found.id, MOST_TRIED):
        history = StoredHistory(connection, found.id, other)
        better = full_plan(history, messages, settle=full)
        if better.shared < plan.shared:
            continue
        tip = history.newest(1)
        if better.fits and tip and any(tip[0].id in ids for ids in better.known.values()):
            return other, better
        if better.shared > plan.shared and (better.fits or better.sure):
            on, plan = other, better
    return on, plan


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


def _ingested(plan: Plan, origins: dict[int, Origins], stored: dict[int, int], length: int, branch: int) -> Ingested:
    return Ingested(
        branch=branch,
        ids=tuple(f"m{origins[n][0]}" if n in origins else None for n in range(plan.start, length)),
        start=plan.start,
        added=tuple(f"m{number}" for number in stored.values()),
        superseded=tuple(f"m{number}" for number in plan.superseded),
        full=plan.full,
        joined={n: tuple(f"m{number}" for number in found) for n, found in origins.items() if len(found) > 1},
    )


def _made(
    connection: Connection, conversation: int, messages: Iterable[tuple[bytes, list[int]]]
) -> list[tuple[bytes, list[int]]]:
    """Return those messages of a list that are not simply a stored one."""
    listed = list(messages)
    kept: dict[int, bytes] = {}
    for chunk in chunks([numbers[0] for _, numbers in listed if len(numbers) == 1]):
        kept.update(
            connection.execute(
                f"SELECT id, fingerprint FROM messages WHERE {connection.dialect.conversation_of}"
                f" AND id IN ({placeholders(chunk)})",
                (conversation, *chunk),
            )
        )
    return [(mark, numbers) for mark, numbers in listed if len(numbers) != 1 or kept.get(numbers[0]) != mark]
