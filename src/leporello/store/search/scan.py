"""Walking through stored messages, newest first, for what the index cannot answer: expressions, and filters alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leporello.store.records import Candidate
from leporello.store.search.prepare import plain_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leporello.store.protocol import SearchStore
    from leporello.store.records import SearchFilter, Stored

Position = tuple[str, int]
"""A conversation, and the seq before which to go on in it."""


def newest_messages(store: SearchStore, filter: SearchFilter, *, start: Position | None) -> Iterator[Stored]:  # noqa: A002 - its name
    """Walk messages that fit a filter: conversations from the youngest, in each from the newest."""
    for key in _conversations(store, filter, start):
        last = start[1] - 1 if start and start[0] == key else None
        rows = store.messages(key, owner=filter.owner, last=last, superseded=True, by_arrival=True, newest_first=True)
        yield from (stored for stored in rows if fits(stored, filter))


def _conversations(store: SearchStore, filter: SearchFilter, start: Position | None) -> list[str]:  # noqa: A002 - its name
    if filter.conversation is not None:
        return [filter.conversation]
    infos = sorted(store.conversations(owner=filter.owner), key=lambda info: (info.created, info.key), reverse=True)
    keys = [info.key for info in infos]
    return keys[keys.index(start[0]) :] if start and start[0] in keys else keys


def fits(stored: Stored, filter: SearchFilter) -> bool:  # noqa: A002 - its name
    """Tell whether a message is within a filter."""
    return (
        stored.id not in filter.without
        and (filter.superseded or not stored.replaced)
        and filter.role in {None, stored.role}
        and (filter.tool is None or filter.tool in stored.tool.split(" "))
        and (filter.name is None or filter.name.lower() == stored.name.lower())
        and (filter.since is None or stored.time >= filter.since)
        and (filter.until is None or stored.time <= filter.until)
    )


def as_candidate(stored: Stored, score: float = 0.0) -> Candidate:
    """Return a stored message as one that a search found."""
    return Candidate(
        id=stored.id,
        conversation=stored.conversation,
        seq=stored.seq,
        place=stored.place,
        other_branch=stored.branch if stored.superseded and not stored.replaced else 0,
        role=stored.role,
        name=stored.name,
        tool=stored.tool,
        time=stored.time,
        score=score,
        text=plain_text(stored.message),
    )
