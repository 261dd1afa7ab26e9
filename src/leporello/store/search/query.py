"""The query language. Any text is a query; none is an error.

two words          messages with both, in any order and form; written alike first
"two words"        exactly these words in this order
src/app_1.py       an identifier, path, uuid: its parts in this order
-word  -"a b"      not these (three letters and more, so that `-rf` stays a word)
role:user          also tool:, name:, since:, until: (2024-05-01, 2024-05-01T10:00, 7d, 12h)
what did we ...?   a question: the best matches of its content words
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from leporello.store.search.prepare import folded_terms, pieces_by_script, set_apart
from leporello.store.search.stem import stem
from leporello.store.search.words import OPENERS, REQUESTS, STOP_WORDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leporello.store.records import SearchFilter

MOST_PHRASES: Final = 48
LONGEST_PHRASE: Final = 256
_SHORTEST_QUESTION: Final = 3
_SHORTEST_EXCLUSION: Final = 3
_ROLES: Final = frozenset({"user", "assistant", "tool", "system", "developer"})
_SECONDS: Final = {"m": 60, "h": 3_600, "d": 86_400, "w": 604_800}

_PIECE: Final = re.compile(
    r'(?P<minus>-?)(?:(?P<field>role|tool|name|since|until):)?(?:"(?P<quoted>[^"]*)"|(?P<bare>\S+))'
)
_IDENTIFIER: Final = re.compile(r"\w[/\\_.:@#=]+\w|\d")
_MARKS_AT_EDGES: Final = re.compile(r"^[^\w\s\"'(]|[^\w\s\"').,;:!?]$")
_AGO: Final = re.compile(r"(\d{1,6})([mhdw])")


@dataclass(frozen=True, kw_only=True)
class Phrase:
    """Words that must stand together: as written, folded; `quoted` allows no other forms of them."""

    written: str
    terms: tuple[str, ...]
    quoted: bool = False

    @property
    def identifier(self) -> bool:
        """Whether this is a path, a name in code, a uuid or the like: words that belong together as they stand."""
        return (
            len(self.terms) > 1 and _IDENTIFIER.search(self.written) is not None and not any(map(set_apart, self.terms))
        )

    @property
    def marked(self) -> bool:
        """Whether it begins or ends with characters that no word of the index has, as in `/users`, `.env`, `--fast`."""
        return bool(_MARKS_AT_EDGES.search(self.written)) and not self.identifier

    @property
    def stems(self) -> tuple[str, ...]:
        """The terms as they are in the index."""
        return tuple(map(stem, self.terms))


@dataclass(frozen=True, kw_only=True)
class Query:
    """A query, read."""

    text: str
    phrases: tuple[Phrase, ...] = ()
    excluded: tuple[Phrase, ...] = ()
    role: str | None = None
    tool: str | None = None
    name: str | None = None
    since: float | None = None
    until: float | None = None

    @property
    def question(self) -> bool:
        """Whether this is a sentence that asks, to be answered by the best matches and not by all of its words."""
        words = [word for phrase in self.phrases if not phrase.quoted for word in phrase.terms]
        if len(words) < _SHORTEST_QUESTION or all(phrase.identifier for phrase in self.phrases):
            return False
        opens = words[0] in OPENERS or (words[0] in REQUESTS and not STOP_WORDS.isdisjoint(words))
        return (opens and not self.phrases[0].identifier) or self.text.rstrip().endswith(("?", "？"))

    @property
    def content(self) -> tuple[str, ...]:
        """What a question is about, each thing once: stems of words, phrases of identifiers; all words if need be."""
        units = [unit for phrase in self.phrases for unit in _units(phrase)]
        return tuple(dict.fromkeys(units)) or tuple(dict.fromkeys(s for phrase in self.phrases for s in phrase.stems))

    @property
    def loose(self) -> bool:
        """Whether its words may be looked for one by one: there are several and none is quoted."""
        return self.question or (len(self.phrases) > 1 and not any(phrase.quoted for phrase in self.phrases))

    def match_exact(self, *, whole: bool = False) -> str:
        """Return the full-text expression for all phrases, "" when there are none; a quoted one may find too much.

        Not `whole`, it leaves out the commonest words inside quoted phrases, where these take long to look for.
        """
        found = (_quoted(phrase.stems) if whole else _near(phrase) for phrase in self.phrases)
        return self._without_excluded(" AND ".join(found))

    def match_natural(self, terms: Iterable[str] | None = None) -> str:
        """Return the full-text expression for any content word, or any of these terms; "" when there are none."""
        return self._without_excluded(
            " OR ".join(_quoted([term]) for term in (self.content if terms is None else terms))
        )

    def match_all(self, terms: Iterable[str]) -> str:
        """Return the full-text expression for all of these terms; "" when there are none."""
        return self._without_excluded(" AND ".join(_quoted([term]) for term in terms))

    def _without_excluded(self, match: str) -> str:
        if not match or not self.excluded:
            return match
        return f"({match}) NOT ({' OR '.join(_quoted(phrase.stems) for phrase in self.excluded)})"

    def narrow(self, filter: SearchFilter) -> SearchFilter | None:  # noqa: A002 - its name
        """Return the filter with the query's own fields added; None when the two exclude each other."""
        own = {key: value for key in ("role", "tool", "name") if (value := getattr(self, key)) is not None}
        if any(getattr(filter, key) not in {None, value} for key, value in own.items()):
            return None
        since = [time for time in (filter.since, self.since) if time is not None]
        until = [time for time in (filter.until, self.until) if time is not None]
        return replace(filter, **own, since=max(since, default=None), until=min(until, default=None))


def parse(text: str, *, now: float | None = None) -> Query:
    """Read a query; `now` is what "7d" counts from, without it the present."""
    phrases: list[Phrase] = []
    excluded: list[Phrase] = []
    fields: dict[str, str | float] = {}
    for match in _PIECE.finditer(text):
        minus, field, value = match["minus"], match["field"], match["quoted"] or match["bare"] or ""
        known = _field(field, value, now) if field and not minus else None
        if field and known is not None:
            fields[field] = known
            continue
        written = match[0] if match["quoted"] is None else value
        phrase = _phrase(written, quoted=match["quoted"] is not None)
        if not phrase.terms:
            continue
        if minus and len("".join(phrase.terms)) >= _SHORTEST_EXCLUSION and not written.startswith("--"):
            excluded.append(_phrase(written.removeprefix("-"), quoted=phrase.quoted))
        else:
            phrases.append(phrase)
    unique = tuple(dict.fromkeys(phrases))[:MOST_PHRASES]
    return Query(text=text, phrases=unique, excluded=tuple(excluded[:MOST_PHRASES]), **fields)  # type: ignore[arg-type]


def _phrase(written: str, *, quoted: bool) -> Phrase:
    return Phrase(written=written, terms=tuple(folded_terms(written)[:LONGEST_PHRASE]), quoted=quoted)


def _units(phrase: Phrase) -> list[str]:
    """Cut a piece of a question into what can be looked for on its own."""
    apart = [set_apart(term) for term in phrase.terms]
    if len(apart) > 1 and all(apart):
        return [" ".join(pair) for pair in pairwise(phrase.stems)]
    pieces = pieces_by_script(phrase.written) if any(apart) and not phrase.quoted else []
    if len(pieces) > 1:
        # A single character or number between words says too little.
        return [unit for piece in pieces for unit in _units(_phrase(piece, quoted=False)) if len(unit) > 1]
    words = [stem(term) for term in phrase.terms if term not in STOP_WORDS]
    if len(phrase.terms) > 1 and phrase.quoted:
        return [" ".join(phrase.stems), *words]
    if phrase.identifier:
        return [" ".join(phrase.stems)]
    return words


def _near(phrase: Phrase) -> str:
    """Return the full-text expression for a phrase.

    Hits of a quoted phrase are compared with it as it is written. So the commonest words inside it need not be looked
    for, which takes long: it is enough that the others stand as close together.
    """
    rare = [index for index, term in enumerate(phrase.terms) if term not in STOP_WORDS]
    if not phrase.quoted or not rare or len(rare) == rare[-1] - rare[0] + 1:
        return _quoted(phrase.stems)
    sought = [*range(rare[0]), *rare, *range(rare[-1] + 1, len(phrase.terms))]
    starts = [index for index in sought if index - 1 not in sought]
    ends = [index for index in sought if index + 1 not in sought]
    runs = " ".join(_quoted(phrase.stems[start : end + 1]) for start, end in zip(starts, ends, strict=True))
    return f"NEAR({runs}, {starts[-1] - ends[0] - 1})"


def _quoted(terms: Iterable[str]) -> str:
    """Return a full-text phrase; a term has no quotation marks, as they separate terms."""
    return '"' + " ".join(terms) + '"'


def _field(field: str, value: str, now: float | None) -> str | float | None:
    """Return the value of a field, or None when it is not one and the text is meant literally."""
    if field in {"since", "until"}:
        return _time(value, end=field == "until", now=now)
    if field == "role":
        return value.lower() if value.lower() in _ROLES else None
    return value or None


def _time(value: str, *, end: bool, now: float | None) -> float | None:
    """Read a moment, in UTC unless it says otherwise; a day counts from its beginning, or as `end` to its end."""
    if ago := _AGO.fullmatch(value):
        present = datetime.now(UTC).timestamp() if now is None else now
        return present - int(ago[1]) * _SECONDS[ago[2]]
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    if end and len(value) <= len("2024-05-01"):
        moment += timedelta(days=1, microseconds=-1)
    return moment.timestamp()
