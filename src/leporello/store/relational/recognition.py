"""Recognising a client's history by hashes: which conversation reached this point, on which branch, at which message.

A hash stands for everything that the client sent or got up to a message, or for one answer alone; what goes into it is
the client's affair (`leporello.gateway.history`). A row is `open` until something is said behind it on its branch: of
many conversations that begin alike, those that wait for their next message are found first.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from leporello.store.records import KnownPlace
from leporello.store.relational.rows import Part, chunks, find, number_of, placeholders

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from leporello.store.relational.dialect import Connection

_FIRST_TRIED: Final = 3  # hashes: a client that goes on from the newest answer is found among these
_MOST_PLACES: Final = 8  # of equal histories


class Recognition(Part):
    """Where the histories of clients lead."""

    def known(self, hashes: Sequence[bytes], *, owner: str = "") -> list[KnownPlace]:
        """Return the places of the first of these hashes that is known; those that nothing was said behind come first.

        Places that were deleted or replaced since are left out.
        """
        with self._db.read() as connection:
            tried = hashes[:_FIRST_TRIED], hashes[_FIRST_TRIED:]
            for hash_ in chain.from_iterable(_stored(connection, some) for some in tried):
                if places := _places(connection, hash_, owner):
                    return places
        return []

    def remember(self, conversation: str, id: str, hashes: Sequence[bytes], *, owner: str = "") -> None:  # noqa: A002 - its name
        """Note that a client's history reached a message that is stored already."""
        with self._db.write() as connection:
            found = find(connection, conversation, owner)
            row = connection.execute(
                "SELECT branch, seq FROM messages WHERE id = ? AND conversation = ?",
                (number_of(id, "m"), found.id if found else 0),
            ).fetchone()
            if found is not None and row is not None:
                note_known(connection, found.id, row[0], [(hash_, row[1]) for hash_ in hashes])

    def forget_known(self, place: KnownPlace, *, owner: str = "") -> bool:
        """Let a hash no longer lead to a place; tells whether it did until now, to one of several who try."""
        with self._db.write() as connection:
            found = find(connection, place.conversation, owner)
            forgotten = connection.execute(
                "DELETE FROM known WHERE hash = ? AND conversation = ? AND branch = ?",
                (place.hash, found.id if found else 0, place.branch),
            )
            return forgotten.rowcount > 0


def note_known(connection: Connection, conversation: int, branch: int, rows: Iterable[tuple[bytes, int]]) -> None:
    """Write down what the newest messages of a branch are known by; what was before them is open no longer."""
    connection.dialect.close_known(connection, conversation, branch)
    connection.executemany(
        "INSERT INTO known (hash, open, conversation, branch, seq) VALUES (?, 1, ?, ?, ?)"
        " ON CONFLICT (hash, open, conversation, branch) DO UPDATE SET seq = excluded.seq",
        [(hash_, conversation, branch, seq) for hash_, seq in rows],
    )


def _stored(connection: Connection, hashes: Sequence[bytes]) -> Iterator[bytes]:
    """Yield those of the hashes that are known, in their order."""
    for chunk in chunks(hashes):
        rows = connection.execute(f"SELECT hash FROM known WHERE hash IN ({placeholders(chunk)})", chunk)  # noqa: S608 - placeholders
        found = {hash_ for (hash_,) in rows}
        yield from (hash_ for hash_ in chunk if hash_ in found)


def _places(connection: Connection, hash_: bytes, owner: str) -> list[KnownPlace]:
    """Return the first places of a hash, and one in another conversation if all of these are in the same one."""
    rows = _read_places(connection, hash_, owner, _MOST_PLACES)
    if len(rows) == _MOST_PLACES and len({row[0] for row in rows}) == 1:
        rows += _read_places(connection, hash_, owner, 1, without=rows[0][0])
    places = [
        KnownPlace(hash=hash_, conversation=key, branch=branch, id=f"m{number}", is_tip=bool(tip))
        for key, branch, number, tip in rows
    ]
    return sorted(places, key=lambda place: not place.is_tip)


def _read_places(
    connection: Connection, hash_: bytes, owner: str, most: int, *, without: str = ""
) -> list[tuple[str, int, int, bool]]:
    return connection.execute(
        # the newest message of the branch by its index: a database may look for any later one from the first on
        "SELECT c.key, k.branch, m.id, coalesce((SELECT n.place FROM messages n WHERE n.conversation = k.conversation"
        " AND n.branch = k.branch AND n.kind = 0 AND n.gone IS NULL ORDER BY n.place DESC LIMIT 1) <= m.place, TRUE)"
        " FROM known k JOIN conversations c ON c.id = k.conversation AND c.owner = ?"
        " JOIN messages m ON m.conversation = k.conversation AND m.seq = k.seq AND m.gone IS NULL"
        " WHERE k.hash = ? AND c.key <> ? ORDER BY k.open DESC, k.conversation DESC, k.branch DESC LIMIT ?",
        (owner, hash_, without, most),
    ).fetchall()
