"""What matching may ask about a conversation, answered from its rows."""

# ruff: noqa: S608 - statements are put together from constants; values are always bound

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from leporello.store.reconcile.plan import END, START, HandedOut, StoredRow
from leporello.store.relational.branch_path import ALL, on_path, path_of, rows_on
from leporello.store.relational.rows import chunks, placeholders

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from leporello.store.reconcile.plan import Origins
    from leporello.store.relational.dialect import Connection

MARK: Final = 16  # bytes of a fingerprint
_COLUMNS = "id, place, fingerprint, call_key, size, role"


class StoredHistory:
    """The stored history of a conversation on the path of one branch, for matching."""

    def __init__(self, connection: Connection, conversation: int, branch: int) -> None:
        self._connection = connection
        self._conversation = conversation
        self._branch = branch
        self._path = path_of(connection, conversation, branch)

    def newest(self, count: int) -> list[StoredRow]:
        """Return the newest rows of the path, the newest first."""
        return list(self._walk(newest_first=True, limit=count))

    def rows(self, fingerprints: Collection[str], call_keys: Collection[str], ids: Collection[int]) -> list[StoredRow]:
        """Return the live rows that have one of these fingerprints, call keys or ids."""
        found = self._with("conversation = ? AND fingerprint", map(bytes.fromhex, fingerprints))
        found += self._with("conversation = ? AND call_key", map(bytes.fromhex, call_keys))
        return found + self._with(f"{self._connection.dialect.conversation_of} AND id", ids)

    def between(self, after: float, before: float = END) -> Iterator[StoredRow]:
        """Walk the live rows between two places, in order."""
        return self._walk(" AND place > ? AND place < ?", (after, before))

    def shared_to(self) -> float:
        """Return up to which place the history belongs to other branches too."""
        return self._path[-2].place if len(self._path) > 1 else START

    def systems(self, fingerprints: Collection[str]) -> dict[str, int]:
        """Return the ids of stored messages of the system prompt by fingerprint."""
        found: dict[str, int] = {}
        for chunk in chunks([bytes.fromhex(mark) for mark in fingerprints]):
            rows = self._connection.execute(
                "SELECT fingerprint, id FROM messages WHERE conversation = ? AND kind = 1"
                f" AND fingerprint IN ({placeholders(chunk)})",
                (self._conversation, *chunk),
            )
            found.update((mark.hex(), id_) for mark, id_ in rows)
        return found

    def emitted(self, fingerprints: Collection[str]) -> dict[str, tuple[Origins, ...]]:
        """Return those that an engine made, each with what it stood for, perhaps in several places."""
        found: dict[str, tuple[Origins, ...]] = {}
        for chunk in chunks([bytes.fromhex(mark) for mark in fingerprints]):
            rows = self._connection.execute(
                "SELECT fingerprint, origins FROM emitted"
                f" WHERE conversation = ? AND fingerprint IN ({placeholders(chunk)})",
                (self._conversation, *chunk),
            )
            for mark, origins in rows:
                found[mark.hex()] = (*found.get(mark.hex(), ()), tuple(map(int, origins.split())))
        return found

    def handed_out(self) -> HandedOut | None:
        """Return the list that an engine handed out last."""
        row = self._connection.execute(
            "SELECT marks, origins, newest FROM handed_out WHERE conversation = ? AND branch = ?",
            (self._conversation, self._branch),
        ).fetchone()
        if row is None:
            return None
        marks, origins, newest = row
        return HandedOut(
            marks=tuple(marks[start : start + MARK].hex() for start in range(0, len(marks), MARK)),
            origins=tuple(map(tuple, json.loads(origins))),
            newest=newest,
        )

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

    def _with(self, condition: str, values: Iterable[Any]) -> list[StoredRow]:
        on, own = on_path(self._connection, self._path)
        return [
            StoredRow(id_, place, mark.hex(), key.hex() if key else None, size, role)
            for chunk in chunks(list(values))
            for id_, place, mark, key, size, role in self._connection.execute(
                f"SELECT {_COLUMNS} FROM messages WHERE {condition} IN ({placeholders(chunk)}) AND kind = 0 AND {on}",
                (self._conversation, *chunk, *own),
            )
        ]

    def _walk(
        self, where: str = "", values: Sequence[Any] = (), *, newest_first: bool = False, limit: int = ALL
    ) -> Iterator[StoredRow]:
        rows = rows_on(
            self._connection,
            self._conversation,
            self._path,
            _COLUMNS,
            where,
            values,
            newest_first=newest_first,
            limit=limit,
        )
        return (
            StoredRow(id_, place, mark.hex(), key.hex() if key else None, size, role)
            for id_, place, mark, key, size, role in rows
        )
