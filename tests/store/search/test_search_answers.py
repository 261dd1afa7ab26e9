"""Questions are answered from what stands around their words, from many sittings, and say what they left out."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings, strategies as st
from tests.fixtures.databases import SOAK

from leporello.store import Candidate, SearchFilter, open_store
from leporello.store.relational.matching import SCANNED
from leporello.store.search import parse, rank, search
from leporello.store.search.answer import POOL
from leporello.store.search.rank import HEAD, Ranked, Statistics, ranked

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from leporello.messages import Message
    from leporello.store import Store
    from leporello.store.search import Hit

DATABASES = SOAK

TALK = "talk"
ALL = SearchFilter(conversation=TALK)
DAY = 86_400.0


def said(text: str, role: str = "user", *, time: float = 0.0) -> Message:
    return {"role": role, "content": text, "timestamp": time}


@pytest.fixture
def store() -> Iterator[Store]:
    store = open_store(":memory:", clock=lambda: 1_000_000.0)
    store.ensure(TALK)
    yield store
    store.close()


def noise(count: int, seed: int = 1) -> list[Message]:
    chance = random.Random(seed)
    words = ["street", "window", "paper", "number", "green", "seven", "letter", "under", "yellow", "corner", "simple"]
    return [said(" ".join(chance.choices(words, k=12))) for _ in range(count)]


def snippets(hits: Sequence[Hit]) -> list[str]:
    return [hit.snippet for hit in hits]


def test_a_question_finds_the_answer_that_has_none_of_its_words(store: Store) -> None:
    asked, answer = said("Which pet do you have?", "assistant"), said("A brown one, called Max.")
    store.append(TALK, [*noise(40), asked, answer, *noise(40, seed=2)])
    found = snippets(search(store, "What pet does Ann have?", filter=ALL).hits)
    assert answer["content"] in found[:3]


def test_without_the_circles_it_would_not_be_among_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted defect: a message counts alone."""
    told = [one(1, "Which pet do you have?"), one(2, "A brown one, called Max."), one(3, "Nothing."), one(9, "Else.")]
    statistics = Statistics(messages=80, counts={"pet": 1})

    def score(id_: str) -> float:
        found = ranked(parse("What pet does Ann have?"), told, statistics, question=True)
        return next(each.score for each in found if each.candidate.id == id_)

    assert score("m2") > score("m3") > score("m9")
    monkeypatch.setattr(rank, "CIRCLES", {})
    monkeypatch.setattr(rank, "ASKED", 0.0)
    assert score("m2") == score("m3") == score("m9")


def first(question: str, *told: Candidate) -> str:
    """Return the text that is ranked first for a question."""
    statistics = Statistics(messages=80, counts=dict.fromkeys(["kei", "cellar"], len(told)))
    return ranked(parse(question), told, statistics, question=True)[0].candidate.text


def test_who_asks_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shorter and older one asks; the planted defect reads it as a statement."""
    asks, tells = "Is the cellar's key lost?", "I put the key of the cellar on the shelf behind the clock."
    told = one(1, asks), one(9, tells, time=DAY)
    assert first("Where is the key of the cellar?", *told) == tells
    monkeypatch.setattr(rank, "questions_in", lambda _: "")
    assert first("Where is the key of the cellar?", *told) == asks


def test_an_answer_has_the_words_that_were_asked_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both stand beside the words; the planted defect does not see which of them answers."""
    thanks, asks, answer = "Thank you for it.", "What became of the key of the cellar?", "It lies on the shelf."
    told = one(1, thanks), one(2, asks), one(3, answer)
    assert first("Where is the key of the cellar?", *told) == answer
    monkeypatch.setattr(rank, "ASKED", 0.0)
    assert first("Where is the key of the cellar?", *told) != answer


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("The cellar is dry. Where is the key? On the shelf.", " Where is the key?"),
        ("Is it dry?\nThe cellar", "Is it dry?"),
        ("Is it? No! Why not?", "Is it?\n Why not?"),
        ("nothing but words", ""),
        ("地窖很干。钥匙在哪里？在架子上。", "钥匙在哪里？"),
        ("see https://host/cellar?key=1 for it", ""),
        ("why? " * 500, ""),
    ],
)
def test_what_a_message_asks_is_a_sentence(text: str, asked: str) -> None:
    assert rank.questions_in(text) == asked


def one(number: int, text: str, *, time: float = 0.0) -> Candidate:
    return Candidate(
        id=f"m{number}",
        conversation=TALK,
        seq=number,
        place=float(number),
        role="user",
        name="",
        tool="",
        time=time,
        score=0.0,
        text=text,
    )


def takes_turns(found: Sequence[Ranked]) -> bool:
    """Tell whether, behind the very best hits, no sitting shows a second hit before all others showed one."""
    sittings = {each.sitting for each in found}
    seen = {each.sitting for each in found[:HEAD]}
    for each in found[HEAD:]:
        if each.sitting in seen and seen != sittings:
            return False
        seen.add(each.sitting)
    return True


def days(chance: random.Random) -> list[Candidate]:
    """Make a few sittings, some with many good hits."""
    made: list[Candidate] = []
    for day in range(chance.randrange(2, 30)):
        for _ in range(chance.randrange(1, 9)):
            words = ["lake"] * chance.randrange(1, 4) + ["boat"] * chance.randrange(3)
            made.append(one(len(made) + 1, " ".join(words), time=day * DAY + len(made)))
    return made


@pytest.mark.slow
@given(st.randoms(use_true_random=False))
def test_behind_the_best_hits_the_sittings_take_turns(chance: random.Random) -> None:
    statistics = Statistics(messages=200, counts={"lake": 100, "boat": 20})
    candidates = days(chance)
    found = ranked(parse("What boat was on the lake?"), candidates, statistics, question=True)
    assert takes_turns(found)
    assert sorted(each.candidate.id for each in found) == sorted(each.id for each in candidates)
    assert all(left.score >= right.score for left, right in pairwise(found[:HEAD]))


def test_hits_by_score_alone_are_caught_by_the_same_check() -> None:
    first = [Ranked(candidate=one(n, "lake"), score=9.0, sitting=0) for n in range(HEAD + 5)]
    assert not takes_turns([*first, Ranked(candidate=one(99, "lake"), score=1.0, sitting=1)])


def filled(store: Store, count: int) -> None:
    for start in range(0, count, 1_000):
        store.append(TALK, [said(f"apple {n}") for n in range(start, min(start + 1_000, count))])


def test_a_search_that_was_cut_short_says_so(store: Store) -> None:
    """Among the hits that were looked at none passes the filter; further ones were not looked at."""
    store.append(TALK, [said("the oldest apple", "assistant")])
    filled(store, SCANNED - 1)
    whole = search(store, "apple role:assistant", filter=ALL)
    assert (snippets(whole.hits), whole.complete) == (["the oldest apple"], True)
    store.append(TALK, [said("one apple more")])
    cut = search(store, "apple role:assistant", filter=ALL)
    assert (cut.hits, cut.complete, cut.cursor) == ((), False, None)
    assert search(store, "apple role:user", filter=ALL).complete


def test_a_question_with_more_hits_than_are_ranked_says_so(store: Store) -> None:
    filled(store, POOL - 1)
    assert search(store, "where did the apple go?", filter=ALL).complete
    filled(store, 1)
    assert not search(store, "where did the apple go?", filter=ALL).complete


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(["apple pie", "pear", "apple apple", "plum"]), min_size=1, max_size=30), st.data())
def test_what_came_later_does_not_change_what_is_seen_up_to_a_message(texts: list[str], data: st.DataObject) -> None:
    store = open_store(":memory:")
    before = data.draw(st.integers(1, len(texts)))
    store.append(TALK, list(map(said, texts[:before])))
    last, counts = store.term_counts(["appl", "plum"])
    hits = store.candidates('"appl"', filter=ALL, limit=50, newest_first=True)
    store.append(TALK, list(map(said, texts[before:])))
    assert store.term_counts(["appl", "plum"], newest=last) == (last, counts)
    assert store.candidates('"appl"', filter=ALL, limit=50, newest_first=True, newest=last) == hits
    assert store.term_counts(["appl", "plum"])[0] == len(texts)
    store.close()


def test_a_cursor_stays_short(store: Store) -> None:
    store.append(TALK, [said(f"the movie about travel and music, {n}") for n in range(30)])
    cursor = search(store, "Which movies about travel, music, sport, food and family did we see?", filter=ALL).cursor
    assert cursor is not None
    assert len(cursor) < 60


def test_a_conversation_is_found_behind_many_newer_hits_of_others(store: Store) -> None:
    """Few messages of others are sorted out by the filter, many are kept out of the search itself."""
    store.append(TALK, [said("apple in the talk")])
    for count in (10, SCANNED):
        for start in range(0, count, 1_000):
            store.append("other", [said(f"apple {count} {start + n}") for n in range(min(1_000, count))])
        assert snippets(search(store, "apple", filter=ALL).hits) == ["apple in the talk"]
        assert snippets(search(store, "where is the apple?", filter=ALL).hits) == ["apple in the talk"]


def test_hits_name_their_conversation(store: Store) -> None:
    store.append(TALK, [said("apple")])
    store.append("other", [said("apple")])
    assert {hit.conversation for hit in search(store, "apple").hits} == {TALK, "other"}
