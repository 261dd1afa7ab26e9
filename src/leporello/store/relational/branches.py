"""The branches of conversations: a fork is one row, whatever it shares with its parent. And what is pinned in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leporello.errors import StoreError
from leporello.store.records import ROOT, BranchInfo
from leporello.store.relational.branch_path import Fork, fork_of, is_on, path_of, rows_on
from leporello.store.relational.counters import count_anew, count_forked
from leporello.store.relational.rows import (
    Part,
    add_branch,
    find,
    known_branch,
    last_request,
    number_of,
    opened,
    time_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leporello.store.relational.branch_path import BranchPath
    from leporello.store.relational.dialect import Connection
    from leporello.store.relational.rows import ConversationRow


class Branches(Part):
    """The branches of conversations, and what is pinned in them."""

    def branches(self, conversation: str, *, owner: str = "") -> list[BranchInfo]:
        """List the branches of a conversation in the order in which they were made."""
        with self._db.read() as connection:
            found = find(connection, conversation, owner)
            if found is None:
                return []
            rows = connection.execute(
                "SELECT b.id, b.parent, b.messages, b.tokens, b.created, b.used, (SELECT count(*) FROM windows w"
                " WHERE w.conversation = b.conversation AND w.branch = b.id) FROM branches b"
                " WHERE b.conversation = ? ORDER BY b.id",
                (found.id,),
            ).fetchall()
            return [_described(connection, found, *row) for row in rows]

    def fork(
        self,
        conversation: str,
        *,
        before: str | None = None,
        behind: str | None = None,
        owner: str = "",
        branch: int | None = None,
        head: bool = True,
    ) -> int:
        """Make a branch that shares everything before or up to a message with its parent, and return its number.

        None: everything. Nothing is copied. With `head` the conversation is resumed on it from now on.
        """
        with self._db.write() as connection:
            found = opened(connection, conversation, owner, self._clock())
            on = known_branch(connection, found, branch, self._db.place)
            path = path_of(connection, found.id, on)
            place = _last_place(connection, found, path)
            if before is not None:
                place = _place_before(connection, found, path, before, self._db.place)
            elif behind is not None:
                place = _place_of(connection, found, path, behind, self._db.place)
            return fork_at(connection, found, on, place, self._clock(), head=head)

    def begin_root(self, conversation: str, *, owner: str = "", head: bool = True) -> int:
        """Make a branch that shares nothing with the others, and return its number.

        In a conversation in which nothing was said that is its first branch. With `head` the conversation is resumed on
        it from now on.
        """
        with self._db.write() as connection:
            found = opened(connection, conversation, owner, self._clock())
            if next(rows_on(connection, found.id, path_of(connection, found.id, ROOT), "id", limit=1), None) is None:
                return ROOT
            number = begin_root(connection, found, self._clock())
            if not head:
                set_head(connection, found.id, found.head)
            return number

    def head(self, conversation: str, *, owner: str = "") -> int:
        """Return the branch on which a conversation is resumed."""
        with self._db.read() as connection:
            found = find(connection, conversation, owner)
            return found.head if found else ROOT

    def set_head(self, conversation: str, branch: int, *, owner: str = "") -> None:
        """Resume the conversation on this branch from now on."""
        with self._db.write() as connection:
            found = opened(connection, conversation, owner, self._clock())
            set_head(connection, found.id, known_branch(connection, found, branch, self._db.place))

    def pin(self, conversation: str, id: str, *, owner: str = "", pinned: bool = True) -> None:  # noqa: A002 - its name
        """Let a message survive every fold, or no longer."""
        with self._db.write() as connection:
            found = opened(connection, conversation, owner, self._clock())
            number = number_of(id, "m")
            row = connection.execute(
                "SELECT 1 FROM messages WHERE id = ? AND conversation = ?", (number, found.id)
            ).fetchone()
            if row is None:
                raise StoreError(f"there is no message {id} in this conversation.", place=self._db.place)
            if pinned:
                connection.execute(
                    "INSERT INTO pins (conversation, message, time) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                    (found.id, number, self._clock()),
                )
            else:
                connection.execute("DELETE FROM pins WHERE conversation = ? AND message = ?", (found.id, number))

    def pins(self, conversation: str, *, owner: str = "") -> tuple[str, ...]:
        """Return the ids of the pinned messages, oldest first."""
        with self._db.read() as connection:
            found = find(connection, conversation, owner)
            rows = connection.execute(
                "SELECT message FROM pins WHERE conversation = ? ORDER BY message", (found.id if found else 0,)
            )
            return tuple(f"m{number}" for (number,) in rows)


def newest_branches(connection: Connection, conversation: int, most: int) -> list[int]:
    """Return the branches that were used last, without the head."""
    rows = connection.execute(
        "SELECT b.id FROM branches b JOIN conversations c ON c.id = b.conversation AND c.head <> b.id"
        " WHERE b.conversation = ? ORDER BY b.used DESC, b.id DESC LIMIT ?",
        (conversation, most),
    )
    return [id_ for (id_,) in rows]


def set_head(connection: Connection, conversation: int, branch: int) -> None:
    """Make a branch the one that the conversation is resumed on."""
    connection.execute(
        "UPDATE conversations SET head = ?, revision = revision + 1 WHERE id = ?", (branch, conversation)
    )


def goes_on(connection: Connection, conversation: int, branch: int, roles: Sequence[str]) -> bool:
    """Tell whether a user goes on behind an answer that was given on this branch itself."""
    own = path_of(connection, conversation, branch)[-1:]
    tip = next(rows_on(connection, conversation, own, "role", newest_first=True, limit=1), None)
    return "user" in roles and tip == ("assistant",)


def fork_at(
    connection: Connection,
    found: ConversationRow,
    branch: int,
    place: float,
    now: float,
    *,
    head: bool,
) -> int:
    """Fork a branch behind a place on its path; a place that it shares with its parent forks the parent."""
    seq, request = found.next_seq - 1, last_request(connection, found.id)
    while (fork := fork_of(connection, found.id, branch)) and place <= fork.place:
        if _has_changed(connection, found.id, fork, place):
            request = min(request, fork.request)  # later windows of the parent tell what this path has not
        branch, seq = fork.parent, min(seq, fork.seq)
    made = Fork(branch, place, seq, request)
    number = _next_number(connection, found.id)
    add_branch(connection, found.id, number, now, made)
    if seq == found.next_seq - 1:
        count_forked(connection, found.id, number, made)
    else:
        count_anew(connection, found.id, number)
    set_head(connection, found.id, number if head else found.head)
    return number


def begin_root(connection: Connection, found: ConversationRow, now: float) -> int:
    """Make a branch that shares nothing with the others, which is the head from now on, and return its number."""
    number = _next_number(connection, found.id)
    add_branch(connection, found.id, number, now)
    set_head(connection, found.id, number)
    return number


def _next_number(connection: Connection, conversation: int) -> int:
    last = connection.execute("SELECT max(id) FROM branches WHERE conversation = ?", (conversation,)).fetchone()
    return int(last[0]) + 1


def _has_changed(connection: Connection, conversation: int, fork: Fork, place: float) -> bool:
    """Tell whether the parent of a fork has other messages up to a place now than it had when it was forked."""
    changed = connection.execute(
        "SELECT 1 FROM messages WHERE conversation = ? AND branch = ? AND place <= ? AND (seq > ? OR gone > ?) LIMIT 1",
        (conversation, fork.parent, place, fork.seq, fork.seq),
    )
    return changed.fetchone() is not None


def _last_place(connection: Connection, found: ConversationRow, path: BranchPath) -> float:
    newest = next(rows_on(connection, found.id, path, "place", newest_first=True, limit=1), None)
    return float(newest[0]) if newest else 0.0


def _place_before(connection: Connection, found: ConversationRow, path: BranchPath, id_: str, store: str) -> float:
    """Return the place of the message before another one on a path."""
    place = _place_of(connection, found, path, id_, store)
    before = next(
        rows_on(connection, found.id, path, "place", " AND place < ?", (place,), newest_first=True, limit=1), None
    )
    return float(before[0]) if before else float("-inf")


def _place_of(connection: Connection, found: ConversationRow, path: BranchPath, id_: str, store: str) -> float:
    """Return the place of a message on a path."""
    row = connection.execute(
        "SELECT branch, place, seq, gone FROM messages WHERE id = ? AND conversation = ? AND kind = 0",
        (number_of(id_, "m"), found.id),
    ).fetchone()
    if row is None or not is_on(path, *row):
        raise StoreError(f"the message {id_} is not on this branch.", place=store)
    return float(row[1])


def _described(
    connection: Connection,
    found: ConversationRow,
    branch: int,
    parent: int | None,
    messages: int,
    tokens: int,
    created: float,
    used: float,
    folds: int,
) -> BranchInfo:
    path = path_of(connection, found.id, branch)
    tip = next(rows_on(connection, found.id, path, "id", newest_first=True, limit=1), None)
    fork = next(rows_on(connection, found.id, path[:-1], "id", newest_first=True, limit=1), None)
    return BranchInfo(
        id=branch,
        parent=parent,
        fork=f"m{fork[0]}" if fork else None,
        tip=f"m{tip[0]}" if tip else None,
        head=branch == found.head,
        messages=messages,
        tokens=tokens,
        folds=folds,
        created=time_of(created),
        used=time_of(used),
    )
