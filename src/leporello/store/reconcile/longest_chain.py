"""The longest chain of matches in stored order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leporello.store.reconcile.plan import Origins, StoredRow

MOST_OPTIONS: Final = 64  # of many equal messages, only the nearest ones are considered


class Stretch(NamedTuple):
    """Stored messages that one message of a list may match, from one place to another; usually a single one."""

    start: float
    end: float
    ids: Origins


class _Link(NamedTuple):
    """The best chain that ends here: its weight, the rank of its last row, and the link before."""

    weight: int
    rank: int
    at: int
    stretch: Stretch
    before: _Link | None


def longest_chain(options: Mapping[int, Sequence[tuple[Stretch, bool]]]) -> dict[int, Stretch]:
    """Choose at most one option for each index, so that places rise and as many as possible are chosen.

    An option is a stretch of rows and whether it is exactly the same message. Among equally long chains the one with
    more exact rows wins, then the one with fewer gaps, then the later one. Takes n log n for n options.
    """
    places = sorted({place for choices in options.values() for row, _ in choices for place in (row.start, row.end)})
    ranks = {place: rank for rank, place in enumerate(places)}
    best = _Best(places)
    unit = len(options) + 1
    for index in sorted(options):
        links = []
        for stretch, exact in options[index]:
            before, bonus = best.before(ranks[stretch.start])
            weight = (before.weight if before else 0) + unit * unit + unit * exact + bonus
            links.append(_Link(weight, ranks[stretch.end], index, stretch, before))
        for link in links:
            best.add(link)
    chain: dict[int, Stretch] = {}
    end = best.upto(len(places))
    while end is not None:
        chain[end.at] = end.stretch
        end = end.before
    return chain


class _Best:
    """The best chains so far, by the rank of their last row: a Fenwick tree of maxima."""

    def __init__(self, places: list[float]) -> None:
        self._places = places
        self._tree: list[_Link | None] = [None] * (len(places) + 1)
        self._at: list[_Link | None] = [None] * len(places)

    def add(self, link: _Link) -> None:
        here = self._at[link.rank]
        if here is None or link[:2] > here[:2]:
            self._at[link.rank] = link
        position = link.rank + 1
        while position < len(self._tree):
            there = self._tree[position]
            if there is None or link[:2] > there[:2]:
                self._tree[position] = link
            position += position & -position

    def before(self, rank: int) -> tuple[_Link | None, int]:
        """Return the best chain that ends before a rank, and 1 when there is no gap between them."""
        best = self.upto(rank)
        neighbour = self._at[rank - 1] if rank and self._places[rank] - self._places[rank - 1] <= 1 else None
        if neighbour and best and neighbour.weight + 1 >= best.weight:
            return neighbour, 1
        return best, 0

    def upto(self, count: int) -> _Link | None:
        """Return the best chain that ends with one of the first ranks."""
        best: _Link | None = None
        while count:
            there = self._tree[count]
            if there is not None and (best is None or there[:2] > best[:2]):
                best = there
            count -= count & -count
        return best


def nearest(rows: Sequence[StoredRow], number: int, total: int) -> Sequence[StoredRow]:
    """Return the equal rows that are nearest to the position of a message among its own equals.

    `number` of `total` equal messages of the list come before it; positions are counted from both ends.
    """
    if len(rows) <= MOST_OPTIONS:
        return rows
    positions = {*_around(number, len(rows)), *_around(len(rows) - total + number, len(rows))}
    return [rows[position] for position in sorted(positions)]


def _around(position: int, length: int) -> range:
    reach = MOST_OPTIONS // 4
    return range(max(0, min(position, length) - reach), min(length, max(position, 0) + reach + 1))
