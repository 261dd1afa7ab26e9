"""A resumed conversation, or a fork, knows the provider's last count and the last fold: it is not folded at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from leporello.session import Session, factory
from leporello.session.resumption import LastCount, last_count
from leporello.store import Branch, open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leporello.store import Store


@pytest.fixture
def store() -> Iterator[Store]:
    kept = open_store(":memory:")
    yield kept
    kept.close()


def opened(store: Store) -> Session:
    return Session.open("c", engine="compressor", context_length=16_000, store=store, config={}, model="m", llm=None)


def turn(session: Session, number: int) -> int:
    """Say something; returns how many tokens the provider counted."""
    berths = " ".join(f"container {100 * number + at} stands at berth {at}" for at in range(60))
    session.add({"role": "user", "content": f"question {number} {berths}"})
    session.request()
    count = session.usage().tokens
    usage = {"prompt_tokens": count, "completion_tokens": 9, "total_tokens": count + 9}
    message = {"role": "assistant", "content": f"answer {number}"}
    session.record({"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage})
    return count


def grown(session: Session) -> None:
    """Go on until the window is above the threshold again after a fold, and is not folded: it has little room."""
    threshold = session.engine.threshold_tokens
    for number in range(400):
        folds = session.usage().compactions
        count = turn(session, number)
        if folds and folds == session.usage().compactions and count > threshold:
            return
    pytest.fail("the window never rested above the threshold")


def test_what_rests_above_the_threshold_goes_on_resting(store: Store) -> None:
    with opened(store) as session:
        grown(session)
        folds = session.usage().compactions
        with session.fork(head=False) as fork:
            fork.add({"role": "user", "content": "and aside?"})
            fork.request()
            assert fork.usage().compactions == folds
    with opened(store) as again:
        again.add({"role": "user", "content": "and on?"})
        again.request()
        assert again.usage().compactions == folds


def test_one_that_forgets_the_last_fold_would_be_noticed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factory, "refire_at", lambda *_: 0)
    with pytest.raises(AssertionError):
        test_what_rests_above_the_threshold_goes_on_resting(store)


def test_a_fork_has_the_count_of_the_window_that_it_begins_with(store: Store) -> None:
    with opened(store) as session:
        counts = [turn(session, number) for number in range(3)]
        rows = list(store.messages("c"))
        behind = {row.message["content"].split(" container")[0]: row.id for row in rows}
        asked_again = store.fork("c", behind=behind["question 2"], head=False)
        edited = store.fork("c", behind=behind["answer 1"], head=False)
        assert count_of(Branch(store, "c", "", asked_again, parent=1)) == LastCount(counts[2], 0, 5)
        assert count_of(Branch(store, "c", "", edited, parent=1)) == LastCount(counts[1], 0, 3)


def count_of(branch: Branch) -> LastCount | None:
    return last_count(branch, branch.window().items, branch.store.journal(branch.conversation))
