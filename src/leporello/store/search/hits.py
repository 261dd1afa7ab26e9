"""Searching: from a text to a page of hits.

An exact search ranks the newest hits of all its words; older ones follow in blocks, so that a word that is everywhere
costs no more than a rare one. A question ranks the best hits of its rarer words together with what stands around them.
A search that asks for newest first is not ranked at all.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Final, Literal

from leporello.errors import QueryError
from leporello.store.protocol import Candidate, SearchFilter
from leporello.store.search.cursor import Cursor, decode, encode, name_of
from leporello.store.search.prepare import plain_text
from leporello.store.search.query import Query, parse
from leporello.store.search.rank import Ranked, Statistics, exactness, number_of, ranked
from leporello.store.search.regex import Expression, OutOfTimeError
from leporello.store.search.scan import fits, in_batches, newest_messages
from leporello.store.search.snippet import around, snippet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from leporello.store.protocol import Store, Stored

MOST_HITS: Final = 200
REGEX_SECONDS: Final = 2.0

BLOCK: Final = 32
"""Hits of an exact search that are ranked together."""
MOST_BLOCKS: Final = 32
"""Blocks that are read for one page, when few of the hits are literal."""
POOL: Final = 200
"""Hits of a question that are ranked."""
COMMON: Final = 12_000
"""A question's words are looked for together while they occur in no more messages than this."""
ASKED_AROUND: Final = 20
"""The best hits of a question whose neighbours are ranked too."""
_AROUND: Final = 2
_SPARE: Final = 20  # room for matches that came after the first page
_FEW: Final = 2_000

Sort = Literal["relevance", "recency"]


@dataclass(frozen=True, kw_only=True)
class Hit:
    """A message that was found; `rank` counts from 1 over all pages, `snippet` is its text as it was written."""

    id: str
    conversation: str
    seq: int
    rank: int
    role: str
    name: str
    time: float
    snippet: str
    score: float


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """A page of hits; `cursor` leads to the next one. Not `complete`: a limit left out hits that no later page has."""

    hits: tuple[Hit, ...] = ()
    complete: bool = True
    cursor: str | None = None


@dataclass(frozen=True, kw_only=True)
class _Search:
    """One search, read and checked."""

    store: Store
    query: Query
    filter: SearchFilter
    limit: int
    cursor: Cursor


def search(
    store: Store,
    text: str,
    *,
    filter: SearchFilter | None = None,  # noqa: A002 - its name
    limit: int = 10,
    cursor: str | None = None,
    sort: Sort = "relevance",
    regex: bool = False,
    seconds: float = REGEX_SECONDS,
    now: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> SearchResult:
    """Search the stored messages that a filter allows.

    `regex` takes the text as a regular expression and walks through the messages, newest first, for at most `seconds`.
    `now` is what "since:7d" counts from. Raises `QueryError` for a limit, cursor, sort or expression that is wrong.
    """
    if not 1 <= limit <= MOST_HITS:
        raise QueryError(f"The limit is {limit}; it must be from 1 to {MOST_HITS}. The cursor leads to further hits.")
    if sort not in {"relevance", "recency"}:
        raise QueryError(f"The sort is {sort!r}; it must be 'relevance' or 'recency'.")
    scope = filter or SearchFilter()
    query = Query(text=text) if regex else parse(text, now=now)
    narrowed = query.narrow(scope)
    if narrowed is None:
        return SearchResult()
    name = name_of(text, scope, sort=sort, regex=regex)
    place = decode(cursor, search=name) if cursor else Cursor(search=name, newest=0)
    asked = _Search(store=store, query=query, filter=narrowed, limit=limit, cursor=place)
    if regex:
        with Expression(text, seconds=seconds, clock=clock) as expression:
            return _walk(asked, expression)
    if not query.phrases:
        return _walk(asked, None)
    if sort == "recency":
        return _recent(asked)
    return (None if query.question else _exact(asked)) or _answered(asked)


def _exact(asked: _Search) -> SearchResult | None:
    """Rank what has all the words; None when nothing has, and the words may be looked for one by one."""
    # A single phrase weighs the same in every message.
    several = len(asked.query.phrases) > 1
    statistics = _statistics(asked, [stem for phrase in asked.query.phrases for stem in phrase.stems if several])
    result = _in_blocks(
        asked,
        asked.query.match_exact(),
        lambda block: ranked(asked.query, block, statistics, question=False),
        statistics,
    )
    return result if result.hits or not asked.query.loose else None


def _recent(asked: _Search) -> SearchResult:
    """List what has all the words, newest first; what has any of them, if nothing has all."""
    exact = _in_blocks(asked, asked.query.match_exact(), lambda block: _as_they_come(asked.query, block))
    if exact.hits or not asked.query.loose:
        return exact
    return _in_blocks(asked, asked.query.match_natural(), lambda block: _as_they_come(asked.query, block))


def _as_they_come(query: Query, block: Sequence[Candidate]) -> list[Ranked]:
    literal = any(phrase.quoted for phrase in query.phrases)
    return [Ranked(candidate=each, score=0.0) for each in block if not literal or exactness(query, each.text)]


class _Newest:
    """The messages that match, newest first, fetched as far as needed; none that came after the first page."""

    def __init__(self, asked: _Search, match: str) -> None:
        self._asked = asked
        self._match = match
        self._fetched: list[Candidate] = []
        self._all = False
        self.newest = asked.cursor.newest

    def block(self, number: int) -> list[Candidate]:
        """Return a block of matches."""
        self._fetch((number + 1) * BLOCK)
        return self._fetched[number * BLOCK : (number + 1) * BLOCK]

    def ends_before(self, number: int) -> bool:
        """Tell whether there is no such block."""
        self._fetch(number * BLOCK + 1)
        return len(self._fetched) <= number * BLOCK

    def _fetch(self, count: int) -> None:
        size = count
        while len(self._fetched) < count and not self._all:
            found = self._asked.store.candidates(self._match, filter=self._asked.filter, limit=size, newest_first=True)
            self._all = len(found) < size
            self.newest = self.newest or max((number_of(each.id) for each in found), default=0)
            self._fetched = [each for each in found if number_of(each.id) <= self.newest]
            size *= 2


def _in_blocks(
    asked: _Search,
    match: str,
    order: Callable[[list[Candidate]], list[Ranked]],
    statistics: Statistics | None = None,
) -> SearchResult:
    """Take a page from blocks of matches, the newest block first, each put in order."""
    matches = _Newest(asked, match)
    first = asked.cursor.offset // BLOCK
    found = list(islice(_one_by_one(matches, order, asked.cursor.offset), asked.limit + 1))
    page = found[: asked.limit]
    if len(found) > asked.limit:
        offset = page[-1][0]
    elif matches.ends_before(first + MOST_BLOCKS):
        return _result(asked, [each for _, each in page], complete=_saw_all(asked))
    else:
        offset = (first + MOST_BLOCKS) * BLOCK
    place = replace(_place(asked, len(page), statistics), newest=matches.newest, offset=offset)
    return _result(asked, [each for _, each in page], place, complete=len(found) > asked.limit)


def _one_by_one(
    matches: _Newest, order: Callable[[list[Candidate]], list[Ranked]], offset: int
) -> Iterator[tuple[int, Ranked]]:
    """Walk the blocks from an offset, each hit with the offset after it."""
    first, skip = divmod(offset, BLOCK)
    for number in range(first, first + MOST_BLOCKS):
        block = matches.block(number)
        for index, each in enumerate(order(block)):
            if index >= skip:
                yield number * BLOCK + index + 1, each
        if len(block) < BLOCK:
            return
        skip = 0


def _saw_all(asked: _Search) -> bool:
    """Tell whether a store can be trusted to have shown all matches: of a common word it filters the newest only."""
    scope = replace(asked.filter, conversation=None, owner="", superseded=False)
    if scope == SearchFilter():
        return True
    counts = asked.store.term_counts([stem for phrase in asked.query.phrases for stem in phrase.stems])[1]
    return min(counts.values(), default=0) <= _FEW


def _answered(asked: _Search) -> SearchResult:
    """Rank the best hits of a question's words, and what stands around the very best."""
    statistics = _statistics(asked, [part for unit in asked.query.content for part in unit.split(" ")])
    pool = _pool(asked, statistics)
    newest = asked.cursor.newest or max((number_of(each.id) for each in pool), default=0)
    pool = [each for each in pool if number_of(each.id) <= newest][:POOL]
    near = _neighbours(asked, pool[:ASKED_AROUND], newest) if asked.query.question else []
    known = {each.id for each in pool}
    best = ranked(asked.query, [*pool, *(each for each in near if each.id not in known)], statistics, question=True)
    start, end = asked.cursor.offset, asked.cursor.offset + asked.limit
    page, more = best[start:end], len(best) > end
    place = replace(_place(asked, len(page), statistics), newest=newest, offset=end) if more else None
    return _result(asked, page, place, complete=len(pool) < POOL)


def _pool(asked: _Search, statistics: Statistics) -> list[Candidate]:
    """Fetch the best hits of the question's rarer words; if all are common, the newest that have two of them."""
    counts = [(statistics.count(unit), unit) for unit in asked.query.content]
    known = sorted(pair for pair in counts if pair[0])
    chosen, total = [], 0
    for count, term in known:
        total += count
        if total <= COMMON:
            chosen.append(term)
    if chosen:
        match, newest_first = asked.query.match_natural(chosen), False
    else:
        match, newest_first = asked.query.match_all(term for _, term in known[:2]), True
    if not match:
        return []
    limit = POOL + _SPARE
    return asked.store.candidates(match, filter=asked.filter, limit=limit, newest_first=newest_first)


def _neighbours(asked: _Search, best: Sequence[Candidate], newest: int) -> list[Candidate]:
    """Return what stands directly around the best hits, if the filter allows it; each once."""
    found: dict[str, Candidate] = {}
    for each in best:
        for stored in asked.store.neighbours(each.id, before=_AROUND, after=_AROUND, owner=asked.filter.owner):
            if stored.id not in found and number_of(stored.id) <= newest and fits(stored, asked.filter):
                found[stored.id] = _as_candidate(stored)
    return list(found.values())


def _walk(asked: _Search, expression: Expression | None) -> SearchResult:
    """Walk through messages, newest first, and take those that the expression matches; without one, all."""
    page: list[tuple[Stored, int]] = []
    position, complete = asked.cursor.position, True
    messages = newest_messages(asked.store, asked.filter, start=position)
    try:
        for stored, place in _looked_at(messages, expression):
            if len(page) == asked.limit:
                break
            position = stored.conversation, stored.seq
            if place >= 0:
                page.append((stored, place))
        else:
            position = None
    except OutOfTimeError:
        complete = False
    goes_on = replace(_place(asked, len(page)), position=position) if position else None
    hits = [
        _hit(_as_candidate(stored), rank=rank, score=0.0, shown=around(plain_text(stored.message), place))
        for rank, (stored, place) in enumerate(page, start=asked.cursor.given + 1)
    ]
    return SearchResult(hits=tuple(hits), complete=complete, cursor=encode(goes_on) if goes_on else None)


def _looked_at(messages: Iterable[Stored], expression: Expression | None) -> Iterator[tuple[Stored, int]]:
    """Walk messages, each with the position of the match in it, -1 for none."""
    if expression is None:
        yield from ((stored, 0) for stored in messages)
        return
    for batch in in_batches(messages):
        places = expression.positions([text for _, text in batch])
        yield from ((stored, place) for (stored, _), place in zip(batch, places, strict=True))


def _statistics(asked: _Search, terms: Sequence[str]) -> Statistics:
    """Return the statistics of the first page, so that later pages are cut from the same list."""
    if asked.cursor.counts:
        return Statistics(messages=asked.cursor.messages, counts=asked.cursor.counts)
    messages, counts = asked.store.term_counts(list(dict.fromkeys(terms))) if terms else (0, {})
    return Statistics(messages=messages, counts=counts)


def _place(asked: _Search, given: int, statistics: Statistics | None = None) -> Cursor:
    """Return the cursor behind a page of so many hits, still without its offset."""
    return Cursor(
        search=asked.cursor.search,
        newest=asked.cursor.newest,
        given=asked.cursor.given + given,
        messages=statistics.messages if statistics else 0,
        counts=statistics.counts if statistics else {},
    )


def _result(asked: _Search, page: Sequence[Ranked], place: Cursor | None = None, *, complete: bool) -> SearchResult:
    hits = [
        _hit(each.candidate, rank=rank, score=each.score, shown=snippet(asked.query, each.candidate.text))
        for rank, each in enumerate(page, start=asked.cursor.given + 1)
    ]
    return SearchResult(hits=tuple(hits), complete=complete, cursor=encode(place) if place else None)


def _hit(candidate: Candidate, *, rank: int, score: float, shown: str) -> Hit:
    return Hit(
        id=candidate.id,
        conversation=candidate.conversation,
        seq=candidate.seq,
        rank=rank,
        role=candidate.role,
        name=candidate.name,
        time=candidate.time,
        snippet=shown,
        score=round(score, 6),
    )


def _as_candidate(stored: Stored) -> Candidate:
    return Candidate(
        id=stored.id,
        conversation=stored.conversation,
        seq=stored.seq,
        place=stored.place,
        role=stored.role,
        name=stored.name,
        tool=stored.tool,
        time=stored.time,
        score=0.0,
        text=plain_text(stored.message),
    )
