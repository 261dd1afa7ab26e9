"""The order of messages on a path: a place is a number between two others; all are numbered anew when none is left."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leporello.store.relational.dialect import Connection


def renumber(connection: Connection, conversation: int) -> None:
    """Give all messages whole places again, in their order, when there is no room between two of them.

    A root begins behind the branches that were made before it.
    """
    branches = connection.execute(
        "SELECT id, parent, fork_place FROM branches WHERE conversation = ? ORDER BY id", (conversation,)
    ).fetchall()
    moved: dict[int, tuple[list[float], float]] = {}  # of each branch: its places before, and the one they begin behind
    for branch, parent, fork_place in branches:
        base = _end(moved) if parent is None else 0.0
        if parent is not None and fork_place > float("-inf"):
            base = _moved(moved[parent], fork_place)
            connection.execute(
                "UPDATE branches SET fork_place = ? WHERE conversation = ? AND id = ?", (base, conversation, branch)
            )
        rows = connection.execute(
            "SELECT id, place FROM messages WHERE conversation = ? AND branch = ? AND kind = 0 ORDER BY place, id",
            (conversation, branch),
        ).fetchall()
        connection.executemany(
            "UPDATE messages SET place = ? WHERE id = ?", [(base + n, row[0]) for n, row in enumerate(rows, 1)]
        )
        moved[branch] = [row[1] for row in rows], base
    connection.execute("UPDATE windows SET folded_to = NULL WHERE conversation = ?", (conversation,))


def _end(moved: dict[int, tuple[list[float], float]]) -> float:
    """Return the last place of the branches that were numbered anew."""
    return max((base + len(before) for before, base in moved.values()), default=0.0)


def _moved(places: tuple[list[float], float], place: float) -> float:
    """Return where a place of a branch lies after its messages were numbered anew."""
    before, base = places
    return base + bisect_right(before, place)
