"""How fast a search is, and whether it finds every kind of text, in a long agent conversation.

    python -m benchmarks.search [--messages N] [--million] [--keep FILE]

Every kind of query is run many times; p50 and p95 are milliseconds of wall time, with the p95 of CPU time (for a
machine that is busy with other things) and the p50 of a bare FTS5 table of the same terms in the same run (newest first
for exact queries, `ORDER BY rank` for questions; no filters, no text, no snippets). Then ten kinds of needle are
searched for, thirty of each; a needle is found when it is among the first 10. At last common words are searched for
newest first, and the newest message that has them must be the first hit.

A file that is kept holds the store, one beside it the bare table; both are used again when they are there.
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.search_corpus import COMMON_WORD, NEEDLES_PER_KIND, SECOND_COMMON_WORD, corpus, needles
from leporello.store import SearchFilter, open_store
from leporello.store.search import FTS_DDL, parse, plain_text, prepared_text, search

if TYPE_CHECKING:
    from collections.abc import Callable

    from leporello.store import Store

CONVERSATION = "long"
EXACT_BAR, QUESTION_BAR = 10.0, 50.0
MILLION_EXACT_BAR, MILLION_QUESTION_BAR = 50.0, 200.0
_MILLION = 1_000_000
_BATCH = 1_000
_ROUNDS = 60

QUERIES: dict[str, tuple[str, ...]] = {
    "rare word": tuple(n.query for n in needles(1_000) if n.kind == "word"),
    "identifier": tuple(n.query for n in needles(1_000) if n.kind == "identifier"),
    "common word": ("deployment",),
    "two common words": ("deployment database", "database deployment"),
    "phrase": ('"mind the database"', '"the slow cache"', '"every invoice when"'),
    "stop word": ("the", "is", "when"),
    "hyphenated id": tuple(n.query for n in needles(1_000) if n.kind == "hyphenated id"),
    "path": tuple(n.query for n in needles(1_000) if n.kind == "path"),
    "CJK": ("服务器", "配置文件", "我"),
    "miss": ("nowheretobefound", "svc-99999-prod-eu", "src/nowhere/to_be_found.py"),
    "phrase, miss": ('"database deployment"', '"mind the deployment"'),
    "filter": ("deployment role:user", "deployment tool:read_file", "database since:2020-01-01"),
    "filter, miss": ("deployment tool:nowhere", "when until:2020-01-01"),
    "question": (
        "What did we say about the stale warehouse invoice?",
        "Which certificate was broken in the gateway?",
        "When does the duplicate coupon restart the shipping worker?",
        "What is the deployment of the database?",
    ),
}

VERY_COMMON: dict[str, tuple[str, ...]] = {
    "question of very common words": ("What is the deployment when every database is slow?", "Why is every the when?"),
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """The times of a kind of query, in milliseconds."""

    kind: str
    p50: float
    p95: float
    cpu: float
    bare: float
    bar: float


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--million", action="store_true", help="a million messages (several minutes to build)")
    parser.add_argument("--keep", type=Path, help="keep the store in this file, or use the one that is there")
    arguments = parser.parse_args(argv)
    count = _MILLION if arguments.million else arguments.messages
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.keep or Path(folder) / "search.db"
        store = filled(path, count)
        bare = bare_index(path.with_name(f"{path.stem}-bare.db"), count)
        rows = [timed(kind, store, bare, count) for kind in QUERIES]
        _print_times(rows, count)
        found = found_needles(store, count)
        _print_needles(found)
        recent = {word: newest_is_first(store, word) for word in (COMMON_WORD, SECOND_COMMON_WORD)}
        print(f"\nnewest first: {recent}")
        store.close()
        bare.close()
    fast = all(row.p95 <= row.bar for row in rows)
    whole = all(number == NEEDLES_PER_KIND for number in found.values()) and all(recent.values())
    return 0 if fast and whole else 1


def filled(path: Path, count: int) -> Store:
    """Open the store in a file; when there is none, make it from the corpus."""
    new = not path.exists()
    store = open_store(path)
    if new:
        store.ensure(CONVERSATION)
        messages = (message for message, _ in corpus(count))
        while batch := list(islice(messages, _BATCH)):
            store.append(CONVERSATION, batch)
    return store


def bare_index(path: Path, count: int) -> sqlite3.Connection:
    """Open a table of the same terms and nothing else; when there is none, make it."""
    new = not path.exists()
    connection = sqlite3.connect(path)
    if new:
        connection.execute(FTS_DDL)
        connection.executemany(
            "INSERT INTO search (rowid, text) VALUES (?, ?)",
            ((number, prepared_text(message)) for number, (message, _) in enumerate(corpus(count), start=1)),
        )
        connection.commit()
    return connection


def timed(kind: str, store: Store, bare: sqlite3.Connection, count: int) -> Row:
    """Time a kind of query, and the bare table on the same queries."""
    texts = QUERIES[kind]
    scope = SearchFilter(conversation=CONVERSATION)
    question = kind == "question"
    order = "rank" if question else "rowid DESC"
    statement = f"SELECT rowid FROM search WHERE search MATCH ? ORDER BY {order} LIMIT 10"  # noqa: S608 - a constant
    matches = [parse(text).match_natural() if question else parse(text).match_exact() for text in texts]
    ours, busy = _milliseconds(lambda n: search(store, texts[n % len(texts)], filter=scope))
    theirs, _ = _milliseconds(lambda n: bare.execute(statement, (matches[n % len(matches)],)).fetchall())
    large = count >= _MILLION
    exact_bar, question_bar = (MILLION_EXACT_BAR, MILLION_QUESTION_BAR) if large else (EXACT_BAR, QUESTION_BAR)
    return Row(
        kind=kind,
        p50=ours[len(ours) // 2],
        p95=ours[int(len(ours) * 0.95)],
        cpu=busy[int(len(busy) * 0.95)],
        bare=theirs[len(theirs) // 2],
        bar=question_bar if question else exact_bar,
    )


def _milliseconds(run: Callable[[int], object]) -> tuple[list[float], list[float]]:
    """Return sorted wall and CPU times."""
    run(0)
    wall, cpu = [], []
    for number in range(_ROUNDS):
        start, busy = time.perf_counter(), time.process_time()
        run(number)
        wall.append((time.perf_counter() - start) * 1000)
        cpu.append((time.process_time() - busy) * 1000)
    return sorted(wall), sorted(cpu)


def found_needles(store: Store, count: int) -> Counter[str]:
    """Search for every needle, and count those that are among the first ten hits."""
    found: Counter[str] = Counter()
    for needle in needles(count):
        hits = search(store, needle.query, filter=SearchFilter(conversation=CONVERSATION)).hits
        found[needle.kind] += any(needle.query in hit.snippet for hit in hits)
    return found


def newest_is_first(store: Store, word: str) -> bool:
    """Tell whether the newest message with a word is the first hit when newest first is asked for."""
    scope = SearchFilter(conversation=CONVERSATION)
    newest = next(
        stored.id for stored in store.messages(CONVERSATION, newest_first=True) if word in plain_text(stored.message)
    )
    return search(store, word, filter=scope, sort="recency").hits[0].id == newest


def _print_times(rows: list[Row], count: int) -> None:
    print(f"{count:,} messages, milliseconds\n")
    print(f"{'kind':18} {'p50':>8} {'p95':>8} {'p95 CPU':>8} {'bar':>6} {'bare FTS5':>10} {'ratio':>7}")
    for row in rows:
        mark = "" if row.p95 <= row.bar else "  over"
        times = f"{row.p50:8.2f} {row.p95:8.2f} {row.cpu:8.2f} {row.bar:6.0f} {row.bare:10.2f}"
        print(f"{row.kind:18} {times} {row.p50 / max(row.bare, 0.001):7.1f}{mark}")


def _print_needles(found: Counter[str]) -> None:
    print(f"\n{'kind of needle':20} found among the first 10, of {NEEDLES_PER_KIND}")
    for kind, number in found.items():
        print(f"{kind:20} {number}")


if __name__ == "__main__":
    raise SystemExit(main())
