"""The ranking: one pure function over a bounded number of candidates and the statistics of their terms.

A question is answered by a message, but its words are often spread over what stands around it: one person asks where
the keys are, another answers "on the table". So a message's score is a sum of five BM25 scores: of what the message
itself states, of what the message before it asks, of it with its direct neighbours, of it with three neighbours on
either side, and of its whole sitting. What a message itself asks is left out: who asks does not answer. A speaker or a
date that the question names counts twice as much as the rarest of its words. Of equals the oldest comes first: there it
was said for the first time. Behind the very best hits, every further sitting shows its best one before any shows a
second.

A search that is no question ranks by how literally the query stands in the message, then by how many of its words the
message has, then by how many stand together, as in a line, then by BM25, then the newest first.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from leporello.store.search.counting import MOST_COUNTED, count, has_words, readable
from leporello.store.search.dates import named_dates
from leporello.store.search.prepare import folded_terms, stemmed_terms
from leporello.store.search.proximity import closest
from leporello.store.search.stem import stem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from leporello.store.records import Candidate
    from leporello.store.search.query import Query

K1: Final = 1.2
B: Final = 0.75
CIRCLES: Final = {1: 1.0, 3: 1.0}
"""The weight of a message with this many neighbours on either side; alone it has the weight 1."""
ASKED: Final = 1.0
"""The weight of what the message before it asks."""
SITTING: Final = 1.0
"""The weight of all that was said without a pause."""
SPEAKER: Final = 2.0
"""The weight of the named speaker, as a multiple of the rarest word's."""
DATE: Final = 2.0
"""The weight of the named month, and again of the named day, as a multiple of the rarest word's."""
PAUSE: Final = 3_600.0
HEAD: Final = 10
"""The hits of a question that come first wherever they stand; behind them the sittings take turns."""

_BEST_OF_SITTING: Final = 3  # hits by which sittings are compared
_LONGEST_LENGTH: Final = 60_000  # characters; a longer message is no longer in its score
_LONGEST_SPLIT: Final = 2_000  # characters of a message that are cut into words; beyond, only its terms are looked for
# A sentence that asks, or another one; the mark in an address asks nothing.
_SENTENCES: Final = re.compile(r"([^.!?。！？\n]*(?:\?(?!\w)|？))|[^.!?。！？\n]*(?:.|\n|$)")


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """How many messages there are, and in how many of them each term occurs."""

    messages: int
    counts: dict[str, int]

    def count(self, term: str) -> int:
        """Return in how many messages a term occurs; for a phrase, at most how many."""
        return min(self.counts.get(part, 0) for part in term.split(" "))

    def rarity(self, term: str) -> float:
        """Return the inverse document frequency of a term; of a phrase, that of its rarest term."""
        among = min(self.count(term), self.messages)
        return math.log(1 + (self.messages - among + 0.5) / (among + 0.5))


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """A candidate with its score; `exact` is 2 when all of the query stands in it as written, 1 in the same words.

    `words` is how many words of the query it has, `together` how many of several stand close together. Hits of one
    sitting have the same number in `sitting`.
    """

    candidate: Candidate
    score: float
    exact: int = 0
    words: int = 0
    together: int = 0
    sitting: int = 0


@dataclass(frozen=True, kw_only=True)
class _Read:
    """A candidate with how often it has each term, in all and in what it asks."""

    candidate: Candidate
    length: float
    counts: tuple[float, ...]
    asked: tuple[float, ...]

    @property
    def stated(self) -> tuple[float, ...]:
        """How often it has each term in what it does not ask."""
        return tuple(number - asked for number, asked in zip(self.counts, self.asked, strict=True))


def ranked(query: Query, candidates: Iterable[Candidate], statistics: Statistics, *, question: bool) -> list[Ranked]:
    """Rank candidates, the best first."""
    candidates = list(candidates)
    return _by_answer(query, candidates, statistics) if question else _by_exactness(query, candidates, statistics)


def _by_exactness(query: Query, candidates: list[Candidate], statistics: Statistics) -> list[Ranked]:
    terms = tuple(dict.fromkeys(" ".join(phrase.stems) for phrase in query.phrases))
    rarities = [statistics.rarity(term) for term in terms]
    read = [_read(candidate, terms) for candidate in candidates]
    usual = _usual_length(read)
    found = [
        Ranked(
            candidate=each.candidate,
            score=_bm25(each.counts, each.length / usual, rarities),
            exact=exactness(query, each.candidate.text),
            words=sum(number > 0 for number in each.counts),
            together=closest(terms, each.candidate.text[:_LONGEST_LENGTH])[1] if len(terms) > 1 else 0,
        )
        for each in read
    ]
    return sorted(found, key=_literalness)


def _literalness(each: Ranked) -> tuple[float, ...]:
    return (-each.exact, -each.words, -each.together, -round(each.score, 9), -number_of(each.candidate.id))


def exactness(query: Query, text: str) -> int:
    """Return 2 when every phrase stands in the text as written, 1 when in the same words, 0 when in other forms."""
    if written_in(query, text):
        return 2
    return int(has_words([phrase.terms for phrase in query.phrases], text))


def written_in(query: Query, text: str) -> bool:
    """Tell whether every phrase of a query stands in a text as it is written."""
    return all(phrase.written in text for phrase in query.phrases)


def stands_in(query: Query, text: str) -> bool:
    """Tell whether every phrase stands in a text in the same words or as it is written, not only inside other words."""
    if has_words([phrase.terms for phrase in query.phrases], text):
        return True
    if not written_in(query, text):
        return False
    stems = " ".join(("", *stemmed_terms(text), ""))
    return all(f" {' '.join(phrase.stems)} " in stems for phrase in query.phrases)


def number_of(id_: str) -> int:
    """Return the number in a message's id, which grows with every message that is stored."""
    digits = id_.lstrip("m")
    return int(digits) if digits.isdecimal() else 0


def _by_answer(query: Query, candidates: list[Candidate], statistics: Statistics) -> list[Ranked]:
    speakers = {name: set(folded_terms(name)) for name in {candidate.name for candidate in candidates}}
    known = set[str]().union(*speakers.values())
    named = {word for phrase in query.phrases for word in phrase.terms if word in known}
    terms = tuple(term for term in query.content if term not in set(map(stem, named))) or query.content
    own = [statistics.rarity(term) for term in terms]
    read = [_read(candidate, terms) for candidate in candidates]
    rarest = max(own, default=0.0)
    dates = named_dates(query.text)
    found = []
    for number, each, score in _circled(read, own):
        # Naming all speakers prefers none.
        speaks = len(named) == 1 and not named.isdisjoint(speakers[each.candidate.name])
        dated = max((date.closeness(each.candidate.time) for date in dates), default=0)
        bonus = (SPEAKER * speaks + DATE * dated) * rarest
        found.append(Ranked(candidate=each.candidate, score=score + bonus, sitting=number))
    return in_turns(sorted(found, key=lambda each: (-round(each.score, 9), number_of(each.candidate.id))))


def in_turns(best: list[Ranked]) -> list[Ranked]:
    """Keep the very best hits in front; behind them put the best one of every sitting that is not there yet."""
    scores: dict[int, list[float]] = {}
    for each in best:
        scores.setdefault(each.sitting, []).append(each.score)
    shown = {each.sitting for each in best[:HEAD]}
    first: dict[int, Ranked] = {}
    rest = []
    for each in best[HEAD:]:
        if each.sitting in shown:
            rest.append(each)
        else:
            shown.add(each.sitting)
            first[each.sitting] = each
    order = sorted(first, key=lambda sitting: -sum(scores[sitting][:_BEST_OF_SITTING]))
    return [*best[:HEAD], *(first[sitting] for sitting in order), *rest]


def _circled(read: list[_Read], rarities: Sequence[float]) -> Iterator[tuple[int, _Read, float]]:
    """Score candidates with what stands around them, each with the number of its sitting."""
    usual = _usual_length(read)
    for number, sitting in enumerate(_sittings(read)):
        places = [each.candidate.place for each in sitting]
        sums = [list(accumulate(column, initial=0)) for column in zip(*(each.counts for each in sitting), strict=True)]
        lengths = list(accumulate((each.length for each in sitting), initial=0.0))
        whole = SITTING * _bm25([column[-1] for column in sums], 1.0, rarities)
        for index, (each, place) in enumerate(zip(sitting, places, strict=True)):
            score = whole + _bm25(each.stated, each.length / usual, rarities)
            if index and place - places[index - 1] <= 1:
                score += ASKED * _bm25(sitting[index - 1].asked, 1.0, rarities)
            for reach, weight in CIRCLES.items():
                start, end = bisect_left(places, place - reach), bisect_right(places, place + reach)
                width = max(2 * reach + 1, end - start)
                # A neighbour that is no candidate has none of the terms, and the usual length.
                length = lengths[end] - lengths[start] + usual * (width - (end - start))
                counts = [column[end] - column[start] for column in sums]
                score += weight * _bm25(counts, length / (usual * width), rarities)
            yield number, each, score


def _sittings(read: list[_Read]) -> list[list[_Read]]:
    """Put together what was said in one conversation, on one path, without a long pause, in order."""
    sittings: list[list[_Read]] = []
    paths: dict[tuple[str, int], list[_Read]] = {}
    for each in read:
        paths.setdefault((each.candidate.conversation, each.candidate.other_branch), []).append(each)
    for _, path in sorted(paths.items()):
        path.sort(key=lambda each: each.candidate.place)
        for number, each in enumerate(path):
            if number and abs(each.candidate.time - path[number - 1].candidate.time) <= PAUSE:
                sittings[-1].append(each)
            else:
                sittings.append([each])
    return sittings


def _read(candidate: Candidate, terms: Sequence[str]) -> _Read:
    """Count a candidate's terms."""
    text = candidate.text
    asked = questions_in(text)
    return _Read(
        candidate=candidate,
        length=float(min(len(text), _LONGEST_LENGTH) or 1),
        counts=_counts(text, terms),
        asked=_counts(asked, terms) if asked else (0.0,) * len(terms),
    )


def questions_in(text: str) -> str:
    """Return the sentences of a text that ask; of a long text none, as it is no question."""
    if len(text) > _LONGEST_SPLIT or not any(mark in text for mark in "?？"):
        return ""
    return "\n".join(filter(None, _SENTENCES.findall(text)))


def _counts(text: str, terms: Sequence[str]) -> tuple[float, ...]:
    """Count how often a text has each term."""
    if len(text) <= _LONGEST_SPLIT and not any(" " in term for term in terms):
        words = Counter(stemmed_terms(text))
        return tuple(float(min(words[term], MOST_COUNTED)) for term in terms)
    return tuple(float(count(term, readable(text))) for term in terms)


def _usual_length(read: Sequence[_Read]) -> float:
    return sum(each.length for each in read) / len(read) if read else 1.0


def _bm25(counts: Sequence[float], relative_length: float, rarities: Sequence[float]) -> float:
    damping = K1 * (1 - B + B * relative_length)
    score = 0.0
    for number, rarity in zip(counts, rarities, strict=True):
        if number:
            score += rarity * number * (K1 + 1) / (number + damping)
    return score
