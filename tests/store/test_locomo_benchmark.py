"""The weights are chosen on the other conversations, and what is read once is ranked as a search ranks it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from benchmarks import locomo_vectors
from benchmarks.linear_ranker import Example, learned, scores
from benchmarks.locomo import Conversation, Question, Tally, Turn, best_of_others, read_once, stored, weighed
from benchmarks.locomo_vectors import Talk, gained, left_out, talk

SAID = (
    ("Ann", "Where did you leave the keys of the boat?"),
    ("Ben", "On the table in the kitchen."),
    ("Ann", "The boat needs paint before the summer."),
    ("Ben", "I painted the kitchen instead, sorry."),
    ("Ann", "Then the boat stays on land."),
)
QUESTIONS = ("Where are the keys of the boat?", "What did Ben paint?", "What does Ann say about the boat?")
TALK = Conversation(
    name="boat",
    turns=tuple(
        Turn(id=f"D1:{number}", session=1, message={"role": "user", "name": name, "content": text})
        for number, (name, text) in enumerate(SAID)
    ),
    questions=tuple(Question(text=text, gold=frozenset({"D1:1"}), category=1) for text in QUESTIONS),
)


HIT, MISS = Tally(turns=[True], sessions=[1.0]), Tally(turns=[False], sessions=[0.0])


def test_a_conversation_gets_the_weights_that_are_best_for_the_others() -> None:
    tallies = {"first": [HIT, HIT, MISS], "second": [MISS, MISS, HIT]}
    assert best_of_others(tallies) == [HIT, HIT, MISS]
    # Planted: weights that are good for one conversation alone are not chosen for it.
    own = {"good for all but one": [MISS, HIT], "for one": [HIT, MISS]}
    assert best_of_others(own) == [MISS, MISS]


def test_what_is_read_once_is_ranked_as_a_search_ranks_it() -> None:
    once, searched = read_once(TALK), stored(TALK)
    for question in QUESTIONS:
        assert once(question) == searched(question) != []
    # Planted: other weights of the ranking are seen, though nothing is read again.
    before = once(QUESTIONS[1])
    orders: list[list[Turn]] = []

    def find(question: str) -> list[Turn]:
        orders.append(once(question))
        return orders[-1]

    weighed(TALK, find, (0.0, 0.0, 50.0))
    assert orders[1] != before
    assert once(QUESTIONS[1]) == before


class Encoder:
    """Vectors by one word: like is what has "table"."""

    def encode(self, texts: list[str], *, normalize_embeddings: bool) -> Vectors:
        assert normalize_embeddings
        return Vectors([1.0 if "table" in text else 0.0 for text in texts])


class Vectors(list[float]):
    """One number for each text; a question is like whatever has the number 1."""

    @property
    def T(self) -> Vectors:  # noqa: N802 - as arrays have it
        return self

    def __matmul__(self, other: Vectors) -> Rows:
        return Rows([list(other) for _ in self])


class Rows(list[list[float]]):
    """A matrix."""

    def tolist(self) -> list[list[float]]:
        return list(self)


def test_vectors_move_a_hit_only_as_much_as_they_weigh() -> None:
    one: Talk = talk(TALK, Encoder())
    assert one.blended(1.0, 0.0)(QUESTIONS[2]) == stored(TALK)(QUESTIONS[2])
    assert one.blended(1.0, 0.0)(QUESTIONS[2])[0].id != "D1:1"
    assert one.blended(0.0, 1.0)(QUESTIONS[2])[0].id == "D1:1"


def test_weights_are_learned_from_what_answers() -> None:
    """Every question is answered by the message that has "table", whatever its words are."""
    one: Talk = talk(TALK, Encoder(), windows=True)
    weights = learned(one.examples(vectors=True))
    found = one.find(lambda text: scores(weights, one.rows(text, vectors=True)))
    assert [found(text)[0].id for text in QUESTIONS] == ["D1:1"] * 3
    # Planted: a figure that says nothing about the answer has no weight.
    idle = [Example(rows=[[0.0, 1.0], [1.0, 1.0]], right=[1]), Example(rows=[[1.0, 1.0], [0.0, 1.0]], right=[0])]
    sure, nothing = learned(idle)
    assert sure > 0.5
    assert abs(nothing) < 0.1 * sure


def test_learned_weights_are_reported_on_what_they_were_not_learned_from() -> None:
    """In one conversation the message with "table" answers, in the other the first one: what one teaches misleads."""
    one, other = talk(TALK, Encoder()), talk(TALK, Encoder())
    first = tuple(replace(question, gold=frozenset({"D1:0"})) for question in TALK.questions)
    other.conversation = replace(TALK, questions=first)
    seen: list[list[float]] = []

    def scored(weights: list[float], rows: list[list[float]]) -> list[float]:
        seen.append(weights)
        return scores(weights, rows)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(locomo_vectors, "scores", scored)
        left_out([one, other], vectors=True)
    assert seen[0] == learned(other.examples(vectors=True))
    assert seen[-1] == learned(one.examples(vectors=True))
    assert seen[0] != seen[-1]


def test_a_gain_has_its_interval() -> None:
    gain, low, high = gained([False] * 80 + [True] * 20, [True] * 100)
    assert (gain, 70 < low < 80 < high < 90) == (80.0, True)
    assert gained([True, False], [True, False]) == (0.0, 0.0, 0.0)
