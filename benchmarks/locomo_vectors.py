"""What vectors of a sentence encoder would add to a question's ranking, on the LoCoMo conversations.

    python -m benchmarks.locomo_vectors --data PATH --encoder FOLDER

FOLDER holds a model for `sentence-transformers`, which has to be installed; nothing is downloaded. The search itself
uses no vectors. Here its hits of every question are ranked again, by the likeness of question and message and by both,
each in units of its standard deviation; the weight of the likeness is chosen on all conversations but one and reported
on that one. Vectors are worth their price from 1.5 points on. The price is printed beside: processor time for a
message, which a search that ranks 300 hits within 50 ms can only pay when the message is stored.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.locomo import Conversation, Tally, Turn, added, best_of_others, conversations, measured
from leporello.store import SearchFilter, open_store
from leporello.store.search.answer import Asked, answered
from leporello.store.search.query import parse
from leporello.store.search.rank import Ranked, in_turns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WEIGHTS = (0.0, 0.25, 0.5, 1.0, 2.0)
WORTH = 0.015


@dataclass(frozen=True, kw_only=True)
class Talk:
    """A conversation with the hits of its questions, and how like each question each turn is.

    `seconds` is the processor time of the encoder.
    """

    conversation: Conversation
    turns: dict[str, Turn]
    hits: dict[str, list[Ranked]]
    likeness: dict[str, dict[str, float]]
    seconds: float

    def find(self, lexical: float, vectors: float) -> Callable[[str], list[Turn]]:
        """Return a search that ranks by words and vectors, of these weights."""

        def ranked(question: str) -> list[Turn]:
            hits, likeness = self.hits[question], self.likeness[question]
            words = _standardised([hit.score for hit in hits])
            alike = _standardised([likeness[hit.candidate.id] for hit in hits])
            scores = [lexical * word + vectors * like for word, like in zip(words, alike, strict=True)]
            found = [replace(hit, score=score) for hit, score in zip(hits, scores, strict=True)]
            ordered = in_turns(sorted(found, key=lambda hit: -hit.score))
            return [self.turns[hit.candidate.id] for hit in ordered]

        return ranked


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a file or folder with locomo*.json")
    parser.add_argument("--encoder", type=Path, help="a folder with a sentence encoder")
    arguments = parser.parse_args(argv)
    if arguments.encoder is None:
        print("needs --encoder")
        return 0
    encoder = import_module("sentence_transformers").SentenceTransformer(str(arguments.encoder), local_files_only=True)
    talks = [talk(conversation, encoder) for conversation in conversations(arguments.data)]
    spent = sum(one.seconds for one in talks) / sum(len(one.turns) + len(one.hits) for one in talks)
    by_weight = {weight: [tally(one, 1.0, weight) for one in talks] for weight in WEIGHTS}
    rows = {
        "words alone": added(*by_weight[0.0]),
        "vectors alone": added(*(tally(one, 0.0, 1.0) for one in talks)),
        "both, the weight left out": added(*best_of_others(by_weight)),
        **{f"both, weight {weight}": added(*by_weight[weight]) for weight in WEIGHTS[1:]},
    }
    print("| ranking | a gold turn in 10 | gold sessions in 10 |\n|---|---|---|")
    for name, found in rows.items():
        turns, sessions, _ = found.row()
        print(f"| {name} | {turns:.3f} | {sessions:.3f} |")
    gain = rows["both, the weight left out"].row()[0] - rows["words alone"].row()[0]
    told = "worth building" if gain >= WORTH else "not worth their price"
    print(f"\n{1000 * spent:.0f} ms of processor time for a message. Vectors are {told}: {100 * gain:+.1f} points.")
    return 0


def talk(conversation: Conversation, encoder: Any) -> Talk:
    """Store a conversation, search for all of its questions, and compare them with all of its turns."""
    store = open_store(":memory:")
    store.ensure(conversation.name)
    ids = store.append(conversation.name, [turn.message for turn in conversation.turns])
    newest, scope = store.term_counts([])[0], SearchFilter(conversation=conversation.name)
    questions = [question.text for question in conversation.questions]
    said = [f"{turn.message.get('name')}: {turn.message.get('content')}" for turn in conversation.turns]
    started = time.process_time()
    asked, turns = (encoder.encode(texts, normalize_embeddings=True) for texts in (questions, said))
    seconds = time.process_time() - started
    likeness = (asked @ turns.T).tolist()
    return Talk(
        conversation=conversation,
        turns=dict(zip(ids, conversation.turns, strict=True)),
        hits={
            text: answered(Asked(store=store, query=parse(text), filter=scope, newest=newest)).hits
            for text in questions
        },
        likeness={text: dict(zip(ids, row, strict=True)) for text, row in zip(questions, likeness, strict=True)},
        seconds=seconds,
    )


def tally(one: Talk, lexical: float, vectors: float) -> Tally:
    """Ask all questions of a conversation."""
    return measured(one.conversation, one.find(lexical, vectors))


def _standardised(values: Sequence[float]) -> list[float]:
    mean = sum(values) / max(1, len(values))
    spread = (sum((value - mean) ** 2 for value in values) / max(1, len(values))) ** 0.5 or 1.0
    return [(value - mean) / spread for value in values]


if __name__ == "__main__":
    raise SystemExit(main())
