"""How often a search finds what answers a question, in English and in Chinese, on MemoryBank's dialogues.

    python -m benchmarks.memorybank --data PATH

PATH is a folder with MemoryBank's files (evaluation data, never copied): 15 people talk with a companion on ten days,
and ask about it later, in both languages. The set has no evidence, so it was noted by reading, before any search was
tried: `memorybank_gold.json` names, for every question, the days and turns that answer it. All dialogues of a language
are in one store, as those of an operator are, and every question is asked of its person's dialogue, without the
quotation marks that some have around them.

Reported per language: the share of questions with a message that answers among the first 1, 3 and 10 hits. The baseline
of the same run is one plain FTS5 table, all words of the question joined by OR; for Chinese with trigrams, as its words
are written without spaces.
"""

from __future__ import annotations

import argparse
import json
import re
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leporello.store import SearchFilter, open_store
from leporello.store.search import search

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leporello.messages import Message

LANGUAGES = {"en": "English", "cn": "Chinese"}
FIRST = (1, 3, 10)
GOLD = Path(__file__).with_name("memorybank_gold.json")
_SIDES = {"q": ("user",), "r": ("assistant",), "qr": ("user", "assistant")}
_ROLE = {"query": "user", "response": "assistant"}


@dataclass(frozen=True, kw_only=True)
class Turn:
    """A message of a dialogue, and where it stands: the day, the number of the exchange, who speaks."""

    place: tuple[str, int, str]
    message: Message


@dataclass(frozen=True, kw_only=True)
class Dialogue:
    """What a person and the companion said, the questions, and where the answers stand."""

    person: str
    turns: tuple[Turn, ...]
    questions: tuple[tuple[str, frozenset[tuple[str, int, str]]], ...]


def dialogues(data: Path, language: str, gold: dict[str, Any]) -> Iterator[Dialogue]:
    """Read the dialogues of a language."""
    history = json.loads((data / f"eval_data_{language}_memory_bank_{language}.json").read_text("utf-8"))
    history = {name.strip(): one["history"] for name, one in history.items()}
    lines = (data / f"eval_data_{language}_probing_questions_{language}.jsonl").read_text("utf-8").splitlines()
    for number, line in enumerate(filter(None, lines), start=1):
        ((name, asked),) = json.loads(line).items()
        turns = tuple(
            Turn(place=(day, index, _ROLE[key]), message={"role": _ROLE[key], "content": one[key], "timestamp": day})
            for day, exchanges in sorted(history[name.strip()].items())
            for index, one in enumerate(exchanges)
            for key in ("query", "response")
        )
        places = [
            frozenset((day, index, role) for day, index, side in each for role in _SIDES[side])
            for each in gold[str(number)]
        ]
        yield Dialogue(
            person=name.strip(),
            turns=turns,
            questions=tuple(zip((text.strip('"') for text in asked), places, strict=True)),
        )


def stored(talks: list[Dialogue]) -> Callable[[Dialogue, str], list[Turn]]:
    """Search in one store with all dialogues."""
    store = open_store(":memory:")
    by_id: dict[str, Turn] = {}
    for talk in talks:
        store.ensure(talk.person)
        ids = store.append(talk.person, [turn.message for turn in talk.turns])
        by_id.update(zip(ids, talk.turns, strict=True))

    def find(talk: Dialogue, question: str) -> list[Turn]:
        hits = search(store, question, filter=SearchFilter(conversation=talk.person), limit=FIRST[-1]).hits
        return [by_id[hit.id] for hit in hits]

    return find


def plain(talks: list[Dialogue], tokenizer: str) -> Callable[[Dialogue, str], list[Turn]]:
    """Search in bare FTS5 tables, by their own BM25."""
    connection = sqlite3.connect(":memory:")
    connection.execute(f"CREATE VIRTUAL TABLE bare USING fts5(person UNINDEXED, text, tokenize='{tokenizer}')")
    every = [(talk.person, turn) for talk in talks for turn in talk.turns]
    rows = [(number, person, turn.message["content"]) for number, (person, turn) in enumerate(every)]
    connection.executemany("INSERT INTO bare (rowid, person, text) VALUES (?, ?, ?)", rows)

    def find(talk: Dialogue, question: str) -> list[Turn]:
        words = re.findall(r"\w+", question.lower())
        if tokenizer == "trigram":
            words = [word[start : start + 3] for word in words for start in range(len(word) - 2)]
        match = " OR ".join(f'"{word}"' for word in words)
        query = "SELECT rowid FROM bare WHERE bare MATCH ? AND person = ? ORDER BY rank LIMIT ?"
        found = connection.execute(query, (match, talk.person, FIRST[-1])) if match else ()
        return [every[row[0]][1] for row in found]

    return find


def recall(talks: list[Dialogue], find: Callable[[Dialogue, str], list[Turn]]) -> tuple[int, list[float]]:
    """Return how many questions have an answer, and the share of them that is found among the first hits."""
    ranks = []
    for talk in talks:
        for question, gold in talk.questions:
            if gold:
                found = [turn.place in gold for turn in find(talk, question)]
                ranks.append(found.index(True) if True in found else FIRST[-1])
    return len(ranks), [sum(rank < first for rank in ranks) / max(1, len(ranks)) for first in FIRST]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a folder with MemoryBank's files")
    options = parser.parse_args(argv)
    gold = json.loads(GOLD.read_text("utf-8"))
    print(f"{'language':10} {'method':20} {'questions':>9} {'first':>7} {'in 3':>7} {'in 10':>7}")
    ahead = True
    for language, name in LANGUAGES.items():
        talks = list(dialogues(options.data, language, gold[language]))
        bare = plain(talks, "trigram" if language == "cn" else "unicode61")
        shares = {}
        for method, find in (("plain FTS5", bare), ("leporello", stored(talks))):
            count, shares[method] = recall(talks, find)
            print(f"{name:10} {method:20} {count:9} " + " ".join(f"{share:7.2f}" for share in shares[method]))
        ahead = ahead and shares["leporello"][-1] >= shares["plain FTS5"][-1]
    return 0 if ahead else 1


if __name__ == "__main__":
    raise SystemExit(main())
