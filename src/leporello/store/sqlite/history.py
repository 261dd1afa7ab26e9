"""What matching may ask about a conversation, answered from its rows."""

# ruff: noqa: S608 - statements are put together from constants; values are always bound

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leporello.store.match import Row
from leporello.store.sqlite.part import chunks, placeholders

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterable

_COLUMNS = "id, place, fingerprint, call_key, size, role"
_LIVE = "conversation = ? AND state = 0 AND kind = 0"


class SQLiteHistory:
    """The stored history of a conversation, for matching."""

    def __init__(self, connection: sqlite3.Connection, conversation: int) -> None:
        self._connection = connection
        self._conversation = conversation

    def newest(self, count: int) -> list[Row]:
        """Return the newest live rows, the newest first."""
        return self._rows(f"{_LIVE} ORDER BY place DESC, id DESC LIMIT ?", count)

    def rows(self, fingerprints: Collection[str], call_keys: Collection[str], ids: Collection[int]) -> list[Row]:
        """Return the live rows that have one of these fingerprints, call keys or ids."""
        found = self._with("fingerprint", map(bytes.fromhex, fingerprints))
        found += self._with("call_key", map(bytes.fromhex, call_keys))
        return found + self._with("id", ids)

    def between(self, after: float | None, before: float | None) -> list[Row]:
        """Return the live rows between two places, in order; None: from the first, or to the last."""
        low = float("-inf") if after is None else after
        high = float("inf") if before is None else before
        return self._rows(f"{_LIVE} AND place > ? AND place < ? ORDER BY place, id", low, high)

    def systems(self, fingerprints: Collection[str]) -> dict[str, int]:
        """Return the ids of stored system messages by fingerprint."""
        found: dict[str, int] = {}
        for chunk in chunks([bytes.fromhex(mark) for mark in fingerprints]):
            rows = self._connection.execute(
                "SELECT fingerprint, id FROM messages WHERE conversation = ? AND state = 0 AND kind = 1"
                f" AND fingerprint IN ({placeholders(chunk)})",
                (self._conversation, *chunk),
            )
            found.update((mark.hex(), id_) for mark, id_ in rows)
        return found

    def emitted(self, fingerprints: Collection[str]) -> dict[str, int | None]:
        """Return those that an engine made, with the id of the message each contains."""
        found: dict[str, int | None] = {}
        for chunk in chunks([bytes.fromhex(mark) for mark in fingerprints]):
            rows = self._connection.execute(
                "SELECT fingerprint, origin FROM emitted"
                f" WHERE conversation = ? AND fingerprint IN ({placeholders(chunk)})",
                (self._conversation, *chunk),
            )
            found.update((mark.hex(), origin) for mark, origin in rows)
        return found

    def forgotten(self, marks: Collection[str]) -> set[str]:
        """Return those fingerprints and call keys that belonged to messages which were deleted on purpose."""
        found: set[str] = set()
        for chunk in chunks([bytes.fromhex(mark) for mark in marks]):
            rows = self._connection.execute(
                f"SELECT mark FROM forgotten WHERE conversation = ? AND mark IN ({placeholders(chunk)})",
                (self._conversation, *chunk),
            )
            found.update(mark.hex() for (mark,) in rows)
        return found

    def _with(self, column: str, values: Iterable[Any]) -> list[Row]:
        return [
            row
            for chunk in chunks(list(values))
            for row in self._rows(f"{_LIVE} AND {column} IN ({placeholders(chunk)})", *chunk)
        ]

    def _rows(self, where: str, *values: Any) -> list[Row]:
        rows = self._connection.execute(f"SELECT {_COLUMNS} FROM messages WHERE {where}", (self._conversation, *values))
        return [
            Row(id_, place, mark.hex(), key.hex() if key else None, size, role)
            for id_, place, mark, key, size, role in rows
        ]
