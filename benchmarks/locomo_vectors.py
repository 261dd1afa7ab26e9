"""What a sentence encoder would add to a question's ranking, on the LoCoMo conversations.

    python -m benchmarks.locomo_vectors --data PATH --encoder FOLDER [--windows]

FOLDER holds a model for `sentence-transformers`, which has to be installed, with torch; nothing is downloaded. The
search itself uses no vectors. Here every message is encoded with its speaker, with --windows also together with the
message before it and with two on either side, and compared with every question. What is ranked are the hits of the
search and the 50 messages that are nearest by meaning.

Two ways of using the likeness are shown. "Both" adds it to the score of the words, each in units of its standard
deviation, with a weight. "Learned" weighs about ten figures by logistic regression: the score and the rank by words,
how like the question the message, its neighbours, its windows and the best of its session are. Weights are chosen on
all conversations but one and reported on that one. So that it is seen what the vectors bring and not the learning, the
same is learned from the words alone.

Vectors are worth their price from 1.5 points on. The price is printed beside: processor time for a message, which
is paid when it is stored, and for a question, which is paid when it is asked.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from benchmarks.linear_ranker import Example, learned, scores
from benchmarks.locomo import Conversation, Tally, Turn, added, best_of_others, conversations, measured
from leporello.store import SearchFilter, open_store
from leporello.store.search.answer import Asked, answered
from leporello.store.search.query import parse
from leporello.store.search.rank import Ranked, in_turns
from leporello.store.search.scan import as_candidate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from leporello.store.records import Candidate

WEIGHTS = (0.0, 0.25, 0.5, 1.0, 2.0)
WORTH = 1.5  # points
NEAREST = 50
"""Messages that are ranked because they are near by meaning, whatever words they have."""
WINDOWS = {"pair": (1, 0), "five": (2, 2)}
"""Messages before and behind one that are encoded together with it."""
_DRAWS = 1_000
_TOP = 10.0  # added to a rank before it is inverted, so that the first few are not everything


@dataclass(kw_only=True)
class Talk:
    """A conversation, and for every question the messages that are ranked, with their figures.

    `words` and `vectors` are the figures of each of these messages; `seconds` is the processor time of the encoder for
    all messages, and for all questions.
    """

    conversation: Conversation
    turns: dict[str, Turn]
    ranked: dict[str, list[Candidate]] = field(default_factory=dict)
    words: dict[str, list[list[float]]] = field(default_factory=dict)
    vectors: dict[str, list[list[float]]] = field(default_factory=dict)
    seconds: tuple[float, float] = (0.0, 0.0)

    def find(self, score: Callable[[str], Sequence[float]]) -> Callable[[str], list[Turn]]:
        """Return a search that orders the ranked messages of a question by these scores."""

        def found(question: str) -> list[Turn]:
            hits = [
                Ranked(candidate=each, score=worth, sitting=self.turns[each.id].session)
                for each, worth in zip(self.ranked[question], score(question), strict=True)
            ]
            return [self.turns[hit.candidate.id] for hit in in_turns(sorted(hits, key=lambda hit: -hit.score))]

        return found

    def blended(self, words: float, vectors: float) -> Callable[[str], list[Turn]]:
        """Return a search that ranks by the scores of words and vectors, of these weights."""
        return self.find(
            lambda question: [
                words * word[0] + vectors * vector[0]
                for word, vector in zip(self.words[question], self.vectors[question], strict=True)
            ]
        )

    def rows(self, question: str, *, vectors: bool) -> list[list[float]]:
        """Return the figures of every message that is ranked for a question."""
        words = self.words[question]
        return [[*one, *other] for one, other in zip(words, self.vectors[question], strict=True)] if vectors else words

    def examples(self, *, vectors: bool) -> list[Example]:
        """Return what can be learned from this conversation."""
        return [
            Example(
                rows=self.rows(question.text, vectors=vectors),
                right=[
                    at for at, each in enumerate(self.ranked[question.text]) if self.turns[each.id].id in question.gold
                ],
            )
            for question in self.conversation.questions
        ]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a file or folder with locomo*.json")
    parser.add_argument("--encoder", type=Path, help="a folder with a sentence encoder")
    parser.add_argument("--windows", action="store_true", help="also encode messages together with those around them")
    arguments = parser.parse_args(argv)
    if arguments.encoder is None:
        print("needs --encoder")
        return 0
    encoder = import_module("sentence_transformers").SentenceTransformer(str(arguments.encoder), local_files_only=True)
    talks = [talk(one, encoder, windows=arguments.windows) for one in conversations(arguments.data)]
    report(talks)
    return 0


def report(talks: Sequence[Talk]) -> None:
    """Print what is found with words, with vectors, and with both, and what the vectors cost."""
    by_weight = {weight: [asked(one, one.blended(1.0, weight)) for one in talks] for weight in WEIGHTS}
    rows = {
        "words alone": by_weight[0.0],
        "vectors alone": [asked(one, one.blended(0.0, 1.0)) for one in talks],
        "both, the weight left out": best_of_others(by_weight),
        "words, learned and left out": left_out(talks, vectors=False),
        "both, learned and left out": left_out(talks, vectors=True),
    }
    print("| ranking | a gold turn in 10 | gold sessions in 10 | points beside words alone (95 %) |\n|---|---|---|---|")
    for name, tallies in rows.items():
        turns, sessions, _ = added(*tallies).row()
        gain, low, high = gained(added(*rows["words alone"]).turns, added(*tallies).turns)
        print(f"| {name} | {turns:.3f} | {sessions:.3f} | {gain:+.1f} ({low:+.1f} – {high:+.1f}) |")
    best = max(gained(added(*rows["words alone"]).turns, added(*rows[name]).turns)[0] for name in list(rows)[2:])
    told = "worth building" if best >= WORTH else "not worth their price"
    messages, questions = (sum(one.seconds[number] for one in talks) for number in (0, 1))
    print(
        f"\n{1000 * messages / sum(len(one.turns) for one in talks):.0f} ms of processor time for a message, "
        f"{1000 * questions / sum(len(one.ranked) for one in talks):.0f} ms for a question. Vectors are {told}."
    )


def left_out(talks: Sequence[Talk], *, vectors: bool) -> list[Tally]:
    """Return what each conversation has with weights that are learned from the others."""
    examples = [one.examples(vectors=vectors) for one in talks]
    found = []
    for at, one in enumerate(talks):
        weights = learned([each for other, those in enumerate(examples) if other != at for each in those])
        found.append(asked(one, one.find(lambda text: scores(weights, one.rows(text, vectors=vectors)))))  # noqa: B023 - used at once
    return found


def gained(before: Sequence[bool], after: Sequence[bool]) -> tuple[float, float, float]:
    """Return how many points more questions are answered, with the 95 % interval of a paired bootstrap."""
    changes = [now - then for then, now in zip(before, after, strict=True)]
    random = Random(0)
    drawn = sorted(sum(random.choices(changes, k=len(changes))) for _ in range(_DRAWS))
    points = [100 * each / len(changes) for each in (sum(changes), drawn[_DRAWS // 40], drawn[-1 - _DRAWS // 40])]
    return points[0], points[1], points[2]


def talk(conversation: Conversation, encoder: Any, *, windows: bool = False) -> Talk:
    """Store a conversation, search for all of its questions, and compare them with all of its turns."""
    store = open_store(":memory:")
    store.ensure(conversation.name)
    ids = store.append(conversation.name, [turn.message for turn in conversation.turns])
    candidates = {each.id: as_candidate(each) for each in store.messages(conversation.name)}
    newest, scope = store.term_counts([])[0], SearchFilter(conversation=conversation.name)
    done = Talk(conversation=conversation, turns=dict(zip(ids, conversation.turns, strict=True)))
    texts = [question.text for question in conversation.questions]
    for text, likeness in zip(texts, compared(done, texts, encoder, windows=windows), strict=True):
        hits = answered(Asked(store=store, query=parse(text), filter=scope, newest=newest)).hits
        score = {hit.candidate.id: hit.score for hit in hits}
        near = sorted(ids, key=lambda id_: -likeness[0][id_])[:NEAREST]
        known = list(dict.fromkeys([*score, *near]))
        done.ranked[text] = [candidates[id_] for id_ in known]
        done.words[text] = _figures_of_words(known, score, done.turns)
        done.vectors[text] = _figures_of_vectors(known, likeness, ids, done.turns)
    return done


def compared(done: Talk, texts: list[str], encoder: Any, *, windows: bool) -> list[list[dict[str, float]]]:
    """Return for each question how like it each message is, alone and in its windows; note what encoding took."""
    said = [f"{turn.message.get('name')}: {turn.message.get('content')}" for turn in done.turns.values()]
    sessions = [turn.session for turn in done.turns.values()]
    kinds = [said]
    for before, behind in WINDOWS.values() if windows else ():
        kinds.append(["\n".join(said[near] for near in _near(sessions, at, before, behind)) for at in range(len(said))])
    started = time.process_time()
    asked_ = encoder.encode(texts, normalize_embeddings=True)
    middle = time.process_time()
    rows = [(asked_ @ encoder.encode(kind, normalize_embeddings=True).T).tolist() for kind in kinds]
    done.seconds = time.process_time() - middle, middle - started
    return [[dict(zip(done.turns, row[at], strict=True)) for row in rows] for at in range(len(texts))]


def _near(sessions: Sequence[int], at: int, before: int, behind: int) -> list[int]:
    """Return the places around one that are in its session."""
    around = range(max(0, at - before), min(len(sessions), at + behind + 1))
    return [near for near in around if sessions[near] == sessions[at]]


def _figures_of_words(known: Sequence[str], score: Mapping[str, float], turns: Mapping[str, Turn]) -> list[list[float]]:
    """Return the score by words, its rank, and the best score of the session; what is no hit has the least score."""
    least = min(score.values(), default=0.0)
    found = [score.get(id_, least) for id_ in known]
    best = _best_of_sessions(found, [turns[id_].session for id_ in known])
    return [list(row) for row in zip(_standardised(found), _inverted_ranks(found), _standardised(best), strict=True)]


def _figures_of_vectors(
    known: Sequence[str], likeness: Sequence[Mapping[str, float]], ids: Sequence[str], turns: Mapping[str, Turn]
) -> list[list[float]]:
    """Return the likeness of a message, its rank, that of its neighbours, of its session's best, and of its windows."""
    sessions = [turns[id_].session for id_ in ids]
    alone, *windows = ([kind[id_] for id_ in ids] for kind in likeness)
    own = _standardised(alone)
    columns = [own, _inverted_ranks(alone)]
    columns += [
        [
            own[at + step] if 0 <= at + step < len(own) and sessions[at + step] == sessions[at] else 0.0
            for at in range(len(own))
        ]
        for step in (-1, 1)
    ]
    columns.append(_standardised(_best_of_sessions(alone, sessions)))
    for window in windows:
        columns += [_standardised(window), _inverted_ranks(window)]
    rows = dict(zip(ids, map(list, zip(*columns, strict=True)), strict=True))
    return [rows[id_] for id_ in known]


def _best_of_sessions(found: Sequence[float], sessions: Sequence[int]) -> list[float]:
    best: dict[int, float] = {}
    for value, session in zip(found, sessions, strict=True):
        best[session] = max(value, best.get(session, value))
    return [best[session] for session in sessions]


def _inverted_ranks(found: Sequence[float]) -> list[float]:
    ranks = [0.0] * len(found)
    for rank, at in enumerate(sorted(range(len(found)), key=lambda at: -found[at])):
        ranks[at] = _TOP / (rank + _TOP)
    return ranks


def asked(one: Talk, find: Callable[[str], list[Turn]]) -> Tally:
    """Ask all questions of a conversation."""
    return measured(one.conversation, find)


def _standardised(values: Sequence[float]) -> list[float]:
    mean = sum(values) / max(1, len(values))
    spread = (sum((value - mean) ** 2 for value in values) / max(1, len(values))) ** 0.5 or 1.0
    return [(value - mean) / spread for value in values]


if __name__ == "__main__":
    raise SystemExit(main())
