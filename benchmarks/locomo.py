"""How often a search finds what answers a question, on the LoCoMo conversations (evaluation data, never copied).

    python -m benchmarks.locomo --data PATH [--json FILE]

PATH is a file or a folder with `locomo*.json`. Every conversation is stored turn by turn; every question of categories
1 to 4 that has evidence is searched for as it is asked. Reported per conversation and in total:

- turns: the share of questions with a gold turn among the first 10 hits (bar 0.80);
- sessions: the share of gold sessions among the first 10 distinct sessions of the hits (bar 0.95).

The baselines of the same run are one plain FTS5 table (unicode61, all words of the question joined by OR), and one with
stemming and without stop words. The last rows ask the same through `lcm_grep`, after the conversation was folded by
the lossless engine. With --captions the text of a turn that shares a picture ends with the picture's caption, as in the
data set's own evaluation. The bars are for what was said, so these figures have none.

With --leave-one-out the weights of the ranking are chosen on all conversations but one and reported on that one, each
in its turn: what carries over to a conversation that nobody looked at. The bars there are 0.88 and 0.96.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sqlite3
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leporello import LCMEngine
from leporello.store import SearchFilter, open_store
from leporello.store.search import rank, search
from leporello.store.search.answer import Asked, answered
from leporello.store.search.query import Query, parse
from leporello.store.search.words import STOP_WORDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leporello.messages import Message
    from leporello.store.records import Candidate

TURN_BAR, SESSION_BAR = 0.80, 0.95
STORED, FOLDED = "leporello", "leporello, folded, lcm_grep"
LEFT_OUT_BARS = 0.88, 0.96
GRID = tuple(product((0.5, 1.0, 1.5), (0.5, 1.0), (1.0, 2.0, 3.0)))
"""Weights of the neighbours, of the sitting, and of a speaker or date that the question names."""
_HITS, _SESSIONS, _DEPTH = 10, 10, 200
_WINDOW = 16_000  # tokens; every conversation is longer
_CATEGORIES = {1, 2, 3, 4}
_TURN = re.compile(r"D\d+:\d+")


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One turn of a conversation; `id` is the name by which the evidence refers to it."""

    id: str
    session: int
    message: Message


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question and the turns that answer it."""

    text: str
    gold: frozenset[str]
    category: int


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """A conversation with its questions."""

    name: str
    turns: tuple[Turn, ...]
    questions: tuple[Question, ...]


@dataclass(kw_only=True)
class Tally:
    """What a method found in a conversation."""

    turns: list[bool] = field(default_factory=list)
    sessions: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def row(self) -> tuple[float, float, float]:
        """Return the share of turns and of sessions, and the median milliseconds of a search."""
        count = max(1, len(self.turns))
        middle = sorted(self.seconds)[len(self.seconds) // 2] * 1000 if self.seconds else 0.0
        return sum(self.turns) / count, sum(self.sessions) / count, middle


def conversations(path: Path, *, captions: bool = False) -> Iterator[Conversation]:
    """Read the conversations of a file, or of the files of a folder; with the captions of pictures, if so asked."""
    files = sorted(path.rglob("locomo*.json")) if path.is_dir() else [path]
    for file in files:
        for raw in json.loads(file.read_text(encoding="utf-8")):
            turns = tuple(_turns(raw["conversation"], captions=captions))
            questions = tuple(_questions(raw["qa"], {turn.id for turn in turns}))
            yield Conversation(name=raw["sample_id"], turns=turns, questions=questions)


def _turns(raw: dict[str, Any], *, captions: bool) -> Iterator[Turn]:
    first = raw["speaker_a"]
    sessions = sorted(int(key.removeprefix("session_")) for key in raw if re.fullmatch(r"session_\d+", key))
    for session in sessions:
        start = datetime.strptime(raw[f"session_{session}_date_time"], "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
        for index, turn in enumerate(raw[f"session_{session}"]):
            caption = turn.get("blip_caption") if captions else None
            message: Message = {
                "role": "user" if turn["speaker"] == first else "assistant",
                "name": turn["speaker"],
                "content": f"{turn['text']}\n{caption}" if caption else turn["text"],
                "timestamp": (start + timedelta(seconds=index)).isoformat(),
            }
            yield Turn(id=turn["dia_id"], session=session, message=message)


def _questions(raw: list[dict[str, Any]], known: set[str]) -> Iterator[Question]:
    for entry in raw:
        gold = frozenset(turn for text in entry.get("evidence", ()) for turn in _TURN.findall(text)) & known
        if entry["category"] in _CATEGORIES and gold:
            yield Question(text=entry["question"], gold=gold, category=entry["category"])


def stored(conversation: Conversation) -> Callable[[str], list[Turn]]:
    """Search the conversation in a store of its own."""
    store = open_store(":memory:")
    store.ensure(conversation.name)
    ids = store.append(conversation.name, [turn.message for turn in conversation.turns])
    by_id = dict(zip(ids, conversation.turns, strict=True))
    scope = SearchFilter(conversation=conversation.name)

    def find(question: str) -> list[Turn]:
        return [by_id[hit.id] for hit in search(store, question, filter=scope, limit=_DEPTH).hits]

    return find


def read_once(conversation: Conversation) -> Callable[[str], list[Turn]]:
    """Search as `stored` does; the candidates of a question are read once and ranked anew every time."""
    store = open_store(":memory:")
    store.ensure(conversation.name)
    ids = store.append(conversation.name, [turn.message for turn in conversation.turns])
    by_id = dict(zip(ids, conversation.turns, strict=True))
    newest, scope = store.term_counts([])[0], SearchFilter(conversation=conversation.name)
    known: dict[str, tuple[Query, list[Candidate], rank.Statistics]] = {}

    def find(question: str) -> list[Turn]:
        if question not in known:
            query = parse(question)
            words = [part for unit in query.content for part in unit.split(" ")]
            messages, counts = store.term_counts(words, newest=newest)
            hits = answered(Asked(store=store, query=query, filter=scope, newest=newest)).hits
            statistics = rank.Statistics(messages=messages, counts=counts)
            known[question] = query, [hit.candidate for hit in hits], statistics
        query, candidates, statistics = known[question]
        return [by_id[hit.candidate.id] for hit in rank.ranked(query, candidates, statistics, question=True)][:_DEPTH]

    return find


def plain(conversation: Conversation, *, tokenizer: str, stop_words: frozenset[str]) -> Callable[[str], list[Turn]]:
    """Search the conversation in a bare FTS5 table, by its own BM25."""
    connection = sqlite3.connect(":memory:")
    connection.execute(f"CREATE VIRTUAL TABLE bare USING fts5(text, tokenize='{tokenizer}')")
    connection.executemany(
        "INSERT INTO bare (rowid, text) VALUES (?, ?)",
        [(number, turn.message["content"]) for number, turn in enumerate(conversation.turns)],
    )

    def find(question: str) -> list[Turn]:
        words = [word for word in re.findall(r"\w+", question.lower()) if word not in stop_words]
        match = " OR ".join(f'"{word}"' for word in words)
        rows = connection.execute("SELECT rowid FROM bare WHERE bare MATCH ? ORDER BY rank LIMIT ?", (match, _DEPTH))
        return [conversation.turns[row[0]] for row in rows] if match else []

    return find


def folded(conversation: Conversation) -> Callable[[str], list[Turn]]:
    """Fold the conversation with the lossless engine, and search it with its tool."""
    engine = LCMEngine(context_length=_WINDOW, store=":memory:")
    engine.on_session_start(conversation.name)
    engine.compress([turn.message for turn in conversation.turns])
    ids = [stored.id for stored in engine.store.messages(engine.conversation)]
    by_id = dict(zip(ids, conversation.turns, strict=True))

    def find(question: str) -> list[Turn]:
        found: list[Turn] = []
        arguments: dict[str, Any] = {"query": question, "limit": _DEPTH}
        while not _enough(found) and arguments.get("cursor") != "":
            answer = json.loads(engine.handle_tool_call("lcm_grep", arguments))
            found += [by_id[result["id"]] for result in answer["results"]]
            arguments["cursor"] = answer["cursor"] or ""
        return found

    return find


def _enough(found: list[Turn]) -> bool:
    """Tell whether everything that is measured is there, or as much as is looked at."""
    return len(found) >= _DEPTH or (len(found) >= _HITS and len({turn.session for turn in found}) >= _SESSIONS)


METHODS: dict[str, Callable[[Conversation], Callable[[str], list[Turn]]]] = {
    "plain FTS5": lambda c: plain(c, tokenizer="unicode61", stop_words=frozenset()),
    "FTS5, stems, no stop words": lambda c: plain(c, tokenizer="porter unicode61", stop_words=STOP_WORDS),
    STORED: stored,
    FOLDED: folded,
}


def measured(conversation: Conversation, find: Callable[[str], list[Turn]]) -> Tally:
    """Ask all questions of a conversation."""
    session_of = {turn.id: turn.session for turn in conversation.turns}
    tally = Tally()
    for question in conversation.questions:
        start = time.perf_counter()
        found = find(question.text)
        tally.seconds.append(time.perf_counter() - start)
        tally.turns.append(any(turn.id in question.gold for turn in found[:_HITS]))
        gold = {session_of[turn] for turn in question.gold}
        first = set(list(dict.fromkeys(turn.session for turn in found))[:_SESSIONS])
        tally.sessions.append(len(gold & first) / len(gold))
    return tally


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a file or folder with locomo*.json")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--leave-one-out", action="store_true", help="choose the weights on the other conversations")
    parser.add_argument("--captions", action="store_true", help="with the captions of shared pictures")
    arguments = parser.parse_args(argv)
    talks = list(conversations(arguments.data, captions=arguments.captions))
    if arguments.leave_one_out:
        return left_out(talks)
    methods = {name: make for name, make in METHODS.items() if not (arguments.captions and name == FOLDED)}
    tallies: dict[str, dict[str, Tally]] = {method: {} for method in methods}
    for conversation in talks:
        for method, make in methods.items():
            tallies[method][conversation.name] = measured(conversation, make(conversation))
    figures = {method: _figures(by_name) for method, by_name in tallies.items()}
    _print(figures, bars=not arguments.captions)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2), encoding="utf-8")
    if arguments.captions:
        return 0
    ours = [figures[method]["total"] for method in (STORED, FOLDED)]
    return 0 if all(turns >= TURN_BAR and sessions >= SESSION_BAR for turns, sessions, _ in ours) else 1


def left_out(talks: list[Conversation]) -> int:
    """Print what each conversation gets with the weights that are best for the others; tell if the bars are met."""
    with ProcessPoolExecutor(os.cpu_count() or 1, mp_context=get_context("spawn")) as pool:
        by_talk = list(pool.map(with_all_weights, talks))
    found = best_of_others({weights: [tallies[weights] for tallies in by_talk] for weights in GRID})
    print(f"{'conversation':14} {'turns':>7} {'sessions':>9}")
    for name, tally in [*zip((talk.name for talk in talks), found, strict=True), ("total", added(*found))]:
        print(f"{name:14} {tally.row()[0]:7.3f} {tally.row()[1]:9.3f}")
    print(f"{'bar':14} {LEFT_OUT_BARS[0]:7.3f} {LEFT_OUT_BARS[1]:9.3f}")
    turns, sessions, _ = added(*found).row()
    return 0 if turns >= LEFT_OUT_BARS[0] and sessions >= LEFT_OUT_BARS[1] else 1


def with_all_weights(talk: Conversation) -> dict[tuple[float, float, float], Tally]:
    """Ask all questions of a conversation with every choice of weights; what depends on none is worked out once."""
    find, read = read_once(talk), rank._read  # noqa: SLF001 - the ranking has no need of a memory
    vars(rank).update(_read=cache(read))
    try:
        return {weights: weighed(talk, find, weights) for weights in GRID}
    finally:
        vars(rank).update(_read=read)


def best_of_others(tallies: dict[Any, list[Tally]]) -> list[Tally]:
    """Return what each conversation has with the weights that are best for the others; `tallies` are by weights."""
    found = []
    for talk in range(len(next(iter(tallies.values())))):
        best = max(tallies.values(), key=lambda by_talk: worth(by_talk[:talk] + by_talk[talk + 1 :]))
        found.append(best[talk])
    return found


def weighed(talk: Conversation, find: Callable[[str], list[Turn]], weights: tuple[float, float, float]) -> Tally:
    """Ask all questions of a conversation with other weights of the ranking."""
    before = (dict(rank.CIRCLES), rank.SITTING, rank.SPEAKER)
    circle, sitting, named = weights
    _weigh({1: circle, 3: circle}, sitting, named)
    try:
        return measured(talk, find)
    finally:
        _weigh(*before)


def _weigh(circles: dict[int, float], sitting: float, named: float) -> None:
    rank.CIRCLES.update(circles)
    vars(rank).update(SITTING=sitting, SPEAKER=named, DATE=named)


def worth(tallies: list[Tally]) -> float:
    """Return the sum of both shares, by which weights are chosen."""
    turns, sessions, _ = added(*tallies).row()
    return turns + sessions


def added(*tallies: Tally) -> Tally:
    """Return what was found in several conversations together."""
    total = Tally()
    for tally in tallies:
        total.turns += tally.turns
        total.sessions += tally.sessions
        total.seconds += tally.seconds
    return total


def _figures(by_name: dict[str, Tally]) -> dict[str, tuple[float, float, float]]:
    total = added(*by_name.values())
    return {**{name: tally.row() for name, tally in by_name.items()}, "total": total.row()}


def _print(figures: dict[str, dict[str, tuple[float, float, float]]], *, bars: bool) -> None:
    print(f"{'method':28} {'conversation':14} {'turns':>7} {'sessions':>9} {'ms':>6}")
    for method, rows in figures.items():
        for name, (turns, sessions, middle) in rows.items():
            print(f"{method:28} {name:14} {turns:7.3f} {sessions:9.3f} {middle:6.1f}")
    if bars:
        print(f"{'bar':28} {'total':14} {TURN_BAR:7.3f} {SESSION_BAR:9.3f}")


if __name__ == "__main__":
    raise SystemExit(main())
