"""Whatever happens to a conversation, opened again it shows what it showed: after forks, outages, stale folds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from leporello import LCMEngine
from leporello.errors import StoreError
from leporello.events import Notice
from leporello.lcm import verify
from leporello.llm import ScriptedLLM
from leporello.messages import violations
from leporello.session import Session, lease
from leporello.session.persistence import Persistence
from leporello.store.sqlite import SQLiteStore
from leporello.testing.lifecycle import RecordingEngine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from leporello.messages import Message

ENGINES = ("compressor", "lcm")
SUMMARY = "## Goal\nThe parts are looked at.\n\n## Progress\n### Done\n- Parts were read and are in order.\n"


class Away(SQLiteStore):
    """A store of which some methods cannot be used."""

    away: tuple[str, ...] = ()

    def fork(self, *args: Any, **options: Any) -> int:
        self._check("fork")
        return super().fork(*args, **options)

    def append(self, *args: Any, **options: Any) -> tuple[str, ...]:
        self._check("append")
        return super().append(*args, **options)

    def save_window(self, *args: Any, **options: Any) -> Any:
        self._check("save_window")
        return super().save_window(*args, **options)

    def record_request(self, *args: Any, **options: Any) -> int:
        self._check("record_request")
        return super().record_request(*args, **options)

    def _check(self, name: str) -> None:
        if name in self.away:
            raise StoreError("the disk is full.")


class Talk:
    """A session, and how to go on with it."""

    def __init__(self, answer: Callable[..., Any], engine: Any = "lcm", window: int = 100_000, **options: Any) -> None:
        self.answer, self.engine, self.window = answer, engine, window
        self.store = options.pop("store", None) or Away(None)
        self.session = self.opened(**options)

    def opened(self, **options: Any) -> Session:
        given: dict[str, Any] = {"store": self.store, "engine": self.engine, "context_length": self.window}
        return Session.open("talk", config={}, model="m", **{**given, **options})

    def ask(self, turns: int, first: int = 0) -> None:
        for n in range(first, first + turns):
            self.session.add({"role": "user", "content": f"Request {n}: look at src/part_{n}.py"})
            self.session.request()
            text = "\n".join(f"line {k} has {k * n}" for k in range(80))
            self.session.record(self.answer(f"Part {n} is in order.\n{text}"))

    def call(self, id_: str) -> None:
        """Let the model call a tool, and go on without its result."""
        self.session.add({"role": "user", "content": "Read it."})
        self.session.request()
        self.session.record(self.answer(None, ("read_file", {"path": "x.py"}), id_=id_))
        self.session.add({"role": "user", "content": "Meanwhile, go on."})

    def resumed(self) -> list[Message]:
        self.session.close()
        return self.opened().window


def new_prompt(talk: Talk) -> None:
    talk.session._conversation.set_system_prompt("Be brief.")


def late_result(talk: Talk) -> None:
    talk.call("slow")
    talk.session.request()
    talk.session.record(talk.answer("I go on."))
    talk.session.add({"role": "tool", "tool_call_id": "slow", "content": "late"})


def fold(talk: Talk) -> None:
    talk.session.compress()


def undo_without_the_store(talk: Talk) -> None:
    talk.store.away = ("fork",)
    talk.session.undo()
    talk.store.away = ()


def lost(answer: Callable[..., Any], engine: str, before: Callable[[Talk], None]) -> int:
    """Change the window, leave the branch, go on; return how many messages the resumed window lacks."""
    talk = Talk(answer, engine)
    talk.ask(6)
    before(talk)
    talk.ask(3, first=10)
    undo_without_the_store(talk)
    talk.ask(1, first=20)
    live = talk.session.window
    resumed = talk.resumed()
    assert verify(talk.store, "talk") == []
    return sum(message not in resumed for message in live)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("before", [new_prompt, late_result, fold])
def test_a_fork_that_the_window_does_not_follow_at_once(
    engine: str, before: Callable[[Talk], None], answer: Callable[..., Any]
) -> None:
    assert lost(answer, engine, before) == 0


def test_a_journal_that_goes_on_counting_on_the_branch_that_was_left_is_caught(
    answer: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: the next row adds to a window that the fork does not have."""
    whole = Persistence._fork_before

    def careless(self: Persistence, id_: str) -> None:
        before = self.journalled, self._items
        whole(self, id_)
        self.journalled, self._items = before

    monkeypatch.setattr(Persistence, "_fork_before", careless)
    assert lost(answer, "lcm", late_result) > 0


@pytest.mark.parametrize("then", ["close", "fork", "compress"])
def test_an_undo_that_waited_for_the_store_is_not_forgotten(then: str, answer: Callable[..., Any]) -> None:
    talk = Talk(answer, window=16_000)
    talk.ask(14)
    talk.session.add({"role": "user", "content": "SECRET, taken back"})
    talk.session.request()
    talk.session.record(answer("About SECRET in src/secret.py. " + "words " * 600))
    undo_without_the_store(talk)
    if then == "compress":
        assert talk.session.compress().status == "folded"
        shown = talk.session.window
    else:
        shown = talk.session.fork().window if then == "fork" else talk.resumed()
    assert "SECRET" not in str(shown)
    assert verify(talk.store, "talk") == []


def test_an_undo_that_cannot_be_stored_is_told_at_the_end(answer: Callable[..., Any]) -> None:
    talk = Talk(answer)
    talk.ask(3)
    talk.store.away = ("fork",)
    talk.session.undo()
    with pytest.raises(StoreError, match="an undo could not be stored"):
        talk.session.close()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_late_result_finds_its_stub_after_a_fold_and_a_resume(engine: str, answer: Callable[..., Any]) -> None:
    talk = Talk(answer, engine, 16_000)
    talk.ask(12)
    talk.call("slow")
    talk.session.request()
    talk.session.record(answer("I go on."))
    talk.session.compress()
    talk.ask(1, first=30)
    talk.session.close()
    resumed = talk.opened()
    resumed.add({"role": "tool", "tool_call_id": "slow", "content": "LATE"}, {"role": "user", "content": "And now?"})
    messages = resumed.request()["messages"]
    assert "LATE" in [message["content"] for message in messages if message["role"] == "tool"]
    assert violations(messages, "openai") == []


def test_a_pinned_answer_that_stands_beside_a_summary_is_resumed(answer: Callable[..., Any]) -> None:
    talk = Talk(answer, "compressor", 16_000)
    talk.ask(14)
    answers = [row.id for row in talk.store.messages("talk") if row.role == "assistant"]
    talk.session.pin(answers[2])
    assert talk.session.compress().status in ("folded", "fallback")
    talk.ask(1, first=30)
    assert any("Part 2 is in order" in str(message["content"]) for message in talk.resumed())


# engines that are handed over


class Overtaken(LCMEngine):
    """Another process folds the conversation while this engine is at it."""

    meanwhile: Callable[[], object] | None = None

    def compress(self, *args: Any, **options: Any) -> list[Message]:
        result = super().compress(*args, **options)
        if self.meanwhile:
            work, self.meanwhile = self.meanwhile, None
            work()
        return result


@pytest.fixture
def overtaken(answer: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Talk:
    """A conversation whose next fold comes too late, with a call in it that nobody has answered."""
    store = Away(None)
    talk = Talk(answer, Overtaken(16_000, store=store), 16_000, store=store)
    talk.ask(12)
    talk.call("open")
    monkeypatch.setattr(lease.Lease, "acquire", lambda *_: True)  # the lease of the other one has run out
    talk.session.engine.meanwhile = lambda: talk.opened(engine="lcm").compress()  # type: ignore[attr-defined]
    return talk


def test_a_request_after_a_fold_of_another_process_is_valid(overtaken: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overtaken.session.engine, "should_compress", lambda *_: True)
    assert violations(overtaken.session.request()["messages"], "openai") == []
    assert verify(overtaken.store, "talk") == []


def test_a_request_that_another_process_has_folded_meanwhile_may_be_sent_again(overtaken: Talk) -> None:
    error = RuntimeError("This model's maximum context length is 16000 tokens; your messages resulted in 17000 tokens.")
    error.status_code = 400  # type: ignore[attr-defined]
    overtaken.session.request()
    assert overtaken.session.recover(error)


def test_what_a_dropped_fold_cost_is_told_and_written_down(answer: Callable[..., Any]) -> None:
    store, llm = Away(None), ScriptedLLM(SUMMARY, context_length=64_000)
    engine = LCMEngine(16_000, store=store, llm=llm, config={"background": False})
    talk = Talk(answer, engine, 16_000, store=store)
    talk.ask(14)
    store.away = ("save_window",)
    assert talk.session.compress().model_calls == len(llm.calls) > 0
    assert talk.session.usage().conversation.engine_calls == len(llm.calls)


@pytest.mark.slow
def test_an_engine_with_the_file_of_the_session_works_on_its_branch(answer: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    talk = Talk(answer, LCMEngine(16_000, store=path), 16_000, store=path)
    for fold_ in range(2):
        talk.ask(10, first=20 * fold_)
        assert talk.session.compress().status == "folded"
    assert talk.session.usage().compactions == 2
    assert [item for item in talk.session.store.window("talk").items if "n" in item]


class Failing(LCMEngine):
    """Fails after it has proposed a window; then it returns its list as it is."""

    fails = True

    def compress(self, messages: list[Message], *args: Any, **options: Any) -> list[Message]:
        if not self.fails:
            return messages[:1] + messages[-9:]
        super().compress(messages, *args, **options)
        raise RuntimeError("after all")


def test_a_proposal_of_a_call_that_failed_is_never_committed(answer: Callable[..., Any]) -> None:
    store = Away(None)
    engine = Failing(16_000, store=store)
    talk = Talk(answer, engine, 16_000, store=store)
    talk.ask(14)
    assert talk.session.compress().status == "refused"
    engine.fails = False
    talk.session.compress()
    assert not [item for item in store.window("talk").items if "n" in item]


def test_an_engine_that_was_handed_over_reports_to_the_session_that_uses_it(answer: Callable[..., Any]) -> None:
    engine, heard = LCMEngine(16_000), []
    first = Talk(answer, engine, 16_000, on_event=lambda _: heard.append("first"))
    first.session.close()
    heard.clear()
    assert engine.on_event is None
    second = Talk(answer, engine, 16_000, on_event=lambda _: heard.append("second"))
    engine.emit(Notice(session_id="", text="so it is"))
    assert heard == ["second"]
    second.session.close()


def test_an_engine_that_two_sessions_share_mixes_no_words(answer: Callable[..., Any]) -> None:
    engine, store = LCMEngine(16_000), Away(None)
    sessions = {}
    for name in ("anna", "bert"):
        session = Session.open(
            name, engine=engine, store=store, config={}, model="m", context_length=16_000, owner=name
        )
        for n in range(12):
            session.add({"role": "user", "content": f"{name} asks {n}"})
            session.request()
            session.record(answer(f"{name} {n} is in order.\n" + "words " * 200))
        sessions[name] = session
    store.away = ("save_window",)
    sessions["bert"].compress()
    store.away = ()
    sessions["anna"].compress()
    assert "bert" not in str(sessions["anna"].window)


def test_a_parameter_of_that_name_makes_no_engine_ours(opened: Any) -> None:
    class OnGit(RecordingEngine):
        def on_session_start(self, session_id: str, branch: str = "main", **kwargs: Any) -> None:
            self.on_git = branch

    engine = OnGit()
    session = opened(engine=engine)
    assert engine.on_git == "main"
    assert session._conversation.engine.is_foreign
