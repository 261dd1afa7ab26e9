"""Forks: a branch is one row, whatever it shares with its parent."""

# ruff: noqa: S608 - statements are put together from constants; values are always bound

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from leporello.errors import StoreError
from leporello.store.protocol import ROOT, BranchInfo
from leporello.store.sqlite.part import Part, add_branch, chunks, find, number_of, opened, placeholders, time_of
from leporello.store.sqlite.path import Fork, fork_of, is_on, path_of, rows_on
from leporello.store.sqlite.window_rows import last_request
from leporello.store.sqlite.writing import count_in

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from leporello.store.sqlite.part import Conversation
    from leporello.store.sqlite.path import Path


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
        owner: str = "",
        branch: int | None = None,
        head: bool = True,
        move: bool = False,
    ) -> int:
        """Make a branch that shares everything before a message with its parent, and return its number.

        None: everything. Nothing is copied. With `head` the conversation is resumed on it from now on. With `move` a
        head on which nothing was said yet is moved instead: no other session may be on it.
        """
        with self._db.write() as connection:
            found = opened(connection, conversation, owner, self._clock())
            on = known_branch(connection, found, branch, self._db.place)
            path = path_of(connection, found.id, on)
            place = _last_place(connection, found, path)
            if before is not None:
                place = _place_before(connection, found, path, before, self._db.place)
            return fork_at(connection, found, on, place, self._clock(), head=head, move=move)

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
                    "INSERT OR IGNORE INTO pins (conversation, message, time) VALUES (?, ?, ?)",
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


def known_branch(connection: sqlite3.Connection, found: Conversation, branch: int | None, place: str) -> int:
    """Return a branch that there is; None: the head."""
    if branch is None or branch == found.head:
        return found.head
    row = connection.execute("SELECT 1 FROM branches WHERE conversation = ? AND id = ?", (found.id, branch)).fetchone()
    if row is None:
        raise StoreError(f"there is no branch {branch} in this conversation.", place=place)
    return branch


def newest_branches(connection: sqlite3.Connection, conversation: int, most: int) -> list[int]:
    """Return the branches that were used last, without the head."""
    rows = connection.execute(
        "SELECT b.id FROM branches b JOIN conversations c ON c.id = b.conversation AND c.head <> b.id"
        " WHERE b.conversation = ? ORDER BY b.used DESC, b.id DESC LIMIT ?",
        (conversation, most),
    )
    return [id_ for (id_,) in rows]


def set_head(connection: sqlite3.Connection, conversation: int, branch: int) -> None:
    """Make a branch the one that the conversation is resumed on."""
    connection.execute(
        "UPDATE conversations SET head = ?, revision = revision + 1 WHERE id = ?", (branch, conversation)
    )


def goes_on(connection: sqlite3.Connection, conversation: int, branch: int, roles: Sequence[str]) -> bool:
    """Tell whether a user goes on behind an answer that was given on this branch itself."""
    own = path_of(connection, conversation, branch)[-1:]
    tip = next(rows_on(connection, conversation, own, "role", newest_first=True, limit=1), None)
    return "user" in roles and tip == ("assistant",)


def fork_at(
    connection: sqlite3.Connection,
    found: Conversation,
    branch: int,
    place: float,
    now: float,
    *,
    head: bool,
    move: bool = False,
) -> int:
    """Fork a branch behind a place on its path; a place that it shares with its parent forks the parent.

    With `move` a head on which nothing was said yet is moved there instead.
    """
    seq, left = found.next_seq - 1, branch
    while (fork := fork_of(connection, found.id, branch)) and place <= fork.place:
        branch, seq = fork.parent, min(seq, fork.seq)
    made = Fork(branch, place, seq, last_request(connection, found.id))
    if move and branch != left == found.head and _is_unused(connection, found.id, left):
        number = left
        connection.execute(
            "UPDATE branches SET parent = ?, fork_place = ?, fork_seq = ?, fork_request = ?, used = ?"
            " WHERE conversation = ? AND id = ?",
            (*made, now, found.id, number),
        )
    else:
        last = connection.execute("SELECT max(id) FROM branches WHERE conversation = ?", (found.id,)).fetchone()
        number = last[0] + 1
        add_branch(connection, found.id, number, now, made)
    if seq == found.next_seq - 1:
        _count_forked(connection, found.id, number, made)
    else:
        _count(connection, found.id, number)
    set_head(connection, found.id, number if head else found.head)
    return number


def _is_unused(connection: sqlite3.Connection, conversation: int, branch: int) -> bool:
    """Tell whether a branch has no messages, no windows and no forks of its own."""
    tables = (("messages", "branch"), ("windows", "branch"), ("branches", "parent"))
    return not any(
        connection.execute(
            f"SELECT 1 FROM {table} WHERE conversation = ? AND {column} = ? LIMIT 1", (conversation, branch)
        ).fetchone()
        for table, column in tables
    )


def replace_rows(
    connection: sqlite3.Connection, conversation: int, branch: int, numbers: Sequence[int], seq: int
) -> None:
    """Note that messages of a branch were replaced by what is stored from this seq on."""
    for chunk in chunks(numbers):
        within = f"+conversation = ? AND +branch = ? AND +kind = 0 AND gone IS NULL AND id IN ({placeholders(chunk)})"
        values = (conversation, branch, *chunk)
        count, tokens = connection.execute(
            f"SELECT count(*), coalesce(sum(tokens), 0) FROM messages WHERE {within}", values
        ).fetchone()
        connection.execute(f"UPDATE messages SET gone = ? WHERE {within}", (seq, *values))
        count_in(connection, conversation, branch, -count, -tokens)
    if numbers:
        connection.execute("UPDATE conversations SET revision = revision + 1 WHERE id = ?", (conversation,))


def recount(connection: sqlite3.Connection, conversation: int, *, after: int = 0, most: int = -1) -> int | None:
    """Count the messages of a conversation anew, and those of its branches behind one; return the last one counted.

    None when there are no more.
    """
    branches = connection.execute(
        "SELECT id FROM branches WHERE conversation = ? AND id > ? ORDER BY id LIMIT ?", (conversation, after, most)
    ).fetchall()
    for (branch,) in branches:
        _count(connection, conversation, branch)
    connection.execute(
        "UPDATE conversations SET messages = (SELECT count(*) FROM messages WHERE conversation = ?1 AND kind = 0)"
        " WHERE id = ?1",
        (conversation,),
    )
    return branches[-1][0] if most > 0 and len(branches) == most else None


def counted(connection: sqlite3.Connection, conversation: int, branch: int) -> tuple[int, int]:
    """Count the messages on the path of a branch, and what they weigh."""
    count, tokens = 0, 0
    for segment in path_of(connection, conversation, branch):
        more, heavier = connection.execute(
            "SELECT count(*), coalesce(sum(tokens), 0) FROM messages WHERE conversation = ? AND kind = 0"
            f" AND {segment.condition}",
            (conversation, *segment.values),
        ).fetchone()
        count, tokens = count + more, tokens + heavier
    return count, tokens


def _count_forked(connection: sqlite3.Connection, conversation: int, branch: int, fork: Fork) -> None:
    """Count what a new branch shares with its parent: all but what stands behind the fork."""
    path = path_of(connection, conversation, fork.parent)
    left = [each for (each,) in rows_on(connection, conversation, path, "tokens", " AND place > ?", (fork.place,))]
    connection.execute(
        "UPDATE branches SET (messages, tokens) = (SELECT p.messages - ?, p.tokens - ? FROM branches p"
        " WHERE p.conversation = ? AND p.id = ?) WHERE conversation = ? AND id = ?",
        (len(left), sum(left), conversation, fork.parent, conversation, branch),
    )


def _count(connection: sqlite3.Connection, conversation: int, branch: int) -> None:
    connection.execute(
        "UPDATE branches SET messages = ?, tokens = ? WHERE conversation = ? AND id = ?",
        (*counted(connection, conversation, branch), conversation, branch),
    )


def renumber(connection: sqlite3.Connection, conversation: int) -> None:
    """Give all messages whole places again, in their order, when there is no room between two of them."""
    branches = connection.execute(
        "SELECT id, parent, fork_place FROM branches WHERE conversation = ? ORDER BY id", (conversation,)
    ).fetchall()
    moved: dict[int, tuple[list[float], float]] = {}  # of each branch: its places before, and the one they begin behind
    for branch, parent, fork_place in branches:
        base = 0.0
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


def _moved(places: tuple[list[float], float], place: float) -> float:
    """Return where a place of a branch lies after its messages were numbered anew."""
    before, base = places
    return base + bisect_right(before, place)


def _last_place(connection: sqlite3.Connection, found: Conversation, path: Path) -> float:
    newest = next(rows_on(connection, found.id, path, "place", newest_first=True, limit=1), None)
    return float(newest[0]) if newest else 0.0


def _place_before(connection: sqlite3.Connection, found: Conversation, path: Path, id_: str, store: str) -> float:
    """Return the place of the message before another one on a path."""
    row = connection.execute(
        "SELECT branch, place, seq, gone FROM messages WHERE id = ? AND conversation = ? AND kind = 0",
        (number_of(id_, "m"), found.id),
    ).fetchone()
    if row is None or not is_on(path, *row):
        raise StoreError(f"the message {id_} is not on this branch.", place=store)
    before = next(
        rows_on(connection, found.id, path, "place", " AND place < ?", (row[1],), newest_first=True, limit=1), None
    )
    return float(before[0]) if before else float("-inf")


def _described(
    connection: sqlite3.Connection,
    found: Conversation,
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
