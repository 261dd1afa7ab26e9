"""A system message in the middle of a conversation is a message like any other: taken back, forked, found, resumed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from leporello.errors import StoreBusyError
from leporello.messages import is_system, text_of
from leporello.session import Session, tool_result
from leporello.store.records import SearchFilter
from leporello.store.search import search
from leporello.store.sqlite import SQLiteStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from leporello.messages import Message


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def system(text: str) -> Message:
    return {"role": "system", "content": text}


def texts(messages: list[Message]) -> list[str]:
    return [text_of(message) for message in messages]


def test_nothing_moves_and_the_store_keeps_it_where_it_was_said(opened: Any, answer: Callable[..., Any]) -> None:
    session = opened(system="prompt")
    session.add(user("one"), system("behind a question"))
    first = session.request()["messages"]
    session.record(answer("two"))
    session.add(system("behind an answer"), user("three"), system("the newest"))
    second = session.request()["messages"]
    assert second[: len(first)] == first
    said = ["one", "behind a question", "two", "behind an answer", "three", "the newest"]
    assert texts(second) == ["prompt", *said]
    assert texts([row.message for row in session.store.messages("talk")]) == said


def test_a_result_behind_it_stands_with_its_call(opened: Any, answer: Callable[..., Any]) -> None:
    session = opened()
    session.add(user("look"))
    session.request()
    (call,) = session.record(answer("I look", ("look", {})))
    session.add(system("the user has closed the file"))
    assert not session.done
    session.add(tool_result(call, "a crane"))
    assert texts(session.request()["messages"]) == ["look", "I look", "a crane", "the user has closed the file"]
    stored = [row.message for row in session.store.messages("talk")]
    assert texts(stored) == ["look", "I look", "the user has closed the file", "a crane"]


def test_a_late_result_takes_the_place_of_its_stub_before_it(opened: Any, answer: Callable[..., Any]) -> None:
    session = opened()
    session.add(user("look"))
    session.request()
    (call,) = session.record(answer("I look", ("look", {})))
    session.add(system("go on"))
    session.request()
    session.add(tool_result(call, "a crane"))
    assert texts(session.request()["messages"]) == ["look", "I look", "a crane", "go on"]


def test_a_note_behind_an_answer_asks_for_nothing(opened: Any, answer: Callable[..., Any]) -> None:
    session = opened()
    session.add(user("one"), system("note"))
    assert not session.done
    session.request()
    session.record(answer("two"))
    session.add(system("note"))
    assert session.done


def test_undo_takes_back_what_stands_behind_the_question_and_keeps_what_stands_before_it(
    opened: Any, answer: Callable[..., Any]
) -> None:
    session = opened(system="prompt")
    for number in range(2):
        session.add(system(f"before {number}"), user(f"question {number}"), system(f"behind {number}"))
        session.request()
        session.record(answer(f"answer {number}"))
    session.undo()
    kept = ["question 0", "behind 0", "answer 0", "before 1"]
    assert texts(session.window) == ["prompt", "before 0", *kept]
    assert texts([row.message for row in session.store.messages("talk")]) == kept
    session.add(user("another"))
    assert texts(session.request()["messages"])[-2:] == ["before 1", "another"]


@pytest.mark.parametrize("engine", ["compressor", "lcm"])
def test_a_fork_shares_it_and_search_finds_it(engine: str, opened: Any, answer: Callable[..., Any]) -> None:
    session = opened(engine=engine, system="prompt")
    session.add(user("one"), system("the harbour master is called Quist"))
    session.request()
    session.record(answer("two"))
    with session.fork() as fork:
        fork.add(system("only here: Ravn"), user("three"))
        shown = texts(fork.request()["messages"])
        assert shown == ["prompt", "one", "the harbour master is called Quist", "two", "only here: Ravn", "three"]
        branch = fork.branch
    store = session.store
    assert len(list(store.messages("talk", branch=session.branch))) == 3
    (hit,) = search(store, "Quist", filter=SearchFilter(conversation="talk")).hits
    assert hit.role == "system"
    assert texts([row.message for row in store.messages("talk", branch=branch)]) == shown[1:]


@pytest.mark.slow
def test_a_resumed_conversation_has_it_at_its_place(tmp_path: Path, answer: Callable[..., Any]) -> None:
    options: dict[str, Any] = {"config": {}, "store": tmp_path / "store.db", "model": "m", "context_length": 9_000}
    with Session.open("talk", system="prompt", **options) as session:
        session.add(user("one"), system("note"))
        before = session.request()["messages"]
        session.record(answer("two"))
        session.add(system("another"))
    with Session.open("talk", system="another prompt", **options) as session:
        session.add(user("three"))
        again = session.request()["messages"]
    assert again[1:3] == before[1:]
    assert texts(again) == ["another prompt", "one", "note", "two", "another", "three"]
    store = SQLiteStore(tmp_path / "store.db")
    rows = list(store.messages("talk", system=True))
    store.close()
    assert [text_of(row.message) for row in rows if row.system] == ["prompt", "another prompt"]
    assert [text_of(row.message) for row in rows if not row.system] == texts(again)[1:]


def test_a_prompt_that_changes_while_the_store_is_away_is_no_message_of_the_middle(
    answer: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SQLiteStore(None)
    options: dict[str, Any] = {"config": {}, "store": store, "model": "m", "context_length": 9_000}
    with Session.open("talk", system="prompt", **options) as session:
        session.add(user("one"))
        session.request()
        session.record(answer("two"))
    append = SQLiteStore.append

    def away(self: Any, *args: Any, **more: Any) -> Any:
        raise StoreBusyError("it is in use by others.")

    monkeypatch.setattr(SQLiteStore, "append", away)
    with Session.open("talk", system="another prompt", **options) as session:
        session.add(user("three"), system("note"))
        monkeypatch.setattr(SQLiteStore, "append", append)
        assert texts(session.request()["messages"]) == ["another prompt", "one", "two", "three", "note"]
    rows = list(store.messages("talk", system=True))
    assert [text_of(row.message) for row in rows if row.system] == ["prompt", "another prompt"]
    assert [text_of(row.message) for row in rows if not row.system] == ["one", "two", "three", "note"]
    assert [is_system(row.message) for row in rows if not row.system] == [False, False, False, True]
