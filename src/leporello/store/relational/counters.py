"""How many messages a conversation has, and how many each of its branches has on its path, with what they weigh.

The counters are kept with every change, so that a list of conversations reads no message; `check_file` counts anew.
"""

# ruff: noqa: S608 - statements are put together from constants; values are always bound

from __future__ import annotations

from typing import TYPE_CHECKING

from leporello.store.relational.branch_path import ALL, path_of, rows_on

if TYPE_CHECKING:
    from leporello.store.relational.branch_path import Fork
    from leporello.store.relational.dialect import Connection


def count_in(connection: Connection, conversation: int, branch: int, messages: int, tokens: int) -> None:
    """Add messages, and what they weigh, to what a branch counts."""
    connection.execute(
        "UPDATE branches SET messages = messages + ?, tokens = tokens + ? WHERE conversation = ? AND id = ?",
        (messages, tokens, conversation, branch),
    )


def count_forked(connection: Connection, conversation: int, branch: int, fork: Fork) -> None:
    """Count what a new branch shares with its parent: all but what stands behind the fork."""
    path = path_of(connection, conversation, fork.parent)
    left = [each for (each,) in rows_on(connection, conversation, path, "tokens", " AND place > ?", (fork.place,))]
    connection.execute(
        "UPDATE branches SET (messages, tokens) = (SELECT p.messages - ?, p.tokens - ? FROM branches p"
        " WHERE p.conversation = ? AND p.id = ?) WHERE conversation = ? AND id = ?",
        (len(left), sum(left), conversation, fork.parent, conversation, branch),
    )


def count_anew(connection: Connection, conversation: int, branch: int) -> None:
    """Count the messages of a branch anew."""
    connection.execute(
        "UPDATE branches SET messages = ?, tokens = ? WHERE conversation = ? AND id = ?",
        (*counted(connection, conversation, branch), conversation, branch),
    )


def recount(connection: Connection, conversation: int, *, after: int = 0, most: int = ALL) -> int | None:
    """Count the messages of a conversation anew, and those of its branches behind one; return the last one counted.

    None when there are no more.
    """
    branches = connection.execute(
        "SELECT id FROM branches WHERE conversation = ? AND id > ? ORDER BY id LIMIT ?", (conversation, after, most)
    ).fetchall()
    for (branch,) in branches:
        count_anew(connection, conversation, branch)
    connection.execute(
        "UPDATE conversations SET messages = (SELECT count(*) FROM messages WHERE conversation = ? AND kind = 0)"
        " WHERE id = ?",
        (conversation, conversation),
    )
    return branches[-1][0] if len(branches) == most else None


def counted(connection: Connection, conversation: int, branch: int) -> tuple[int, int]:
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
