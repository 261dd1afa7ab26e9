"""What was made of what: the messages of a repaired list, and those of the list before."""

from __future__ import annotations

from bisect import bisect
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any

from leporello.messages.types import Message, leading_systems, role_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_MOST_COMPARED = 4_096  # pairs of messages, to see which was made of which


def align(originals: Sequence[Any], valid: Sequence[Message]) -> list[tuple[int, ...]]:
    """Return for each valid message the places of the originals it was made of.

    An original that came through whole is the same object. Between two of those, as many of the rest as possible belong
    to the repaired messages there, by role and in order; what is still left over belongs to the message before it, but
    nothing to the system prompt.
    """
    places: dict[int, deque[int]] = defaultdict(deque)
    for place, original in enumerate(originals):
        places[id(original)].append(place)
    found: list[list[int]] = [[places[id(m)].popleft()] if places.get(id(m)) else [] for m in valid]
    left = sorted(place for queue in places.values() for place in queue)
    for indexes, several in _segments(found, left):
        roles = [role_of(originals[place]) for place in several], [role_of(valid[index]) for index in indexes]
        for original, repaired in _paired(*roles):
            found[indexes[repaired]].append(several[original])
    owners = sorted((place, index) for index, sources in enumerate(found) for place in sources)
    taken = {place for place, _ in owners}
    prompts, shown = leading_systems(originals), leading_systems(valid)
    for place in (place for place in left if place not in taken and place >= prompts):
        before = owners[bisect(owners, (place, 0)) - 1][1] if owners and owners[0][0] < place else None
        if before is not None and before >= shown:
            found[before].append(place)
    return [tuple(sorted(sources)) for sources in found]


def _segments(found: Sequence[Sequence[int]], left: Sequence[int]) -> Iterator[tuple[list[int], Sequence[int]]]:
    """Yield repaired messages, by index, and the originals left over, by place, between those that came through."""
    if not left:
        return
    start = 0
    indexes: list[int] = []
    for index, sources in enumerate([*found, [left[-1] + 1]]):
        if not sources:
            indexes.append(index)
            continue
        stop = max(start, bisect(left, sources[0]))
        if indexes and stop > start:
            yield indexes, left[start:stop]
        start, indexes = stop, []


def _paired(originals: list[str], repaired: list[str]) -> list[tuple[int, int]]:
    """Pair as many as possible by role and in order, each with the earliest original; many of them, one by one."""
    if len(originals) * len(repaired) > _MOST_COMPARED:
        return [(n, n) for n, (one, other) in enumerate(zip(originals, repaired, strict=False)) if one == other]
    lengths = [[0] * (len(repaired) + 1) for _ in range(len(originals) + 1)]
    for i in range(len(originals) - 1, -1, -1):
        for j in range(len(repaired) - 1, -1, -1):
            longer = lengths[i + 1][j + 1] + 1 if originals[i] == repaired[j] else 0
            lengths[i][j] = max(lengths[i + 1][j], lengths[i][j + 1], longer)
    pairs = []
    i = j = 0
    while i < len(originals) and j < len(repaired):
        if originals[i] == repaired[j] and lengths[i][j] == lengths[i + 1][j + 1] + 1:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif lengths[i][j] == lengths[i][j + 1]:
            j += 1
        else:
            i += 1
    return pairs
