"""The session is the only writer of its conversation: what an engine proposes is committed or dropped as a whole."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from leporello import LCMEngine
from leporello.errors import StoreError
from leporello.lcm import verify
from leporello.llm import ScriptedLLM
from leporello.session import Session
from leporello.store import FOLD, Branch, JournalRow
from leporello.store.sqlite import SQLiteStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leporello.messages import Message

    Answer = Callable[..., Any]

SUMMARY = "## Goal\nThe parts are looked at.\n\n## Progress\n### Done\n- Parts were read and are in order.\n"


def newest_user(messages: list[Message]) -> Message:
    return [message for message in messages if message["role"] == "user"][-1]


class Careless(LCMEngine):
    """Changes the newest message of the user as long as `careless` is set."""

    careless = True

    def compress(self, messages: list[Message], *args: Any, **options: Any) -> list[Message]:
        result = super().compress(messages, *args, **options)
        return [{**m, "content": "?"} if m == newest_user(messages) else m for m in result] if self.careless else result


class SecondWriter(Careless):
    """A planted defect: commits its window itself, before the session has judged it."""

    def compress(self, messages: list[Message], *args: Any, **options: Any) -> list[Message]:
        result = super().compress(messages, *args, **options)
        proposal = self.branch.take_proposal()
        if proposal is not None:
            self.branch.commit(proposal, JournalRow(reason=FOLD, keep=0, added=()))
        return result


def talk(session: Session, answer: Answer, turns: int, first: int = 0) -> None:
    for n in range(first, first + turns):
        session.add({"role": "user", "content": f"JournalRow {n}: look at src/part_{n}.py"})
        session.request()
        session.record(answer(f"Part {n} is in order.\n" + "\n".join(f"line {k} has {k * n}" for k in range(80))))


def state(store: SQLiteStore) -> tuple[Any, ...]:
    """Return what the conversation's window, nodes and journal are."""
    return store.window("talk"), store.nodes("talk"), store.journal("talk")


def refused(kind: type[Careless], answer: Answer) -> tuple[tuple[Any, ...], tuple[Any, ...], Session]:
    """Let a session refuse a fold; returns what the store had before and after it."""
    store = SQLiteStore(None)
    engine = kind(16_000, store=store)
    session = Session.open("talk", engine=engine, store=store, config={}, context_length=16_000, model="m")
    talk(session, answer, 14)
    before, window = state(store), session.window
    report = session.compress()
    assert report.status == "refused"
    assert "newest message of the user" in report.reason
    assert session.window == window
    return before, state(store), session


def test_what_the_session_refuses_changes_nothing_in_the_store(answer: Answer) -> None:
    before, after, session = refused(Careless, answer)
    assert after == before
    Careless.careless = False
    try:
        assert session.compress().status == "folded"
    finally:
        Careless.careless = True
    talk(session, answer, 3, first=14)
    assert verify(session.store, "talk") == []
    window = session.window
    session.close()
    resumed = Session.open("talk", engine="lcm", store=session.store, config={}, context_length=16_000, model="m")
    assert resumed.window == window, "the store has the window that the session shows"


def test_an_engine_that_writes_before_it_is_judged_is_caught(answer: Answer) -> None:
    before, after, _ = refused(SecondWriter, answer)
    assert after != before


def test_what_was_paid_for_a_dropped_fold_is_used_by_the_next_one(answer: Answer) -> None:
    store = SQLiteStore(None)
    llm = ScriptedLLM([SUMMARY], then=lambda _: SUMMARY, context_length=64_000)
    engine = Careless(16_000, store=store, llm=llm, config={"background": False})
    session = Session.open("talk", engine=engine, store=store, config={}, context_length=16_000, model="m")
    talk(session, answer, 14)
    assert session.compress().status == "refused"
    paid = len(llm.calls)
    assert paid > 0
    Careless.careless = False
    try:
        assert session.compress().status == "folded"
    finally:
        Careless.careless = True
    assert len(llm.calls) == paid


class Away(SQLiteStore):
    """A store that refuses to save windows while `away` is set."""

    away = False

    def save_window(self, *args: Any, **options: Any) -> Any:
        if self.away:
            raise StoreError("the disk is full.")
        return super().save_window(*args, **options)


def test_a_proposal_that_cannot_be_committed_is_dropped(answer: Answer, opened: Any) -> None:
    store = Away(None)
    session = opened(engine="lcm", store=store, context_length=16_000)
    talk(session, answer, 14)
    before, window = state(store), session.window
    store.away = True
    report = session.compress()
    assert (report.status, report.reason.endswith("the disk is full.")) == ("refused", True)
    assert (state(store), session.window) == (before, window)
    store.away = False
    assert session.compress().status == "folded"
    assert verify(store, "talk") == []


@contextmanager
def another_folds_meanwhile(engine: Any, store: SQLiteStore) -> Iterator[None]:
    """Let another process fold the conversation while this one's engine is at it."""
    own = engine.compress

    def compress(messages: list[Message], *args: Any, **options: Any) -> list[Message]:
        result: list[Message] = own(messages, *args, **options)
        other = LCMEngine(16_000, store=store)
        other.on_session_start("talk")
        other.compress([row.message for row in store.messages("talk")], force=True)
        return result

    engine.compress = compress
    try:
        yield
    finally:
        del engine.compress


def test_a_window_that_another_process_replaced_meanwhile_is_taken_up(answer: Answer, opened: Any) -> None:
    store = SQLiteStore(None)
    session = opened(engine="lcm", store=store, context_length=16_000)
    talk(session, answer, 14)
    said = [row.message for row in store.messages("talk")]
    with another_folds_meanwhile(session.engine, store):
        report = session.compress()
    assert report.status == "refused"
    assert "another process" in report.reason
    assert [row.reason for row in store.journal("talk")].count(FOLD) == 1, "one of the two was written"
    talk(session, answer, 2, first=14)
    assert [row.message for row in store.messages("talk")][: len(said)] == said
    assert verify(store, "talk") == []
    shown = {item["m"] for item in store.window("talk").items if "m" in item}
    assert {row.id for row in list(store.messages("talk"))[-4:-1]} <= shown


class Watched(SQLiteStore):
    """Counts what a host of lists does: a session does none of it."""

    calls: list[str]

    def ingest(self, *args: Any, **options: Any) -> Any:
        self.calls.append("ingest")
        return super().ingest(*args, **options)

    def handed_out(self, *args: Any, **options: Any) -> Any:
        self.calls.append("handed_out")
        return super().handed_out(*args, **options)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["compressor", "lcm"])
def test_a_session_never_matches_lists(engine: str, answer: Answer, opened: Any) -> None:
    """Equal words over and over: each is known by its id."""
    store = Watched(None)
    store.calls = []
    session = opened(engine=engine, store=store, context_length=8_000)
    for _ in range(150):
        session.add({"role": "user", "content": "Go on."})
        session.request()
        session.record(answer("I went on. " * 40))
    session.undo()
    session.fork(head=False).close()
    assert session.usage().compactions > 1
    assert store.calls == []
    assert len(list(store.messages("talk"))) == 298
    if engine == "lcm":
        assert verify(store, "talk") == []


def test_an_engine_that_is_handed_over_without_a_store_works_on_the_sessions(answer: Answer, opened: Any) -> None:
    engine = LCMEngine(16_000)
    session = opened(engine=engine, context_length=16_000)
    talk(session, answer, 14)
    assert session.compress().status == "folded"
    assert engine.store is session.store
    assert session.store.nodes("talk")


def test_an_engine_is_not_asked_to_fold_what_is_not_stored() -> None:
    store = SQLiteStore(None)
    engine = LCMEngine(16_000, store=store)
    branch = Branch(store, "talk")
    engine.on_session_start("talk", branch=branch)
    messages: list[Message] = [{"role": "user", "content": "word " * 200} for _ in range(60)]
    branch.sources = [(None,)] * len(messages)
    assert engine.compress(messages, force=True) == messages
    assert engine.last_compaction is not None
    assert engine.last_compaction.status == "refused"
    assert branch.take_proposal() is None
