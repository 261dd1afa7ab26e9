"""What a question is answered from: hits of its words, of the days it names, and what stands around the very best."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from leporello.store.records import Candidates
from leporello.store.search.dates import named_dates
from leporello.store.search.rank import Ranked, Statistics, number_of, ranked
from leporello.store.search.scan import as_candidate, fits

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leporello.store.protocol import SearchStore
    from leporello.store.records import Candidate, SearchFilter
    from leporello.store.search.query import Query

POOL: Final = 300
"""Hits of a question's words that are ranked."""
COMMON: Final = 12_000
"""A question's words are looked for together while they occur in no more messages than this."""
DAY_POOL: Final = 50
"""Hits of a day that a question names that are ranked too."""
ASKED_AROUND: Final = 20
"""The best hits whose neighbours are ranked too."""
_AROUND: Final = 2
_YEARS, _MOST_DAYS = 3, 6


@dataclass(frozen=True, kw_only=True)
class RankedHits:
    """Ranked hits of a question; not `complete` when its words have more."""

    hits: list[Ranked]
    complete: bool


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A question, who may be searched, and the number of the last message that counts."""

    store: SearchStore
    query: Query
    filter: SearchFilter
    newest: int


def answered(asked: Asked) -> RankedHits:
    """Rank the best hits of a question's words and of the days it names, with what stands around the very best."""
    words = [part for unit in asked.query.content for part in unit.split(" ")]
    messages, counts = asked.store.term_counts(words, newest=asked.newest)
    statistics = Statistics(messages=messages, counts=counts)
    pool, complete = _pool(asked, statistics)
    if asked.query.question:
        dated = _of_named_days(asked, statistics, pool)
        beside = [*dated, *_neighbours(asked, [*pool[:ASKED_AROUND], *dated[:ASKED_AROUND]])]
        known = {each.id for each in pool}
        pool = [*pool, *{each.id: each for each in beside if each.id not in known}.values()]
    return RankedHits(hits=ranked(asked.query, pool, statistics, question=asked.query.question), complete=complete)


def _pool(asked: Asked, statistics: Statistics) -> tuple[Sequence[Candidate], bool]:
    """Fetch the best hits of the question's rarer words; if all are common, the newest that have two of them."""
    known = [unit for unit in asked.query.content if statistics.count(unit)]
    chosen = _rarer(known, statistics)
    if chosen:
        match, newest_first = asked.query.match_natural(chosen), False
    else:
        rarest = sorted(known, key=lambda unit: (statistics.count(unit), unit))[:2]
        match, newest_first = asked.query.match_all(rarest), True
    found = _fetched(asked, match, POOL, newest_first=newest_first)
    return found.found, len(chosen) == len(known) and not found.full and not found.cut


def _of_named_days(asked: Asked, statistics: Statistics, pool: Sequence[Candidate]) -> list[Candidate]:
    """Fetch the best hits of the days that a question names, in the newest years of which it has hits."""
    dates = named_dates(asked.query.text)
    years = sorted({datetime.fromtimestamp(each.time, UTC).year for each in pool}, reverse=True) if dates else []
    spans = [span for date in dates for year in years[:_YEARS] if (span := date.span(year))]
    match = asked.query.match_natural(_rarer(asked.query.content, statistics)) if spans else ""
    return [
        each
        for start, end in spans[:_MOST_DAYS]
        for each in _fetched(_within(asked, start, end), match, DAY_POOL, newest_first=False).found
    ]


def _within(asked: Asked, start: float, end: float) -> Asked:
    """Return the same question about a stretch of time."""
    since, until = asked.filter.since, asked.filter.until
    narrowed = replace(
        asked.filter,
        since=start if since is None else max(start, since),
        until=end if until is None else min(end, until),
    )
    return replace(asked, filter=narrowed)


def _rarer(units: Iterable[str], statistics: Statistics) -> list[str]:
    """Choose units that occur, the rarest first, while they are not common together."""
    chosen, total = [], 0
    for count, unit in sorted((statistics.count(unit), unit) for unit in units):
        total += count
        if count and total <= COMMON:
            chosen.append(unit)
    return chosen


def _fetched(asked: Asked, match: str, limit: int, *, newest_first: bool) -> Candidates:
    if not match:
        return Candidates()
    return asked.store.candidates(
        match, filter=asked.filter, limit=limit, newest_first=newest_first, newest=asked.newest
    )


def _neighbours(asked: Asked, best: Iterable[Candidate]) -> list[Candidate]:
    """Return what stands directly around the best hits, if the filter allows it."""
    ids = [each.id for each in best]
    around = asked.store.neighbours(
        ids, before=_AROUND, after=_AROUND, owner=asked.filter.owner, conversation=asked.filter.conversation
    )
    return [as_candidate(each) for each in around if number_of(each.id) <= asked.newest and fits(each, asked.filter)]
