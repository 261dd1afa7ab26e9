"""What the index finds for a query: bounded, whatever the query is."""

# ruff: noqa: S608 - statements are put together from constants; values are always bound

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leporello.store.records import Candidates
from leporello.store.relational.matching import COUNTED, FEW_OTHERS, SCANNED, SCORED, Match, as_candidates
from leporello.store.relational.rows import checked, column_text, conversation_term, find, number_of, owner_term

if TYPE_CHECKING:
    from leporello.store.records import SearchFilter
    from leporello.store.relational.dialect import Connection


def matching(connection: Connection, match: Match, limit: int, *, newest_first: bool) -> Candidates:
    """Return at most `limit` messages that match, newest first or by score."""
    scope = _scope(connection, match.filter)
    if scope is None:
        return Candidates()
    look = _newest if newest_first else _best
    hits, cut = look(connection, match, scope, limit)
    return as_candidates(connection, hits, limit, cut=cut)


def term_count(connection: Connection, term: str, last: int) -> int:
    """Count the messages with a term; a number beyond `COUNTED` is estimated from the newest ones."""
    quoted = term.replace('"', '""')
    count, lowest = connection.execute(
        "SELECT count(*), min(id) FROM"
        " (SELECT rowid AS id FROM search WHERE search MATCH ? AND rowid <= ? ORDER BY rowid DESC LIMIT ?)",
        (f'"{column_text(quoted)}"', last, COUNTED),
    ).fetchone()
    return int(count if count < COUNTED else count * last / (last - lowest + 1))


@dataclass(frozen=True, kw_only=True)
class _Scope:
    """Who may be searched: a condition on messages, and a term that narrows the search itself where that helps."""

    condition: str
    value: int | str
    term: str = ""

    def narrowed(self, match: str) -> str:
        return f'({match}) AND "{self.term}"' if self.term else match


def _scope(connection: Connection, filter: SearchFilter) -> _Scope | None:  # noqa: A002 - its name
    """Return the owners that may be searched, None when there is none.

    The term makes a search of common words dearer. Where few messages are of others the condition alone does.
    """
    if filter.conversation is None:
        others = connection.execute(
            "SELECT 1 FROM conversations WHERE owner <> ? LIMIT 1", (checked(filter.owner),)
        ).fetchone()
        return _Scope(
            condition="m.conversation IN (SELECT id FROM conversations WHERE owner = ?)",
            value=filter.owner,
            term=owner_term(filter.owner) if others else "",
        )
    found = find(connection, filter.conversation, filter.owner)
    if found is None:
        return None
    last = connection.execute("SELECT coalesce(max(id), 0) FROM messages").fetchone()[0]
    term = conversation_term(found.id) if last - found.next_seq > FEW_OTHERS else ""
    return _Scope(condition="m.conversation = ?", value=found.id, term=term)


def _best(connection: Connection, match: Match, scope: _Scope, limit: int) -> tuple[list[tuple[int, float]], bool]:
    """Score the newest hits, and return the best that pass the filter; and whether there were more than the newest."""
    wheres, values = _conditions(match.filter, scope)
    newest = "SELECT rowid FROM search WHERE search MATCH ? AND rowid <= ? ORDER BY rowid DESC LIMIT ?"
    narrowed = scope.narrowed(match.text)
    hits = connection.execute(
        "SELECT h.id, h.score FROM (SELECT rowid AS id, -bm25(search) AS score FROM search WHERE search MATCH ?"
        f" AND +rowid IN ({newest})) h CROSS JOIN messages m ON m.id = h.id WHERE {wheres}"
        " ORDER BY h.score DESC, h.id DESC LIMIT ?",
        (match.text, narrowed, match.last, SCORED, *values, limit),
    ).fetchall()
    beyond = connection.execute(f"{newest} OFFSET ?", (narrowed, match.last, 1, SCORED)).fetchone()
    return hits, beyond is not None


def _newest(connection: Connection, match: Match, scope: _Scope, limit: int) -> tuple[list[tuple[int, float]], bool]:
    """Walk the hits, newest first, until enough of them pass the filter; tell whether it was given up before."""
    wheres, values = _conditions(match.filter, scope)
    rows = connection.execute(
        f"SELECT m.id, {wheres} FROM search CROSS JOIN messages m ON m.id = search.rowid"
        " WHERE search MATCH ? AND search.rowid <= ? ORDER BY search.rowid DESC",
        (*values, scope.narrowed(match.text), match.last),
    )
    found: list[tuple[int, float]] = []
    for looked_at, (number, passes) in enumerate(rows):
        if looked_at == SCANNED:
            return found, True
        if passes:
            found.append((number, 0.0))
            if len(found) == limit:
                break
    return found, False


def _conditions(filter: SearchFilter, scope: _Scope) -> tuple[str, list[Any]]:  # noqa: A002 - its name
    conditions: list[tuple[str, Any]] = [(scope.condition, scope.value)]
    if not filter.superseded:
        conditions.append(("m.gone IS ?", None))
    if filter.role is not None:
        conditions.append(("m.role = ?", column_text(filter.role)))
    if filter.name is not None:
        conditions.append(("m.name = ? COLLATE NOCASE", column_text(filter.name)))
    if filter.tool is not None:
        conditions.append(("instr(' ' || m.tool || ' ', ' ' || ? || ' ')", column_text(filter.tool)))
    if filter.since is not None:
        conditions.append(("m.time >= ?", filter.since))
    if filter.until is not None:
        conditions.append(("m.time <= ?", filter.until))
    conditions += [("m.id <> ?", number_of(id_, "m") or 0) for id_ in filter.without]
    return " AND ".join(text for text, _ in conditions), [value for _, value in conditions]
