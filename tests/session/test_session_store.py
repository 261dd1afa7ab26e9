"""What is kept: every message, every window, every request; and what a resumed conversation looks like."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from leporello import LCMEngine
from leporello.errors import MessageError, SessionError, StoreBusyError, StoreError
from leporello.events import Notice
from leporello.lcm import verify
from leporello.messages import EMPTY_ASSISTANT, NO_REPLY, STUB_RESULT, violations
from leporello.session import Session, conversation, tool_result
from leporello.session.conversation import Conversation
from leporello.store import open_store
from leporello.store.sqlite import SQLiteStore
from leporello.testing.lifecycle import RecordingEngine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from leporello.messages import Message

ENGINES = ("compressor", "lcm")


def work(session: Session, answer: Callable[..., Any], turns: int, first: int = 0) -> list[Message]:
    """Let an agent work, and return everything that was said."""
    said: list[Message] = []

    def add(message: Message) -> None:
        said.append(message.copy())
        session.add(message)

    for n in range(first, first + turns):
        add({"role": "user", "content": f"Request {n}: look at src/part_{n}.py", "timestamp": "2026-01-01T00:00:00Z"})
        session.request()
        for call in session.record(answer(None, ("read_file", {"path": f"src/part_{n}.py"}))):
            said.append({**session.window[-1]})
            add(tool_result(call, "\n".join(f"part {n} line {k}: value = {k * n}" for k in range(60))))
        session.request()
        session.record(answer(f"Part {n} is in order."))
        said.append(session.window[-1])
    return said


def stored(session: Session) -> list[Message]:
    return [row.message for row in session.store.messages(session.id)]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_everything_that_was_said_is_stored_as_it_was_whatever_was_folded(
    engine: str, opened: Any, answer: Callable[..., Any]
) -> None:
    session = opened(engine=engine, context_length=8_000)
    said = work(session, answer, 40)
    assert session.usage().compactions > 0
    assert stored(session) == said
    if engine == "lcm":
        assert verify(session.store, session.id) == []


@pytest.mark.slow
def test_a_lossy_store_is_caught_by_the_same_assertion(opened: Any, answer: Callable[..., Any]) -> None:
    """Planted: a store that loses one message in fifty."""

    class Lossy(SQLiteStore):
        taken = 0

        def append(self, conversation: str, messages: Any, *, owner: str = "", **more: Any) -> tuple[str, ...]:
            ids = super().append(conversation, messages, owner=owner, **more)
            self.taken += 1
            if self.taken % 50 == 0:
                self.delete(conversation, owner=owner, first=self.taken, last=self.taken)
            return ids

    session = opened(store=Lossy(None))
    said = work(session, answer, 30)
    assert stored(session) != said


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("ending", ["closed", "crashed"])
def test_a_conversation_resumes_folded_as_it_was(
    engine: str, ending: str, tmp_path: Path, answer: Callable[..., Any]
) -> None:
    options: dict[str, Any] = {"engine": engine, "context_length": 8_000, "config": {}, "store": tmp_path / "s.db"}
    session = Session.open("talk", system="Be brief.", model="m", **options)
    work(session, answer, 40)
    session.add({"role": "user", "content": "And now?"})
    before, usage = session.window, session.usage()
    assert usage.compactions > 0
    if ending == "closed":
        session.close()
    with Session.open("talk", system="Be brief.", model="m", **options) as resumed:
        assert resumed.window == before
        assert resumed.usage().compactions == usage.compactions
        assert resumed.usage().conversation == usage.conversation
        work(resumed, answer, 10, first=100)
        assert violations(resumed.window, "openai") == []


@pytest.mark.slow
def test_the_providers_count_survives_a_restart(tmp_path: Path, answer: Callable[..., Any]) -> None:
    with Session.open("talk", store=tmp_path / "s.db", config={}, model="m") as session:
        session.add({"role": "user", "content": "Hello"})
        session.request()
        session.record(answer("Hi.", tokens=12_345))
    with Session.open("talk", store=tmp_path / "s.db", config={}, model="m") as session:
        assert session.usage().reported
        assert 12_345 < session.usage().tokens < 12_400


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_the_journal_shows_the_window_of_every_request(engine: str, opened: Any, answer: Callable[..., Any]) -> None:
    session = opened(engine=engine, context_length=8_000, system="Be brief.")
    sent: list[list[Message]] = []
    for n in range(40):
        session.add({"role": "user", "content": f"Question {n}: " + "what is there? " * 40})
        session.request()
        sent.append(session.window)
        session.record(answer(f"Answer {n}: " + "containers. " * 40, tokens=session.usage().tokens))
    rows = session.store.journal(session.id)
    asked = [row for row in rows if row.reason == "request"]
    assert len(asked) == 40
    assert len(rows) > 40  # the folds have rows of their own
    for row, window in zip(asked, sent, strict=True):
        items = session.store.window_at(session.id, row.number)
        shown = [item["m"] for item in items if "m" in item and item.get("as", 1) is not None]
        messages = {i: found.message for i, found in session.store.get(shown).items()}
        assert [messages[i] for i in shown][-1] == window[-1]
        assert row.usage["prompt_tokens"] > 0
        assert row.prefix
    assert len({row.prefix for row in asked}) == 40


def test_an_unanswered_request_is_journalled_too(opened: Any, answer: Callable[..., Any]) -> None:
    session = opened()
    session.add({"role": "user", "content": "Hello"})
    session.request()
    session.request()
    session.record(answer("Hi."))
    assert [row.report.get("error", "") for row in session.store.journal("talk")] == ["no answer was recorded", ""]


def test_what_the_caller_does_to_its_dicts_afterwards_changes_nothing(opened: Any, answer: Callable[..., Any]) -> None:
    session = opened()
    message: Message = {"role": "user", "content": [{"type": "text", "text": "Hello"}]}
    session.add(message)
    message["content"][0]["text"] = "changed"
    message["role"] = "tool"
    expected: Message = {"role": "user", "content": [{"type": "text", "text": "Hello"}]}
    assert session.window == [expected]
    assert stored(session) == [expected]
    session.window[0]["content"] = "changed"
    session.request()["messages"].append("x")
    assert session.window == [expected]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_undo_takes_back_the_last_turn_and_keeps_it_in_the_store(
    engine: str, tmp_path: Path, answer: Callable[..., Any]
) -> None:
    options: dict[str, Any] = {"engine": engine, "context_length": 8_000, "config": {}, "store": tmp_path / "s.db"}
    with Session.open("talk", **options) as session:
        work(session, answer, 30)
        before, folded = session.window, session.usage().compactions
        said = work(session, answer, 1, first=77)
        removed = session.undo()
        assert [m["role"] for m in removed] == ["user", "assistant", "tool", "assistant"]
        assert removed == said
        if session.usage().compactions == folded:
            assert session.window == before
        assert session.done
        live = stored(session)
        assert not any(m in live for m in said)
        everything = [row.message for row in session.store.messages("talk", superseded=True)]
        assert all(m in everything for m in said)
        after = session.window
    with Session.open("talk", **options) as resumed:
        assert resumed.window == after
        work(resumed, answer, 12, first=200)
        assert violations(resumed.window, "openai") == []
        if engine == "lcm":
            assert verify(resumed.store, "talk") == []


def test_undo_and_ask_again(opened: Any, answer: Callable[..., Any]) -> None:
    session = opened()
    session.add({"role": "user", "content": "Hello"})
    session.request()
    session.record(answer("Hi."))
    session.add(session.undo()[0])
    assert not session.done
    session.request()
    session.record(answer("Good morning."))
    assert [m["content"] for m in session.window] == ["Hello", "Good morning."]
    assert [m["content"] for m in stored(session)] == ["Hello", "Good morning."]


def test_undo_without_a_message_of_the_user_does_nothing(opened: Any) -> None:
    session = opened(system="Be brief.")
    assert session.undo() == []
    assert len(session.window) == 1


def test_two_messages_in_a_row_and_open_calls_are_mended_visibly_and_stay_so(
    opened: Any, answer: Callable[..., Any]
) -> None:
    for engine in ENGINES:
        session = opened(f"mend-{engine}", engine=engine)
        session.add({"role": "user", "content": "One."})
        session.add({"role": "user", "content": "Two."})
        assert [m["content"] for m in session.request()["messages"]] == ["One.", NO_REPLY, "Two."]
        session.record(answer(None, ("read_file", {"path": "a"})))
        session.add({"role": "user", "content": "Stop that."})
        sent = session.request()["messages"]
        assert [m["content"] for m in sent] == ["One.", NO_REPLY, "Two.", None, STUB_RESULT, "Stop that."]
        session.record(answer(""))
        session.add({"role": "user", "content": "Well?"})
        sent = session.request()["messages"]
        assert [m["content"] for m in sent][-2:] == [EMPTY_ASSISTANT, "Well?"]
        assert violations(sent, "anthropic") == []
        said = [m["content"] for m in stored(session)]
        assert said == ["One.", "Two.", None, "Stop that.", "", "Well?"]


def test_a_result_that_comes_late_takes_the_place_of_its_stub(opened: Any, answer: Callable[..., Any]) -> None:
    session = opened()
    session.add({"role": "user", "content": "Read it."})
    session.request()
    (call,) = session.record(answer(None, ("read_file", {"path": "a"})))
    session.add({"role": "user", "content": "Meanwhile, hello."})
    session.request()
    session.record(answer("Hello."))
    session.add(tool_result(call, "the file"))
    session.add({"role": "user", "content": "And?"})
    sent = session.request()["messages"]
    assert [m["content"] for m in sent] == ["Read it.", None, "the file", "Meanwhile, hello.", "Hello.", "And?"]


def test_calls_that_are_numbered_anew_in_every_answer_get_ids_of_their_own(
    opened: Any, answer: Callable[..., Any]
) -> None:
    session = opened()
    session.add({"role": "user", "content": "Read them."})
    ids = []
    for n in range(3):
        session.request()
        (call,) = session.record(answer(None, ("read_file", {"path": str(n)}), id_="call_0"))
        ids.append(call.id)
        session.add(tool_result("call_0" if n == 1 else call, f"file {n}"))
    sent = session.request()["messages"]
    assert len(set(ids)) == 3
    assert violations(sent, "anthropic") == []
    assert [m["content"] for m in sent if m["role"] == "tool"] == ["file 0", "file 1", "file 2"]


def read_twice(answer: Callable[..., Any]) -> list[str]:
    """Call tools with ids that repeat, each time opened again before the result; returns the results that are sent."""
    store = SQLiteStore(None)

    def opened() -> Session:
        return Session.open("talk", store=store, config={}, model="m", context_length=100_000)

    session = opened()
    session.add({"role": "user", "content": "Read them."})
    for n in range(3):
        session.request()
        session.record(answer(None, ("read_file", {"path": str(n)}), id_="call_0"))
        session = opened()
        session.add(tool_result("call_0", f"file {n}"))
    return [str(message["content"]) for message in session.request()["messages"] if message["role"] == "tool"]


def test_a_result_finds_its_call_in_a_session_that_was_opened_again(answer: Callable[..., Any]) -> None:
    """Another process of a gateway takes the result; the client knows the call by the id that the provider gave it."""
    assert read_twice(answer) == ["file 0", "file 1", "file 2"]


def test_planted_ids_that_nobody_remembers(answer: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "renamed_calls", lambda _: {})
    assert STUB_RESULT in read_twice(answer)


def test_a_result_whose_id_is_repaired_is_still_the_stored_one(opened: Any) -> None:
    """A client's whole history has the same id twice: the window shows each result as what was said."""
    session = opened()
    for n in range(3):
        call = {"id": "call_0", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}
        session.add({"role": "user", "content": f"Read file {n}."})
        session.add({"role": "assistant", "content": None, "tool_calls": [call]})
        session.add(tool_result("call_0", f"file {n}"))
    session.request()
    results = [entry for entry in session._conversation.window if entry.role == "tool"]
    assert [[message["content"] for message in entry.source_messages] for entry in results] == [
        ["file 0"],
        ["file 1"],
        ["file 2"],
    ]


class Failing(SQLiteStore):
    """A store whose writing can be made to fail."""

    fails = False

    def append(self, *args: Any, **options: Any) -> tuple[str, ...]:
        if self.fails:
            raise StoreBusyError("it is in use by others.")
        return super().append(*args, **options)

    def record_request(self, *args: Any, **options: Any) -> int:
        if self.fails:
            raise StoreBusyError("it is in use by others.")
        return super().record_request(*args, **options)


def test_a_store_that_fails_for_a_while_loses_nothing(opened: Any, answer: Callable[..., Any]) -> None:
    store = Failing(None)
    session = opened(store=store)
    said = work(session, answer, 3)
    store.fails = True
    said += work(session, answer, 3, first=10)
    assert any("not stored" in str(event) for event in session.told if isinstance(event, Notice))
    store.fails = False
    said += work(session, answer, 3, first=20)
    assert stored(session) == said
    assert violations(session.window, "openai") == []


def test_what_can_never_be_stored_is_said_when_the_session_closes(answer: Callable[..., Any]) -> None:
    store = Failing(None)
    session = Session.open("talk", store=store, config={}, on_event=lambda _: None)
    session.add({"role": "user", "content": "Hello"})
    store.fails = True
    session.record(answer("Hi."))
    with pytest.raises(StoreError, match=r"1 message could not be stored .*: it is in use by others\. Once the store"):
        session.close()


def test_a_store_that_stays_locked_is_named_with_what_helps(tmp_path: Path, answer: Callable[..., Any]) -> None:
    path = tmp_path / "talk.db"
    store = SQLiteStore(path, busy_seconds=0.05)
    told: list[Any] = []
    session = Session.open("talk", store=store, config={}, on_event=told.append)
    session.add({"role": "user", "content": "Hello"})
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        session.record(answer("Hi."))
        with pytest.raises(StoreError) as closed:
            session.close()
    notices = " ".join(str(event) for event in told if isinstance(event, Notice))
    assert f"not stored at the moment: {path}: another process kept it locked for more than 0.05 s." in notices
    assert f"`fuser {path}` finds it" in notices
    assert "1 message could not be stored before the session was closed: another process kept it" in str(closed.value)
    assert "repeat what is missing" in str(closed.value)
    store.close()


def test_a_value_that_is_no_json_is_refused_and_nothing_entered(opened: Any) -> None:
    for store in (":memory:", Failing(None)):
        session = opened(store=store)
        if isinstance(store, Failing):
            store.fails = True
        with pytest.raises(MessageError, match="content"):
            session.add({"role": "user", "content": {1, 2}})
        with pytest.raises(MessageError):
            session.add("Hello")
        with pytest.raises(MessageError, match="role"):
            session.add({"role": "pirate", "content": "Hello"})
        assert session.window == []


def test_nothing_to_send_and_a_closed_session_are_said_clearly(opened: Any) -> None:
    session = opened(system="Be brief.")
    assert session.done
    with pytest.raises(SessionError, match="add a message of the user"):
        session.request()
    session.close()
    with pytest.raises(SessionError, match=r"open it again with Session\.open\('talk'\)"):
        session.add({"role": "user", "content": "Hello"})


@pytest.mark.slow
def test_another_system_prompt_takes_the_place_of_the_old_one(tmp_path: Path, answer: Callable[..., Any]) -> None:
    options: dict[str, Any] = {"config": {}, "store": tmp_path / "s.db"}
    with Session.open("talk", system="Be brief.", **options) as session:
        work(session, answer, 1)
        before = session.window
    with Session.open("talk", system="Be long.", **options) as session:
        assert session.window == [{"role": "system", "content": "Be long."}, *before[1:]]
        session.request()
    with Session.open("talk", **options) as session:
        assert session.window[0]["content"] == "Be long."


def test_a_conversation_that_was_only_stored_can_be_opened(tmp_path: Path) -> None:
    store = open_store(tmp_path / "s.db")
    said: list[Message] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    store.append("old", said)
    store.close()
    with Session.open("old", store=tmp_path / "s.db", config={}) as session:
        assert session.window == said


def test_a_conversation_that_lcm_must_not_keep_is_kept_nowhere(home: Path, answer: Callable[..., Any]) -> None:
    config = {"context": {"engine": "lcm"}, "lcm": {"ignore_sessions": ["private-*"]}}
    with Session.open("private-1", config=config) as session:
        work(session, answer, 2)
    assert not (home / "leporello.db").exists()


@pytest.mark.slow
def test_conversations_belong_to_their_owner(tmp_path: Path, answer: Callable[..., Any]) -> None:
    for owner in ("anna", "ben"):
        with Session.open("talk", owner=owner, store=tmp_path / "s.db", config={}, engine="lcm") as session:
            assert session.window == []
            session.add({"role": "user", "content": f"I am {owner}."})
            session.request()
            session.record(answer(None, ("lcm_grep", {"query": "am"})))
            assert "ben" not in session.window[-1]["content"] or owner == "ben"
            assert "anna" not in session.window[-1]["content"] or owner == "anna"


@pytest.mark.slow
def test_an_engine_that_changes_midway_finds_the_window_of_the_other(
    tmp_path: Path, answer: Callable[..., Any]
) -> None:
    said: list[Message] = []
    for n, engine in enumerate(("lcm", "compressor", "lcm")):
        with Session.open(
            "talk", engine=engine, store=tmp_path / "s.db", config={}, context_length=8_000, on_event=lambda _: None
        ) as session:
            said += work(session, answer, 30, first=100 * n)
            assert violations(session.window, "anthropic") == []
            assert stored(session) == said


def test_a_recording_engine_sees_the_mended_list(opened: Any) -> None:
    engine = RecordingEngine()
    session = opened(engine=engine)
    session.add({"role": "user", "content": "One."})
    session.add({"role": "user", "content": "Two."})
    session.request()
    (call,) = [call for call in engine.calls if call.method == "should_compress_preflight"]
    assert violations(call.args[0], "openai") == []


def listed(store: SQLiteStore) -> list[str]:
    return [conversation.key for conversation in store.conversations()]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_conversation_in_which_nothing_was_said_leaves_nothing_behind(
    engine: str, opened: Any, answer: Callable[..., Any]
) -> None:
    store = SQLiteStore(None)
    session = opened(engine=engine, store=store, system="Be brief.")
    session.reset("another")
    session.close()
    assert listed(store) == []
    with Session.open("talk", engine=engine, store=store, config={}, system="Be brief.", model="m") as spoken:
        work(spoken, answer, 1)
    assert listed(store) == ["talk"], "the same look finds one in which something was said"


def test_the_system_prompt_is_stored_with_the_first_message_that_is(opened: Any) -> None:
    session = opened(system="Be brief.")
    with pytest.raises(MessageError):
        session.add({"role": "user", "content": {1, 2}})
    assert session.store.info(session.id) is None, "nothing was said"
    session.add({"role": "user", "content": "Hello"})
    everything = [row.message["content"] for row in session.store.messages(session.id, system=True)]
    assert everything == ["Be brief.", "Hello"]


def test_planted_a_prompt_that_is_stored_before_anything_is_said(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Conversation.set_system_prompt

    def at_once(conversation: Conversation, text: str) -> None:
        whole(conversation, text)
        prompt, conversation.persistence.unstored_prompt = conversation.persistence.unstored_prompt, []
        conversation.persistence.store(conversation.window, prompt)

    monkeypatch.setattr(Conversation, "set_system_prompt", at_once)
    with pytest.raises(AssertionError, match="nothing was said"):
        test_the_system_prompt_is_stored_with_the_first_message_that_is(opened)


_STOP = {
    "sqlite": "CREATE TRIGGER stop BEFORE INSERT ON requests BEGIN SELECT RAISE(ABORT, 'no'); END",
    "postgresql": "ALTER TABLE requests ADD CONSTRAINT stop CHECK (false) NOT VALID",
}
_GO_ON = {"sqlite": "DROP TRIGGER stop", "postgresql": "ALTER TABLE requests DROP CONSTRAINT stop"}


def test_an_answer_and_the_row_of_its_request_are_stored_together_or_not_at_all(
    opened: Any, answer: Callable[..., Any], database: str
) -> None:
    """Whatever stops the row stops the answer too; both wait for the next chance, in their order."""
    store = SQLiteStore(None)
    session = opened(store=store)
    session.add({"role": "user", "content": "Hello"})
    session.request()
    with store._db.write() as connection:
        connection.execute(_STOP[database])
    session.record(answer("Hi."))
    assert [m["content"] for m in stored(session)] == ["Hello"]
    with store._db.write() as connection:
        connection.execute(_GO_ON[database])
    session.add({"role": "user", "content": "How are you?"})
    session.request()
    session.record(answer("Well."))
    assert [m["content"] for m in stored(session)] == ["Hello", "Hi.", "How are you?", "Well."]
    late, row = store.journal(session.id)
    ids = [message.id for message in store.messages(session.id)]
    assert [item["m"] for item in late.added] == ids[:2], "the window as it was when the row could be written"
    assert (row.keep, [item["m"] for item in row.added]) == (2, ids[2:3])


class Counting(SQLiteStore):
    """A store that counts the lists it was handed."""

    lists = 0

    def ingest(self, *args: Any, **options: Any) -> Any:
        self.lists += 1
        return super().ingest(*args, **options)


def test_an_engine_in_the_same_store_does_not_store_again_what_the_session_stored(
    opened: Any, answer: Callable[..., Any]
) -> None:
    store = Counting(None)
    session = opened(engine="lcm", store=store, context_length=16_000)
    said = work(session, answer, 8)
    assert store.lists == 0
    assert session.compress().status == "folded"
    assert store.lists == 0, "what a message stands for is known by id"
    session.close()
    assert [row.message for row in store.messages("talk")] == said
    assert store.artifacts("talk", limit=1), "what was done is gathered all the same"


def test_an_engine_with_a_store_of_its_own_stores_by_itself(opened: Any, answer: Callable[..., Any]) -> None:
    own = Counting(None)
    session = opened(engine=LCMEngine(200_000, store=own))
    said = work(session, answer, 3)
    assert own.lists > 0
    assert [row.message for row in own.messages("talk")] == said


@pytest.mark.parametrize("engine", ENGINES)
def test_a_request_without_an_answer_does_not_cut_off_what_was_folded_after_it(
    engine: str, opened: Any, answer: Callable[..., Any]
) -> None:
    store = SQLiteStore(None)
    session = opened(engine=engine, store=store, context_length=16_000)
    work(session, answer, 8)
    session.add({"role": "user", "content": "Go on."})
    session.request()
    assert session.compress().status in ("folded", "fallback")
    window = session.window
    session.close()
    assert verify(store, "talk") == []
    with Session.open("talk", engine=engine, store=store, config={}, context_length=16_000, model="m") as resumed:
        assert resumed.window == window
