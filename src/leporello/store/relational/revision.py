"""Changing what was said before: a message in the place of another one, between two others, taken out, or moved.

Only what a branch said itself can be changed; what it shares with the branch that it was forked from stays as it is. A
branch that was forked from it before sees everything as it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leporello.store.relational.branch_path import path_of, rows_on
from leporello.store.relational.renumber import renumber
from leporello.store.relational.rows import Part, by_number, known_branch, number_of, opened, tip_of
from leporello.store.relational.writing import call_names, insert, prepare, replace_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leporello.store.records import Revision
    from leporello.store.relational.dialect import Connection


class Revisions(Part):
    """Changing what was said before."""

    def revise(
        self, conversation: str, revisions: Sequence[Revision], *, owner: str = "", branch: int | None = None
    ) -> tuple[str | None, ...]:
        """Change what was said on a branch, all at once; returns the ids, None for what could not be changed."""
        tools = call_names([one.message for one in revisions])
        prepared = [prepare(one.message, f"revisions[{n}]", tools) for n, one in enumerate(revisions)]
        ids: list[str | None] = []
        inserted: dict[str, int] = {}
        with self._db.write() as connection:
            found = opened(connection, conversation, owner, self._clock())
            on = known_branch(connection, found, branch, self._db.place)
            for one, row in zip(revisions, prepared, strict=True):
                now = by_number(connection, found.id)
                number = number_of(one.of, "m") or 0
                if one.kind == "remove":
                    own = _own_place(connection, now.id, on, number)
                    replace_rows(connection, now.id, on, [number], now.next_seq - 1)
                    ids.append(None if own is None else one.of)
                    continue
                place: float | None = None
                if one.kind == "insert":
                    place = _place_behind(connection, now.id, on, inserted.get(one.of, number))
                else:
                    place = _own_place(connection, now.id, on, number)
                    replace_rows(connection, now.id, on, [number], now.next_seq)
                if place is None:
                    ids.append(None)
                    continue
                (new,) = insert(connection, now, [(row, place)], self._clock(), on)
                ids.append(f"m{new}")
                if one.kind == "insert":
                    inserted[one.of] = new
        return tuple(ids)

    def move(
        self, conversation: str, ids: Sequence[str], *, behind: str, owner: str = "", branch: int | None = None
    ) -> bool:
        """Put messages of a branch behind its newest one, in this order; False when they have to stay."""
        with self._db.write() as connection:
            found = opened(connection, conversation, owner, self._clock())
            on = known_branch(connection, found, branch, self._db.place)
            numbers = [number_of(id_, "m") or 0 for id_ in ids]
            places = [place for n in numbers if (place := _own_place(connection, found.id, on, n)) is not None]
            tip = tip_of(connection, found.id, on)
            if len(places) < len(ids) or tip is None or f"m{tip[0]}" != behind:
                return False
            if _is_shared(connection, found.id, on, min(places)):
                return False
            connection.executemany(
                "UPDATE messages SET place = ? WHERE id = ? AND conversation = ?",
                [(tip[1] + at, number, found.id) for at, number in enumerate(numbers, 1)],
            )
            connection.execute("UPDATE conversations SET revision = revision + 1 WHERE id = ?", (found.id,))
        return True


def _place_behind(connection: Connection, conversation: int, branch: int, number: int) -> float:
    """Return a place directly behind a message, at the earliest where the branch begins; 0: in front of everything."""
    path = path_of(connection, conversation, branch)
    shared = path[-2].place if len(path) > 1 else float("-inf")
    row = connection.execute(
        "SELECT place FROM messages WHERE id = ? AND conversation = ? AND kind = 0", (number, conversation)
    ).fetchone()
    after = max(float(row[0]) if row else float("-inf"), shared)
    following = next(rows_on(connection, conversation, path, "place", " AND place > ?", (after,), limit=1), None)
    if following is None:
        return max(after, 0.0) + 1
    place = following[0] - 1 if after == float("-inf") else (after + following[0]) / 2
    if after < place < following[0]:
        return float(place)
    renumber(connection, conversation)
    return _place_behind(connection, conversation, branch, number)


def _is_shared(connection: Connection, conversation: int, branch: int, place: float) -> bool:
    """Tell whether a branch was forked behind a place of this one, and has what stands there."""
    forks = "SELECT 1 FROM branches WHERE conversation = ? AND parent = ? AND fork_place >= ? LIMIT 1"
    return connection.execute(forks, (conversation, branch, place)).fetchone() is not None


def _own_place(connection: Connection, conversation: int, branch: int, number: int) -> float | None:
    row = connection.execute(
        "SELECT place FROM messages WHERE id = ? AND conversation = ? AND branch = ? AND kind = 0 AND gone IS NULL",
        (number, conversation, branch),
    ).fetchone()
    return float(row[0]) if row else None
