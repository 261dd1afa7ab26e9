"""Where a list of hits goes on: an opaque text that stays right while new messages arrive."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from leporello.errors import QueryError

if TYPE_CHECKING:
    from leporello.store.records import SearchFilter

_VERSION: Final = 4


@dataclass(frozen=True, kw_only=True)
class Cursor:
    """What the next page needs to be cut from the same list: the newest message at the time of the first page.

    Hits of an exact search go on below a message, so many of them further on; a walk through messages in a
    conversation, before a seq. `without` are the messages that do not count.
    """

    search: str
    newest: int
    below: int = 0
    offset: int = 0
    given: int = 0
    position: tuple[str, int] | None = None
    without: tuple[str, ...] = ()


def encode(cursor: Cursor) -> str:
    """Return a cursor as text."""
    values = [
        _VERSION,
        cursor.search,
        cursor.newest,
        cursor.below,
        cursor.offset,
        cursor.given,
        cursor.position,
        cursor.without,
    ]
    return base64.urlsafe_b64encode(json.dumps(values, separators=(",", ":")).encode()).decode().rstrip("=")


def decode(text: str, *, search: str) -> Cursor:
    """Read a cursor; it must come from the same search."""
    try:
        values = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        values = None
    match values:
        case [4, str(name), int(newest), int(below), int(offset), int(given), position, list(without)]:
            if name != search:
                raise QueryError("The cursor belongs to another search. Repeat that search, or leave the cursor out.")
            return Cursor(
                search=name,
                newest=max(0, newest),
                below=max(0, below),
                offset=max(0, offset),
                given=given,
                position=_position(position),
                without=tuple(map(str, without)),
            )
    raise QueryError("The cursor cannot be read. Use the one from the last answer as it is, or leave it out.")


def _position(value: object) -> tuple[str, int] | None:
    match value:
        case [str(conversation), int(seq)]:
            return conversation, seq
    return None


def name_of(text: str, filter: SearchFilter, *, sort: str, regex: bool) -> str:  # noqa: A002 - its name
    """Return a short name of a search, by which its cursors are recognised."""
    asked = replace(filter, without=())
    return blake2b(repr((text, asked, sort, regex)).encode("utf-8", "replace"), digest_size=6).hexdigest()
