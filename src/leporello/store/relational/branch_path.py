"""The path of a branch: the messages of its ancestors up to where it was forked, as they were then, and its own.

A path is a list of segments, the root's first. Places rise along it, so what is read segment by segment is in order.
"""

# ruff: noqa: S608 - statements are put together from constants; values are always bound

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from leporello.store.records import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from leporello.store.relational.dialect import Connection

_LAST: Final = (1 << 63) - 1
_BEHIND_ALL: Final = float("inf")
ALL: Final = 1 << 62
"""A limit that no number of rows reaches."""


class Segment(NamedTuple):
    """The part of a path that lies on one branch: its messages up to a place, as they were when `seq` was the last."""

    branch: int
    place: float = _BEHIND_ALL
    seq: int = _LAST

    def holds(self, branch: int, place: float, seq: int, gone: int | None) -> bool:
        """Tell whether a message lies on it."""
        return branch == self.branch and place <= self.place and seq <= self.seq and (gone is None or gone > self.seq)

    @property
    def condition(self) -> str:
        """What rows of this segment fulfil; the values are in `values`."""
        if self.seq == _LAST:
            return "branch = ? AND gone IS NULL"
        return "branch = ? AND place <= ? AND seq <= ? AND (gone IS NULL OR gone > ?)"

    @property
    def values(self) -> tuple[Any, ...]:
        """The values of the condition."""
        return (self.branch,) if self.seq == _LAST else (self.branch, self.place, self.seq, self.seq)


BranchPath: TypeAlias = tuple[Segment, ...]


class Fork(NamedTuple):
    """Where a branch was forked: its parent, behind which place, what was the last seq and the last request then."""

    parent: int
    place: float
    seq: int
    request: int


def head_of(connection: Connection, conversation: int) -> int:
    """Return the branch that a conversation is resumed on."""
    row = connection.execute("SELECT head FROM conversations WHERE id = ?", (conversation,)).fetchone()
    return int(row[0]) if row else ROOT


def fork_of(connection: Connection, conversation: int, branch: int) -> Fork | None:
    """Return where a branch was forked; None for a root."""
    row = connection.execute(
        "SELECT parent, fork_place, fork_seq, fork_request FROM branches WHERE conversation = ? AND id = ?",
        (conversation, branch),
    ).fetchone()
    return Fork(*row) if row and row[0] is not None else None


def path_of(connection: Connection, conversation: int, branch: int | None = None) -> BranchPath:
    """Return the path of a branch; None: of the head."""
    branch = head_of(connection, conversation) if branch is None else branch
    segments = [Segment(branch)]
    forks = connection.execute(_FORKS, (conversation, branch, conversation)) if branch != ROOT else ()
    for parent, place, seq in forks:
        child = segments[-1]
        segments.append(Segment(parent, min(place, child.place), min(seq, child.seq)))
    return tuple(reversed(segments))


_FORKS: Final = (
    "WITH RECURSIVE up (parent, place, seq) AS (SELECT parent, fork_place, fork_seq FROM branches"
    " WHERE conversation = ? AND id = ? UNION ALL SELECT b.parent, b.fork_place, b.fork_seq FROM up"
    " JOIN branches b ON b.conversation = ? AND b.id = up.parent) SELECT * FROM up WHERE parent IS NOT NULL"
)
"""The forks above a branch, its own first."""


def on_path(connection: Connection, path: BranchPath) -> tuple[str, tuple[Any, ...]]:
    """Return the condition that rows on a path fulfil, and its values."""
    if len(path) == 1:
        return path[0].condition, path[0].values
    if len(path) > connection.dialect.most_segments:
        return connection.dialect.on_long_path, (json.dumps([[s.branch, min(s.place, _FAR), s.seq] for s in path]),)
    joined = " OR ".join(f"({segment.condition})" for segment in path)
    return f"({joined})", tuple(value for segment in path for value in segment.values)


_FAR: Final = 1e300  # stands for a place behind all in JSON, which has no infinity


def is_on(path: BranchPath, branch: int, place: float, seq: int, gone: int | None) -> bool:
    """Tell whether a message lies on a path."""
    if branch == path[-1].branch:  # most are the branch's own
        return gone is None
    return any(segment.holds(branch, place, seq, gone) for segment in path[:-1])


def rows_on(
    connection: Connection,
    conversation: int,
    path: BranchPath,
    columns: str,
    where: str = "",
    values: Sequence[Any] = (),
    *,
    newest_first: bool = False,
    limit: int = ALL,
) -> Iterator[tuple[Any, ...]]:
    """Walk the messages of a path in order, or from its end; system prompts are not on it."""
    order = "DESC" if newest_first else "ASC"
    for segment in reversed(path) if newest_first else path:
        if not limit:
            return
        look = connection.walk if limit == ALL else connection.execute
        rows = look(
            f"SELECT {columns} FROM messages WHERE conversation = ? AND kind = 0 AND {segment.condition}{where}"
            f" ORDER BY place {order}, id {order} LIMIT ?",
            (conversation, *segment.values, *values, limit),
        )
        if limit == ALL:
            yield from rows
        else:
            found = list(rows)
            limit -= len(found)
            yield from found
