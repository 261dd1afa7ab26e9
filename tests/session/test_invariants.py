"""What holds in every turn whatever happens in it: where each is tested, and the tests that stand nowhere else."""

from __future__ import annotations

import asyncio
import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from leporello.session import AsyncSession, persistence
from leporello.session.saved_branch import grouped
from leporello.store.sqlite import SQLiteStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from leporello.messages import Message
    from leporello.session import Session

TESTS: Final = Path(__file__).parents[1]
INVARIANTS: Final = {
    "a message that no store can keep is refused, also while the store is down": (
        "session/test_session_store.py::test_a_value_that_is_no_json_is_refused_and_nothing_entered"
    ),
    "an answer and the journal row of its request are one transaction": (
        "session/test_session_store.py::test_an_answer_and_the_row_of_its_request_are_stored_together_or_not_at_all"
    ),
    "a journal row never cuts off a later fold": (
        "session/test_session_machine.py::test_a_row_that_is_written_late_keeps_the_folded_window"
    ),
    "an undo reaches the store after everything that waits": (
        "session/test_resumed_as_it_was.py::test_an_undo_that_waited_for_the_store_is_not_forgotten"
    ),
    "the system prompt is not stored until something is said": (
        "session/test_session_store.py::test_the_system_prompt_is_stored_with_the_first_message_that_is"
    ),
    "a late result replaces its stub": (
        "session/test_session_store.py::test_a_result_that_comes_late_takes_the_place_of_its_stub"
    ),
    "an engine is asked both questions once per request": (
        "session/test_session_lifecycle.py::test_a_session_makes_these_calls_in_this_order"
    ),
    "blocks are journalled as they were sent": (
        "session/test_invariants.py::test_the_journal_has_every_request_word_by_word"
    ),
    "an engine sees copies": (
        "session/test_session_compaction.py::test_an_engine_that_changes_what_it_is_given_changes_nothing"
    ),
    "a lease is prolonged as long as it is held": (
        "session/test_session_lease.py::test_it_is_prolonged_as_long_as_it_is_held"
    ),
    "cancellation finishes the work on the store": (
        "session/test_invariants.py::test_a_cancelled_call_finishes_its_work_on_the_store"
    ),
    "the last bytes of an answer go out after it is recorded": (
        "gateway/test_client_shapes.py::test_a_turn_that_is_posted_when_the_last_event_arrives"
    ),
    "a session that holds what the store does not is abandoned": (
        "gateway/test_gateway_abandoned.py::test_one_that_holds_what_the_store_does_not_is_abandoned"
    ),
    "repeated call ids identify nothing": (
        "store/reconcile/test_replay_shapes.py"
        "::test_a_host_that_repeats_ids_and_drops_its_oldest_messages_loses_nothing"
    ),
    "calls that repeat an id get ids of their own in the window": (
        "session/test_session_store.py::test_calls_that_are_numbered_anew_in_every_answer_get_ids_of_their_own"
    ),
    "a plan is made anew when the revision moved": (
        "store/reconcile/test_forgetful_host.py"
        "::test_a_decision_that_another_process_has_made_meanwhile_is_found_under_the_lock"
    ),
    "a fold of a window that was replaced meanwhile is dropped": (
        "session/test_one_writer.py::test_a_window_that_another_process_replaced_meanwhile_is_taken_up"
    ),
    "call ids are renamed in the window, not in what a client is recognised by": (
        "gateway/test_gateway_history.py::test_an_answer_is_known_however_it_comes_back"
    ),
}


@pytest.mark.parametrize("name", INVARIANTS.values(), ids=list(INVARIANTS))
def test_each_has_its_test(name: str) -> None:
    file, _, function = name.partition("::")
    assert re.search(rf"^def {function}\(", (TESTS / file).read_text(encoding="utf-8"), re.MULTILINE)


def fold_twice(session: Session, answer: Callable[..., Any]) -> list[list[Message]]:
    """Talk until the conversation was folded at least twice; returns the window of every request."""
    sent = []
    for number in range(40):
        session.add({"role": "user", "content": f"Question {number}: " + "what is there? " * 40})
        session.request()
        sent.append(session.window)
        session.record(answer(f"Answer {number}: " + "containers. " * 40, tokens=session.usage().tokens))
    assert session.usage().compactions >= 2
    return sent


def journalled(session: Session) -> list[list[Message]]:
    """Return the window of every request as the journal has it."""
    store, windows = session.store, []
    for row in store.journal(session.id):
        if row.reason != "request":
            continue
        groups = grouped(store.window_at(session.id, row.number))
        rows = store.get([item["m"] for group in groups for item in group if "m" in item])
        windows.append([_shown(group[0], rows) for group in groups])
    return windows


def _shown(item: Any, rows: dict[str, Any]) -> Any:
    if "m" in item:
        return item.get("as") or rows[item["m"]].message
    return item.get("as") or {"role": item["role"], "content": item.get("t", "")}


@pytest.mark.parametrize("engine", ["compressor", "lcm"])
def test_the_journal_has_every_request_word_by_word(engine: str, opened: Any, answer: Callable[..., Any]) -> None:
    session = opened(engine=engine, context_length=8_000, system="Be brief.")
    sent = fold_twice(session, answer)
    assert journalled(session) == sent


def test_planted_blocks_without_their_text_are_caught(
    opened: Any, answer: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    written = persistence.items_of
    bare = lambda entries: tuple({k: v for k, v in item.items() if k != "as"} for item in written(entries))  # noqa: E731
    monkeypatch.setattr(persistence, "items_of", bare)
    session = opened(engine="lcm", context_length=8_000, system="Be brief.")
    sent = fold_twice(session, answer)
    assert journalled(session) != sent


class Held(SQLiteStore):
    """A store that waits in the middle of an append."""

    def __init__(self) -> None:
        super().__init__(None)
        self.entered = threading.Event()
        self.goes_on = threading.Event()

    def append(self, *args: Any, **options: Any) -> tuple[str, ...]:
        self.entered.set()
        assert self.goes_on.wait(20)
        return super().append(*args, **options)


def test_a_cancelled_call_finishes_its_work_on_the_store() -> None:
    """What was said is in the store and in the window, or in neither: the next request is made of both."""

    async def story() -> None:
        store = Held()
        session = await AsyncSession.open("talk", store=store, config={}, context_length=100_000, model="m")
        adding = asyncio.ensure_future(session.add({"role": "user", "content": "Where is it?"}))
        assert await asyncio.to_thread(store.entered.wait, 20)
        adding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await adding
        store.goes_on.set()
        sent = (await session.request())["messages"]
        assert [row.message for row in store.messages("talk")] == sent == [{"role": "user", "content": "Where is it?"}]
        await session.close()

    asyncio.run(story())
