"""The longest chain of known messages in stored order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MOST_OPTIONS: Final = 64  # of many equal messages, only the nearest ones are considered


class Placed(Protocol):
    """Something that reaches from one place in the stored order to another, or stands at one."""

    @property
    def start(self) -> float:
        """Where it begins."""

    @property
    def end(self) -> float:
        """Where it ends."""


PlacedT = TypeVar("PlacedT", bound=Placed)
_T = TypeVar("_T")


class _Link(NamedTuple):
    """The best chain that ends here: its weight, the rank of its last row, and how it came about."""

    weight: int
    rank: int
    at: int
    option: int
    before: _Link | None


def longest_chain(options: Mapping[int, Sequence[tuple[PlacedT, bool]]]) -> dict[int, PlacedT]:
    """Choose for each index at most one of its options, so that their places rise and as many as possible are chosen.

    An option is a stretch of rows and whether it is exactly the same message. Among equally long chains the one with
    more exact rows wins, then the one with fewer jumps, then the later one. Costs n log n for n options (`nearest`
    bounds them).
    """
    places = sorted({place for choices in options.values() for row, _ in choices for place in (row.start, row.end)})
    ranks = {place: rank for rank, place in enumerate(places)}
    best = _Best(places)
    unit = len(options) + 1
    for index in sorted(options):
        links = []
        for number, (row, exact) in enumerate(options[index]):
            before, bonus = best.before(ranks[row.start])
            weight = (before.weight if before else 0) + unit * unit + unit * exact + bonus
            links.append(_Link(weight, ranks[row.end], index, number, before))
        for link in links:
            best.add(link)
    chain: dict[int, PlacedT] = {}
    end = best.last()
    while end is not None:
        chain[end.at] = options[end.at][end.option][0]
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
        """Return the best chain that ends before a rank, and 1 when it goes on without a jump."""
        best = self._upto(rank)
        neighbour = self._at[rank - 1] if rank and self._places[rank] - self._places[rank - 1] <= 1 else None
        if neighbour and best and neighbour.weight + 1 >= best.weight:
            return neighbour, 1
        return best, 0

    def last(self) -> _Link | None:
        """Return the best chain of all."""
        return self._upto(len(self._places))

    def _upto(self, count: int) -> _Link | None:
        best: _Link | None = None
        while count:
            there = self._tree[count]
            if there is not None and (best is None or there[:2] > best[:2]):
                best = there
            count -= count & -count
        return best


def nearest(rows: Sequence[_T], number: int, total: int) -> Sequence[_T]:
    """Of many equal rows keep those that stand about where the message stands among its own equals.

    `number` of `total` equal messages come before it; rows are taken around that position from both ends.
    """
    if len(rows) <= MOST_OPTIONS:
        return rows
    positions = {*_around(number, len(rows)), *_around(len(rows) - total + number, len(rows))}
    return [rows[position] for position in sorted(positions)]


def _around(position: int, length: int) -> range:
    reach = MOST_OPTIONS // 4
    return range(max(0, min(position, length) - reach), min(length, max(position, 0) + reach + 1))
