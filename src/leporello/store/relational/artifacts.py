"""The artifact trail: what exactly happened, and where."""

# ruff: noqa: S608 - statements are put together from constants; values are always bound

from __future__ import annotations

import re
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from leporello.store.records import Artifact
from leporello.store.relational.rows import Part, column_text, find, number_of, opened

if TYPE_CHECKING:
    from collections.abc import Sequence


class ArtifactRows(Part):
    """Files, commands, errors, decisions, values."""

    def add_artifacts(self, conversation: str, artifacts: Sequence[Artifact], *, owner: str = "") -> None:
        """Add to the artifact trail; equal ones of one message are one."""
        with self._db.write() as connection:
            now = self._clock()
            found = opened(connection, conversation, owner, now)
            connection.executemany(
                "INSERT INTO artifacts (conversation, message, digest, kind, value, note, time, count)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (conversation, message, digest) DO NOTHING",
                [(found.id, *_row(artifact, now)) for artifact in artifacts],
            )

    def artifacts(
        self,
        conversation: str,
        *,
        owner: str = "",
        kind: str | None = None,
        query: str | None = None,
        limit: int = 50,
        before: int | None = None,
    ) -> list[tuple[int, Artifact]]:
        """Return artifacts with their row numbers, newest first; `before` continues a list.

        `query` is a part of the value or of the note, in any case.
        """
        with self._db.read() as connection:
            found = find(connection, conversation, owner)
            where: list[str] = ["conversation = ?"]
            values: list[Any] = [found.id if found else 0]
            if kind is not None:
                where, values = [*where, "kind = ?"], [*values, kind]
            if before is not None:
                where, values = [*where, "id < ?"], [*values, before]
            if query is not None:
                where, values = [*where, connection.dialect.contains], [*values, *2 * [_pattern(column_text(query))]]
            rows = connection.execute(
                "SELECT id, kind, value, note, message, time, count FROM artifacts"
                f" WHERE {' AND '.join(where)} ORDER BY id DESC LIMIT ?",
                (*values, limit),
            ).fetchall()
        return [(row[0], _artifact(row)) for row in rows]


def _pattern(text: str) -> str:
    """Return the pattern for LIKE of texts that contain this one, in any case."""
    return "%" + re.sub(r"([%_\x1b])", "\x1b\\1", text) + "%"


def _row(artifact: Artifact, now: float) -> tuple[Any, ...]:
    kind, value, note = column_text(artifact.kind), column_text(artifact.value), column_text(artifact.note)
    digest = blake2b(f"{kind}\0{value}\0{note}".encode(), digest_size=8).digest()
    message = number_of(artifact.message, "m") or 0
    return message, digest, kind, value, note, artifact.time or now, artifact.count


def _artifact(row: tuple[Any, ...]) -> Artifact:
    _, kind, value, note, message, time, count = row
    return Artifact(kind=kind, value=value, note=note, message=f"m{message}" if message else "", time=time, count=count)
