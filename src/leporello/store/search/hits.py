"""Searching: from a text to a page of hits.

An exact search ranks the newest hits of all its words; older ones follow in blocks, so that a word that is everywhere
costs no more than a rare one. What lacks a quoted phrase is left out before blocks are cut, so they do not depend on
what else an index finds for it. `/users` and `.env` are common words to the index: there what has them as they are
written comes first, among many more of the newest. A question ranks the best hits of its rarer words together with what
stands around them (`answer`).
A search that asks for newest first is not ranked at all.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from leporello.errors import QueryError
from leporello.redact import redact_message
from leporello.store.records import Hit, SearchFilter, SearchResult
from leporello.store.search.answer import Asked, answered
from leporello.store.search.cursor import Cursor, decode, encode, name_of
from leporello.store.search.prepare import plain_text
from leporello.store.search.query import Query, parse
from leporello.store.search.rank import Ranked, Statistics, number_of, ranked, stands_in, written_in
from leporello.store.search.regex import Expression, OutOfTimeError
from leporello.store.search.scan import as_candidate, newest_messages
from leporello.store.search.snippet import around, snippet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from leporello.store.protocol import SearchStore
    from leporello.store.records import Candidate, Sort, Stored

MOST_HITS: Final = 200
REGEX_SECONDS: Final = 2.0

BLOCK: Final = 32
"""Hits of an exact search that are ranked together."""
LITERAL_BLOCK: Final = 16 * BLOCK
"""Hits among which those come first that have the query as it is written, when it is written with marks."""
MOST_READ: Final = 32 * BLOCK
"""Hits that are read for one page, when few of them are literal."""

_TELLING: Final = 24
"""Characters by which a place is found again in a text from which secrets were taken."""


@dataclass(frozen=True, kw_only=True)
class _Search:
    """One search, read and checked."""

    store: SearchStore
    query: Query
    filter: SearchFilter
    limit: int
    cursor: Cursor
    hide_secrets: bool


def search(
    store: SearchStore,
    text: str,
    *,
    filter: SearchFilter | None = None,  # noqa: A002 - its name
    limit: int = 10,
    cursor: str | None = None,
    sort: Sort = "relevance",
    regex: bool = False,
    hide_secrets: bool = True,
    seconds: float = REGEX_SECONDS,
    now: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> SearchResult:
    """Search the stored messages that a filter allows.

    `regex` takes the text as a regular expression and walks through the messages, newest first, for at most `seconds`.
    With `hide_secrets` the snippets hold no known secret. `now` is what "since:7d" counts from. Raises `QueryError` for
    a limit, cursor, sort or expression that is wrong.
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
    if cursor:
        place = decode(cursor, search=name)
    else:
        place = Cursor(search=name, newest=store.term_counts([])[0], without=scope.without)
    allowed = replace(narrowed, without=place.without)
    asked = _Search(store=store, query=query, filter=allowed, limit=limit, cursor=place, hide_secrets=hide_secrets)
    if regex:
        return _walk(asked, Expression(text, seconds=seconds, clock=clock))
    if not query.phrases:
        return _walk(asked, None)
    if sort == "recency":
        return _recent(asked)
    return (None if query.question else _exact(asked)) or _answered(asked)


def _exact(asked: _Search) -> SearchResult | None:
    """Rank what has all the words; None when nothing has, and the words may be looked for one by one."""
    # A single phrase weighs the same in every message.
    several = len(asked.query.phrases) > 1
    terms = dict.fromkeys(stem for phrase in asked.query.phrases for stem in phrase.stems if several)
    messages, counts = asked.store.term_counts(list(terms), newest=asked.cursor.newest)
    statistics = Statistics(messages=messages, counts=counts)
    query = asked.query

    def in_order(block: Sequence[Candidate]) -> Iterator[Ranked]:
        for part in _literal_first(query, block):
            yield from ranked(query, part, statistics, question=False)

    marked = any(phrase.marked for phrase in query.phrases)
    result = _in_blocks(asked, _match_exact(asked), in_order, LITERAL_BLOCK if marked else BLOCK)
    return result if result.hits or not query.loose else None


def _match_exact(asked: _Search) -> str:
    return asked.query.match_exact(whole=asked.store.finds_whole_phrases)


def _literal_first(query: Query, found: Sequence[Candidate]) -> Iterator[Sequence[Candidate]]:
    """Cut matches into blocks that are ranked together, first those that have the query as it is written."""
    if len(found) <= BLOCK:
        yield found
        return
    literal = [each for each in found if written_in(query, each.text)]
    others = [each for each in found if not written_in(query, each.text)]
    for part in (literal, others):
        yield from (part[start : start + BLOCK] for start in range(0, len(part), BLOCK))


def _recent(asked: _Search) -> SearchResult:
    """List what has all the words, newest first; what has any of them, if nothing has all."""
    exact = _in_blocks(asked, _match_exact(asked), _as_they_come)
    if exact.hits or not asked.query.loose:
        return exact
    return _in_blocks(asked, asked.query.match_natural(), _as_they_come)


def _as_they_come(block: Sequence[Candidate]) -> list[Ranked]:
    return [Ranked(candidate=each, score=0.0) for each in block]


class _Newest:
    """The messages that match, newest first, fetched as far as needed; `cut` when there may be more than were found."""

    def __init__(self, asked: _Search, match: str) -> None:
        self._asked = asked
        self._match = match
        self._quoted = any(phrase.quoted for phrase in asked.query.phrases)
        self._fetched: Sequence[Candidate] = ()
        self._all = False
        self._limit = 0
        self.cut = False

    def place_below(self, number: int) -> int:
        """Return the place of the newest match that is older than a message; of the newest one when that is 0."""
        if not number:
            return 0
        self._fetch(self._asked.cursor.given)
        place = 0
        while self.has(place) and number_of(self._fetched[place].id) >= number:
            place += 1
        return place

    def number_before(self, place: int) -> int:
        """Return the number of the match that is a little newer than the one at a place, 0 when there is none."""
        return number_of(self._fetched[place - 1].id) if place else 0

    def has(self, place: int) -> bool:
        """Tell whether there is a match at a place."""
        self._fetch(place + 1)
        return len(self._fetched) > place

    def block(self, places: range, size: int) -> tuple[Sequence[Candidate], int]:
        """Return up to `size` matches that have what is quoted as it is written, and the place behind them."""
        self._fetch(places.start + size)
        found: list[Candidate] = []
        for place in places:
            if len(found) == size or not self.has(place):
                return found, place
            each = self._fetched[place]
            found += [each] if not self._quoted or stands_in(self._asked.query, each.text) else []
        return found, places.stop

    def _fetch(self, count: int) -> None:
        while not self._all and len(self._fetched) < count:
            asked, self._limit = self._asked, max(count, 2 * self._limit)
            found = asked.store.candidates(
                self._match, filter=asked.filter, limit=self._limit, newest_first=True, newest=asked.cursor.newest
            )
            self._all = not found.full
            self._fetched, self.cut = found.found, found.cut


def _in_blocks(
    asked: _Search, match: str, order: Callable[[Sequence[Candidate]], Iterable[Ranked]], size: int = BLOCK
) -> SearchResult:
    """Take a page from blocks of matches, the newest block first, each put in order."""
    matches = _Newest(asked, match)
    first = matches.place_below(asked.cursor.below)
    places = range(first, first + MOST_READ)
    found = list(islice(_one_by_one(asked, matches, order, places, size), asked.limit + 1))
    page = found[: asked.limit]
    if len(found) > asked.limit:
        below, offset, _ = page[-1]
    elif not matches.has(places.stop):
        return _result(asked, [each for *_, each in page], complete=not matches.cut)
    else:
        below, offset = matches.number_before(places.stop), 0
    place = replace(_place(asked, len(page)), below=below, offset=offset)
    return _result(asked, [each for *_, each in page], place, complete=len(found) > asked.limit)


def _one_by_one(
    asked: _Search,
    matches: _Newest,
    order: Callable[[Sequence[Candidate]], Iterable[Ranked]],
    places: range,
    size: int,
) -> Iterator[tuple[int, int, Ranked]]:
    """Walk the blocks from the cursor on, each hit with where the list goes on after it."""
    skip = asked.cursor.offset
    while places:
        block, behind = matches.block(places, size)
        below = matches.number_before(places.start)
        for offset, each in enumerate(order(block), start=1):
            if offset > skip:
                yield below, offset, each
        if behind == places.start:
            return
        places, skip = range(behind, places.stop), 0


def _answered(asked: _Search) -> SearchResult:
    """Cut a page from the ranked hits of a question."""
    question = Asked(store=asked.store, query=asked.query, filter=asked.filter, newest=asked.cursor.newest)
    answer = answered(question)
    start, end = asked.cursor.offset, asked.cursor.offset + asked.limit
    page = answer.hits[start:end]
    place = replace(_place(asked, len(page)), offset=end) if len(answer.hits) > end else None
    return _result(asked, page, place, complete=answer.complete)


def _walk(asked: _Search, expression: Expression | None) -> SearchResult:
    """Walk through messages, newest first, and take those that the expression matches; without one, all."""
    page: list[tuple[Stored, int]] = []
    position, complete = asked.cursor.position, True
    messages = newest_messages(asked.store, asked.filter, start=position)
    try:
        for stored in messages:
            if len(page) == asked.limit:
                break
            place = expression.position(plain_text(stored.message)) if expression else 0
            position = stored.conversation, stored.seq
            if place >= 0:
                page.append((stored, place))
        else:
            position = None
    except OutOfTimeError:
        complete = False
    goes_on = replace(_place(asked, len(page)), position=position) if position else None
    hits = [
        _hit(as_candidate(stored), rank=rank, score=0.0, shown=_around(asked, stored, place))
        for rank, (stored, place) in enumerate(page, start=asked.cursor.given + 1)
    ]
    return SearchResult(hits=tuple(hits), complete=complete, cursor=encode(goes_on) if goes_on else None)


def _place(asked: _Search, given: int) -> Cursor:
    """Return the cursor behind a page of hits, still without its place."""
    return replace(asked.cursor, given=asked.cursor.given + given, below=0, offset=0, position=None)


def _result(asked: _Search, page: Sequence[Ranked], place: Cursor | None = None, *, complete: bool) -> SearchResult:
    texts = _texts(asked, [each.candidate for each in page])
    hits = [
        _hit(each.candidate, rank=rank, score=each.score, shown=snippet(asked.query, texts.get(each.candidate.id, "")))
        for rank, each in enumerate(page, start=asked.cursor.given + 1)
    ]
    return SearchResult(hits=tuple(hits), complete=complete, cursor=encode(place) if place else None)


def _texts(asked: _Search, found: Sequence[Candidate]) -> dict[str, str]:
    """Return the texts that may be shown, by id; a message that was deleted meanwhile has none."""
    if not asked.hide_secrets:
        return {each.id: each.text for each in found}
    scope = asked.filter
    rows = asked.store.get([each.id for each in found], owner=scope.owner, conversation=scope.conversation)
    return {id_: _clean_text(stored) for id_, stored in rows.items()}


def _clean_text(stored: Stored) -> str:
    """Return the text of a message without secrets: they go before it is cut, and before JSON is taken apart."""
    return plain_text(redact_message(stored.message))


def _around(asked: _Search, stored: Stored, place: int) -> str:
    """Return what stands around a place in the text of a message."""
    text = plain_text(stored.message)
    if not asked.hide_secrets:
        return around(text, place)
    clean = _clean_text(stored)
    moved = place if clean[:place] == text[:place] else clean.find(text[place : place + _TELLING])
    return around(clean, max(0, moved))


def _hit(candidate: Candidate, *, rank: int, score: float, shown: str) -> Hit:
    return Hit(
        id=candidate.id,
        conversation=candidate.conversation,
        seq=candidate.seq,
        other_branch=candidate.other_branch,
        rank=rank,
        role=candidate.role,
        name=candidate.name,
        time=candidate.time,
        snippet=shown,
        score=round(score, 6),
    )
