"""Walking through stored messages, newest first, for what the index cannot answer: expressions, and filters alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leporello.store.search.prepare import plain_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from leporello.store.protocol import SearchFilter, Store, Stored

_LARGEST_BATCH: Final = 50
_LONGEST_BATCH: Final = 500_000

Position = tuple[str, int]
"""A conversation, and the seq before which to go on in it."""


def newest_messages(store: Store, filter: SearchFilter, *, start: Position | None) -> Iterator[Stored]:  # noqa: A002 - its name
    """Walk messages that fit a filter: conversations from the youngest, in each from the newest."""
    for key in _conversations(store, filter, start):
        last = start[1] - 1 if start and start[0] == key else None
        for stored in store.messages(
            key, owner=filter.owner, last=last, superseded=filter.superseded, newest_first=True
        ):
            if fits(stored, filter):
                yield stored


def _conversations(store: Store, filter: SearchFilter, start: Position | None) -> list[str]:  # noqa: A002 - its name
    if filter.conversation is not None:
        return [filter.conversation]
    infos = sorted(store.conversations(owner=filter.owner), key=lambda info: (info.created, info.key), reverse=True)
    keys = [info.key for info in infos]
    return keys[keys.index(start[0]) :] if start and start[0] in keys else keys


def fits(stored: Stored, filter: SearchFilter) -> bool:  # noqa: A002 - its name
    """Tell whether a message is within a filter."""
    return (
        stored.id not in filter.without
        and filter.role in {None, stored.role}
        and (filter.tool is None or filter.tool in stored.tool.split(" "))
        and (filter.name is None or filter.name.lower() == stored.name.lower())
        and (filter.since is None or stored.time >= filter.since)
        and (filter.until is None or stored.time <= filter.until)
    )


def in_batches(messages: Iterable[Stored]) -> Iterator[list[tuple[Stored, str]]]:
    """Cut a walk into lists of messages with their text, none of them much longer than one text must be."""
    batch: list[tuple[Stored, str]] = []
    length = 0
    for stored in messages:
        text = plain_text(stored.message)
        batch.append((stored, text))
        length += len(text)
        if len(batch) == _LARGEST_BATCH or length >= _LONGEST_BATCH:
            yield batch
            batch, length = [], 0
    if batch:
        yield batch
