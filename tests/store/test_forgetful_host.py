"""A host that restarts with an empty list under its old name: a new beginning, and nothing is taken back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from leporello.store import SearchFilter, match, open_store
from leporello.store.search import search

if TYPE_CHECKING:
    from pathlib import Path

Messages: TypeAlias = list[dict[str, Any]]
SYSTEM = {"role": "system", "content": "You are the harbour's assistant."}
WELCOME = {"role": "assistant", "content": "Welcome to the harbour. " * 8}
LONG_PROMPT = {"role": "user", "content": "Write the report of today's arrivals and departures. " * 8}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


HI, HELLO = user("hi"), assistant("Hello!")
HEADS: dict[str, Messages] = {
    "nothing": [],
    "the system prompt": [SYSTEM],
    "the first question": [SYSTEM, HI],
    "the first question and a short answer": [SYSTEM, HI, HELLO],
    "a welcome that the app writes": [SYSTEM, WELCOME],
    "a long question": [SYSTEM, LONG_PROMPT],
}


def turn(run: int, number: int) -> Messages:
    return [user(f"question {run}-{number} about the quay"), assistant(f"answer {run}-{number} about the quay")]


def said(run: int, turns: int) -> Messages:
    return [message for number in range(turns) for message in turn(run, number)]


def talk(path: Path, head: Messages, run: int, turns: int, *, full: bool) -> None:
    """Hand over a list that begins with `head` and grows, message by message, as a host does; then forget it."""
    listed = list(head)
    with open_store(path) as store:  # type: ignore[attr-defined]
        for message in said(run, turns):
            listed.append(message)
            store.ingest("bot", listed)
        store.ingest("bot", listed, full=full)


def check(path: Path, runs: int, turns: int) -> None:
    """Every turn of every run is live once, in its order, and can be found."""
    with open_store(path) as store:  # type: ignore[attr-defined]
        live = [row.message for row in store.messages("bot")]
        acknowledged = [message for run in range(runs) for message in said(run, turns)]
        assert [message for message in live if message in acknowledged] == acknowledged
        for run in range(runs):
            found = search(store, f'"answer {run}-0"', filter=SearchFilter(conversation="bot"), limit=5)
            assert [hit.role for hit in found.hits] == ["assistant"]
        assert store.check_chain("bot") == []


@pytest.mark.parametrize("full", [False, True], ids=["quick", "full"])
@pytest.mark.parametrize("turns", [1, 2, 12])
@pytest.mark.parametrize("head", HEADS)
def test_a_host_that_forgot_takes_nothing_back(tmp_path: Path, head: str, turns: int, full: bool) -> None:
    for run in range(4):
        talk(tmp_path / "s.db", HEADS[head], run, turns, full=full)
    check(tmp_path / "s.db", 4, turns)


@pytest.mark.parametrize("head", [name for name in HEADS if name != "nothing"])
def test_the_check_catches_a_store_that_takes_everything_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: str
) -> None:
    """Planted defect: what a list lacks counts as undone, whatever it shares with the history."""
    monkeypatch.setattr(match, "is_known_list", lambda *_: True)
    for run in range(2):
        talk(tmp_path / "s.db", HEADS[head], run, 3, full=False)
    with pytest.raises(AssertionError):
        check(tmp_path / "s.db", 2, 3)


def test_the_list_alone_with_a_first_message_that_is_stored_adds_nothing_and_takes_nothing_back() -> None:
    """Perhaps an undo, perhaps a new beginning: what follows decides."""
    store = open_store(":memory:")
    store.ingest("bot", [SYSTEM, HI, HELLO, *said(0, 3)])
    store._readings.clear()  # type: ignore[attr-defined]
    for full in (False, True):
        done = store.ingest("bot", [SYSTEM, HI], full=full)
        assert (done.added, done.superseded) == ((), ())
    done = store.ingest("bot", [SYSTEM, HI, assistant("Hello again!")])
    assert (len(done.added), done.superseded) == (2, ())


@pytest.mark.parametrize("restarts", [False, True])
def test_a_host_that_knows_the_conversation_may_take_back_turns(restarts: bool) -> None:
    """An answer that is not said twice by chance shows it after a restart, and the list before shows it within one."""
    answer = assistant("The quay is free from Monday on. " * (4 if restarts else 1))
    listed = [SYSTEM, HI, answer, *said(0, 3)]
    store = open_store(":memory:")
    store.ingest("bot", listed)
    if restarts:
        store._readings.clear()  # type: ignore[attr-defined]
    done = store.ingest("bot", [*listed[:3], user("and the crane?")])
    assert (len(done.added), len(done.superseded)) == (1, 6)


def test_an_answer_that_is_made_anew_replaces_the_first_one() -> None:
    store = open_store(":memory:")
    store.ingest("bot", [SYSTEM, HI, HELLO])
    store.ingest("bot", [SYSTEM, HI])
    done = store.ingest("bot", [SYSTEM, HI, assistant("Good day.")])
    assert (len(done.added), len(done.superseded)) == (1, 1)


def test_a_host_that_goes_on_after_a_new_beginning_is_recognised(tmp_path: Path) -> None:
    for run in range(2):
        talk(tmp_path / "s.db", [SYSTEM, HI], run, 5, full=False)
    listed = [SYSTEM, HI, *said(1, 5)]
    with open_store(tmp_path / "s.db") as store:  # type: ignore[attr-defined]
        assert store.ingest("bot", listed).added == ()
        assert len(store.ingest("bot", [*listed, *turn(1, 5)], full=True).added) == 2
        assert [row.message for row in store.messages("bot")][-13:] == [HI, *said(1, 5), *turn(1, 5)]
