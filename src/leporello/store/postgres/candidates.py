"""What the index finds for a query: bounded, whatever the query is, and in the same order as SQLite."""

# ruff: noqa: S608 - statements are put together from constants; values are always bound

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from leporello.store.postgres.expression import (
    PART,
    PART_SIGN,
    TermPhrase,
    condition,
    needs_text,
    parse,
    phrases,
    tsquery,
)
from leporello.store.records import Candidates
from leporello.store.relational.matching import ALL, COUNTED, FEW_OTHERS, SCANNED, SCORED, Match, as_candidates
from leporello.store.relational.rows import checked, column_text, conversation_term, find, number_of, owner_term

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from leporello.store.postgres.expression import TermExpression
    from leporello.store.records import SearchFilter
    from leporello.store.relational.dialect import Connection

_AT_ONCE: Final = "floor(sqrt(2 * n))"  # the parts that are asked at once: the newest two alone, then more and more
_SHORT: Final = SCANNED  # messages of a conversation whose part of the index is read as a whole
_JUDGED: Final = SCORED // 2  # messages whose text is looked through for a phrase
_SMALL: Final = 4  # a conversation with fewer than one in so many messages is looked for by its term
_CHUNK: Final = 512  # hits that are looked up at once
_K1: Final = 1.2
_B: Final = 0.75
_LEAST_RARITY: Final = 1e-6  # the constants of BM25 as FTS5 has them


def matching(
    connection: Connection, match: Match, limit: int, *, newest_first: bool, parted: bool = True
) -> Candidates:
    """Return at most `limit` messages that match, newest first or by score.

    The index is not `parted` while it has messages that were indexed without the part that they are in.
    """
    scope = _scope(connection, match.filter, parted=parted)
    if scope is None:
        return Candidates()
    look = _newest if newest_first else _best
    sought = _Look(match=match, expression=parse(match.text), scope=scope, parted=parted)
    hits, cut = look(connection, sought, limit)
    return as_candidates(connection, hits, limit, cut=cut, conversation=scope.conversation)


def term_count(connection: Connection, term: str, last: int, *, parted: bool = True) -> int:
    """Count the messages with a term; a number beyond `COUNTED` is estimated from the newest ones."""
    return _estimated(connection, parse('"' + term.replace('"', '""') + '"'), last, parted=parted)


def _estimated(connection: Connection, expression: TermExpression, last: int, *, parted: bool) -> int:
    query, values = _hits(expression, "s.id", last, parted=parted)
    count, lowest = connection.execute(f"SELECT count(*), min(id) FROM ({query}) newest", (*values, COUNTED)).fetchone()
    return int(count if count < COUNTED else count * last / (last - lowest + 1))


# Each part by the index: `<>` would read all conversations of one owner. Those that are deleted have none.
_OTHERS: Final = " UNION ALL ".join(
    f"(SELECT 1 FROM conversations WHERE owner {other} LIMIT 1)" for other in ("< ?", "> ?", "IS NULL")
)


@dataclass(frozen=True, kw_only=True)
class _Scope:
    """Who may be searched: a condition on messages, and what narrows the search itself."""

    condition: str
    value: int | str
    conversation: int | None = None
    term: str = ""
    parted: bool = True
    """Whether the index is asked part by part."""


@dataclass(frozen=True, kw_only=True)
class _Look:
    """A search: what to look for, read, and where."""

    match: Match
    expression: TermExpression
    scope: _Scope
    parted: bool = True

    def hits(self, columns: str, *, judged: bool = False) -> tuple[str, list[Any]]:
        """Return the query for the hits, the newest first, and its values but for the limit."""
        scope = self.scope
        return _hits(
            self.expression,
            columns,
            self.match.last,
            term=scope.term,
            within=scope.conversation,
            parted=scope.parted,
            judged=judged,
        )


def _hits(
    expression: TermExpression,
    columns: str,
    last: int,
    *,
    term: str = "",
    within: int | None = None,
    parted: bool,
    judged: bool = False,
) -> tuple[str, list[Any]]:
    """Return the query for the index rows of an expression, the newest first, and its values but for the limit.

    `judged`, rows with its words in another order are among them, and `fits` tells which have them in this order.

    It asks the index alone: what else is asked about a message would tempt the planner away from it. And it asks for
    one part after the other until there are enough, several at a time after the first ones: to find the newest of many
    old hits, the planner would read either every hit or every newer message.
    """
    query = f"({tsquery(expression)})" + (f" & '{term}'" if term else "")
    text, needles = condition(expression) if needs_text(expression) else ("TRUE", [])
    own, number = ("", []) if within is None else (" AND s.conversation = ?", [within])
    where, values, first = f"s.id <= ?{own}", [last, *number, *needles], list[str]()
    if judged:
        columns, first, values = f"{columns}, {text} AS fits", needles, [last, *number]
    else:
        where = f"{where} AND {text}"
    if not parted:
        return (
            f"SELECT {columns} FROM search s WHERE s.terms @@ ?::tsquery AND {where} ORDER BY s.id DESC LIMIT ?",
            [*first, query, *values],
        )
    newest = f"SELECT least(coalesce(max(s.id), 0), ?) >> {PART} AS part FROM search s WHERE TRUE{own}"
    names = (
        f"SELECT string_agg('''{PART_SIGN}' || (part - n) || '''', '|') AS names FROM ({newest}) newest,"
        f" generate_series(0, part) n GROUP BY {_AT_ONCE} ORDER BY {_AT_ONCE}"
    )
    hits = f"SELECT {columns} FROM search s WHERE s.terms @@ (?::text || names || ')')::tsquery AND {where}"
    return (
        f"SELECT s.* FROM ({names}) parts, LATERAL ({hits} ORDER BY s.id DESC) s LIMIT ?",
        [last, *number, *first, f"{query} & (", *values],
    )


def _scope(connection: Connection, filter: SearchFilter, *, parted: bool) -> _Scope | None:  # noqa: A002 - its name
    """Return the owners that may be searched, None when there is none.

    The term of a single owner would cost fifteen times what it is to narrow: all messages have it.
    """
    if filter.conversation is None:
        others = connection.execute(_OTHERS, (checked(filter.owner),) * 2).fetchone()
        return _Scope(
            condition="m.conversation IN (SELECT id FROM conversations WHERE owner = ?)",
            value=filter.owner,
            term=owner_term(filter.owner) if others else "",
            parted=parted,
        )
    found = find(connection, filter.conversation, filter.owner)
    if found is None:
        return None
    last = connection.execute("SELECT coalesce(max(id), 0) FROM search").fetchone()[0]
    term = conversation_term(found.id) if last > _SMALL * found.next_seq + FEW_OTHERS else ""
    return _Scope(
        condition="m.conversation = ?",
        value=found.id,
        conversation=found.id,
        term=term,
        parted=parted and found.next_seq > _SHORT,
    )


def _newest(connection: Connection, look: _Look, limit: int) -> tuple[list[tuple[int, float]], bool]:
    """Walk the hits, newest first, until enough of them pass the filter; tell whether it was given up before.

    Of what has the words of a phrase beside each other, not always in this order, the newest are looked at.
    """
    most = _JUDGED if needs_text(look.expression) else SCANNED
    query, values = look.hits("s.id", judged=True)
    rows = connection.walk(
        f"SELECT id, n FROM (SELECT s.*, row_number() OVER () AS n FROM ({query}) s) s WHERE fits OR n > ?",
        (*values, most + 1, most),
    )
    cut = False

    def hits() -> Iterator[tuple[int, float]]:
        nonlocal cut
        for count, (number, place) in enumerate(rows):
            cut = count == SCANNED or place > most
            if cut:
                return
            yield number, 0.0

    found = list(islice(_passing(connection, look, hits()), limit))
    return found, cut and len(found) < limit


def _best(connection: Connection, look: _Look, limit: int) -> tuple[list[tuple[int, float]], bool]:
    """Score the newest hits, and return the best that pass the filter; and whether there were more than the newest."""
    query, values = look.hits("s.id, s.length, s.text")
    score, weights = _score(connection, look)
    scored = (
        f"WITH newest AS MATERIALIZED ({query})"
        f" SELECT s.id, {score} AS score FROM newest s ORDER BY score DESC, s.id DESC"
    )
    hits = ((number, float(score)) for number, score in connection.walk(scored, (*values, SCORED, *weights)))
    found = list(islice(_passing(connection, look, hits), limit))
    query, values = look.hits("s.id")
    beyond = connection.execute(f"{query} OFFSET ?", (*values, 1, SCORED)).fetchone()
    return found, beyond is not None


def _passing(connection: Connection, look: _Look, hits: Iterable[tuple[int, float]]) -> Iterator[tuple[int, float]]:
    """Yield those hits that pass the filter: they are looked up by their numbers, a few at a time."""
    where, values = _conditions(look)
    left = iter(hits)
    while chunk := list(islice(left, _CHUNK)):
        rows = connection.execute(
            f"SELECT m.id FROM messages m WHERE m.id = ANY (?) AND {where}", ([number for number, _ in chunk], *values)
        )
        passing = {number for (number,) in rows}
        yield from (hit for hit in chunk if hit[0] in passing)


def _score(connection: Connection, look: _Look) -> tuple[str, list[Any]]:
    """Return the BM25 score of an index row as an expression, and its values, worked out as FTS5 does."""
    rows, length = connection.execute(
        "SELECT coalesce(sum(indexed), 0)::float8, coalesce(sum(terms), 0)::float8 FROM conversations"
    ).fetchone()
    usual = length / rows if rows else 1.0
    parts: list[str] = []
    values: list[Any] = []
    for phrase in phrases(look.expression):
        count = "((octet_length(s.text) - octet_length(replace(s.text, ?, ''))) / ?)::float8"
        needle = [phrase.needle, max(1, len(phrase.needle.encode()))]
        damping = "?::float8 * (1 - ?::float8 + ?::float8 * s.length / ?::float8)"
        parts.append(f"?::float8 * (({count} * (?::float8 + 1.0)) / ({count} + {damping}))")
        values += [_rarity(connection, phrase, rows, parted=look.parted), *needle, _K1, *needle, _K1, _B, _B, usual]
    return " + ".join(parts) or "0.0", values


def _rarity(connection: Connection, phrase: TermPhrase, rows: float, *, parted: bool) -> float:
    """Return the weight of a phrase; what more messages have than are scored is as common as its newest ones are."""
    query, values = _hits(phrase, "s.id", ALL, parted=parted)
    (count,) = connection.execute(f"SELECT count(*) FROM ({query}) few", (*values, SCORED + 1)).fetchone()
    if count > SCORED:
        (last,) = connection.execute("SELECT coalesce(max(id), 0) FROM search").fetchone()
        count = max(count, _estimated(connection, phrase, last, parted=parted))
    ratio = (rows - count + 0.5) / (count + 0.5)
    return max(math.log(ratio), _LEAST_RARITY) if ratio > 0 else _LEAST_RARITY


def _conditions(look: _Look) -> tuple[str, list[Any]]:
    """Return what a message must fulfil, and the values of that."""
    filter, texts, values = look.match.filter, [look.scope.condition], [look.scope.value]  # noqa: A001 - its name
    if not filter.superseded:
        texts.append("m.gone IS NULL")
    conditions: list[tuple[str, Any]] = []
    if filter.role is not None:
        conditions.append(("m.role = ?", column_text(filter.role)))
    if filter.name is not None:
        conditions.append(("lower(m.name) = ?", column_text(filter.name).encode().lower().decode()))
    if filter.tool is not None:
        conditions.append(("strpos(' ' || m.tool || ' ', ' ' || ? || ' ') > 0", column_text(filter.tool)))
    if filter.since is not None:
        conditions.append(("m.time >= ?", filter.since))
    if filter.until is not None:
        conditions.append(("m.time <= ?", filter.until))
    conditions += [("m.id <> ?", number_of(id_, "m") or 0) for id_ in filter.without]
    texts += [text for text, _ in conditions]
    return " AND ".join(texts), [*values, *(value for _, value in conditions)]
