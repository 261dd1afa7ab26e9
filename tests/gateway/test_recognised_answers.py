"""Where a history leads that lacks its beginning: only to a conversation that is surely its own."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from leporello.gateway import recognition
from leporello.gateway.history import parse
from leporello.gateway.recognition import Recognised, recognise
from leporello.store import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leporello.messages import Message
    from leporello.store import Store

CANNED = "I am sorry, but I cannot help with that. Please write to the harbour office, open from nine to five."
DISTINCT = "The container of the blue cranes stands at berth seven, behind the third warehouse on the left."


@pytest.fixture
def store() -> Iterator[Store]:
    with closing(open_store(":memory:")) as opened:
        yield opened


def talk(*said: str) -> list[Message]:
    return [{"role": "assistant" if n % 2 else "user", "content": text} for n, text in enumerate(said)]


def keep(store: Store, key: str, said: list[Message]) -> None:
    """Store a conversation with what it is recognised by."""
    history = parse(said, dialect="openai")
    known = {
        at: [hash_, history.alone(said[at])] if said[at]["role"] == "assistant" else [hash_]
        for at, hash_ in enumerate(history.hashes)
    }
    store.append(key, said, known=known)


def found(store: Store, sent: list[Message]) -> list[str]:
    history = parse(sent, dialect="openai")
    return [place.conversation for place in recognise(store, history, owner="", named=False).places]


@pytest.fixture
def two_people(store: Store) -> Store:
    """Two who got the same long answer, and one of them a distinct one before it."""
    keep(store, "ada", talk("ada asks", DISTINCT, "I want a refund", CANNED))
    keep(store, "bob", talk("bob asks", "Yes.", "I want a refund", CANNED))
    return store


def test_a_distinct_answer_leads_to_its_conversation(two_people: Store) -> None:
    assert found(two_people, talk("another beginning", DISTINCT, "and now?")) == ["ada"]


HI = talk("hi", "Hello.", "go on", "Yes.")


def test_a_history_of_two_conversations_goes_on_in_none_that_has_gone_on(store: Store) -> None:
    """Both have asked for a title: nobody can tell which of them goes on, nor who says the same again."""
    for key in ("ada", "bob"):
        keep(store, key, [*HI, *talk("Suggest a title.", "Harbour")])
    assert found(store, [*HI, *talk("I am Ada")]) == []
    keep(store, "carl", [*HI, *talk("I am Carl", "Hello, Carl.")])
    assert found(store, [*HI, *talk("I am Carl")]) == []
    assert found(store, [*HI, *talk("I am Carl", "Hello, Carl.", "what now?")]) == ["carl"]


def test_a_history_of_two_conversations_goes_on_in_the_one_that_waits(store: Store) -> None:
    keep(store, "ada", [*HI, *talk("I am Ada", "Hello, Ada.")])
    keep(store, "bob", HI)
    assert found(store, [*HI, *talk("I am Ada")]) == ["bob"]


def test_a_history_of_two_conversations_goes_on_in_none_that_has_branches(store: Store) -> None:
    """One of them waits, on a branch: on another one stands what its user said."""
    keep(store, "ada", [*HI, *talk("I am Ada", "Hello, Ada.")])
    keep(store, "bob", [*HI[:2], *talk("I am Bob", "Hello, Bob.")])
    last = parse(HI, dialect="openai")
    branch = store.fork("bob", behind=next(row.id for row in store.messages("bob") if row.role == "assistant"))
    store.append("bob", HI[2:], branch=branch, known={1: [last.hashes[-1], last.alone(HI[-1])]})
    assert found(store, [*HI, *talk("I am Carl")]) == []


@pytest.mark.parametrize(
    ("check", "name", "defect"),
    [
        (
            test_a_history_of_two_conversations_goes_on_in_none_that_has_gone_on,
            "_by_prefix",
            lambda _, __, places, count, *___, **____: Recognised(places=places, count=count),
        ),
        (test_a_history_of_two_conversations_goes_on_in_none_that_has_branches, "_is_branched", lambda *_: False),
    ],
)
def test_planted_a_history_that_goes_on_in_the_newest_conversation(
    check: Any, name: str, defect: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: whoever else has the history, and whatever else was said there."""
    monkeypatch.setattr(recognition, name, defect)
    with pytest.raises(AssertionError):
        check(store)


def test_one_conversation_with_many_branches_goes_on(store: Store) -> None:
    """Asked again and answered alike, it is the same history many times, and all of them are its own."""
    keep(store, "ada", HI)
    last = parse(HI, dialect="openai")
    asked = [row.id for row in store.messages("ada")][2]
    for _ in range(12):
        branch = store.fork("ada", behind=asked)
        store.append("ada", HI[3:], branch=branch, known={0: [last.hashes[-1], last.alone(HI[-1])]})
    assert set(found(store, [*HI, *talk("I am Ada")])) == {"ada"}
    assert set(found(store, HI[:3])) == {"ada"}


def check_canned(store: Store) -> None:
    assert found(store, talk("I want a refund", CANNED, "then cancel it")) == []


def test_an_answer_that_several_got_leads_nobody_to_a_stranger(two_people: Store) -> None:
    check_canned(two_people)


def test_a_long_answer_that_is_trusted_is_caught(two_people: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: who sends a long answer belongs to the newest conversation that got it."""
    monkeypatch.setattr("leporello.gateway.recognition._sure", lambda *given: given[3])
    with pytest.raises(AssertionError):
        check_canned(two_people)


def test_what_stands_before_the_answer_tells_them_apart(two_people: Store) -> None:
    sent = talk("ada asks", DISTINCT, "I want a refund", CANNED, "then cancel it")[1:]
    assert found(two_people, sent) == ["ada"]


def test_a_short_answer_leads_nowhere(store: Store) -> None:
    keep(store, "ada", talk("ada asks", "Yes."))
    assert found(store, talk("somebody asks", "Yes.", "and now?")) == []


def test_a_common_answer_does_not_hide_a_distinct_one(store: Store) -> None:
    """More conversations wait behind "Done." than are looked at: the answer before it says whose this one is."""
    said = talk("ada asks", DISTINCT, "and now?", "Done.")
    keep(store, "ada", said)
    for number in range(20):
        keep(store, f"other {number}", talk(f"question {number}", "Done."))
    assert found(store, [*talk("it is nine: ada asks"), *said[1:], *talk("go on")]) == ["ada"]


def forked(store: Store) -> list[Message]:
    """Ask aside, and go on; both answers are the same word. Returns a later history, with another beginning."""
    said = talk("ada asks", DISTINCT, "what next?", "Yes.", "sure?", "Done.", "really?")
    keep(store, "ada", said)
    aside = [*said[:4], *talk("Suggest a title", "Done.")]
    branch = store.fork("ada", behind="m4", head=False)
    store.append("ada", aside[4:], branch=branch, known={1: [parse(aside, dialect="openai").alone(aside[-1])]})
    return [*talk("it is nine: ada asks"), *said[1:]]


def check_branch(store: Store) -> None:
    """The history goes on where its own answer is, although something waits behind that, and not behind the title."""
    history = parse(forked(store), dialect="openai")
    assert [place.branch for place in recognise(store, history, owner="", named=False).places] == [1]


def test_of_several_branches_the_one_with_the_same_messages_goes_on(store: Store) -> None:
    check_branch(store)


def test_planted_the_branch_that_ends_with_the_answer(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leporello.gateway.recognition._most_alike", lambda *given: given[3])
    with pytest.raises(AssertionError):
        check_branch(store)
