"""The figures are true: the session, a resumed one, `sessions show` and the store say the same."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from leporello import LCMEngine
from leporello.cli.main import commands
from leporello.errors import StoreError
from leporello.events import CompactionFinished, CompactionStarted
from leporello.llm import Completion, ScriptedLLM
from leporello.prices import cost
from leporello.session import Session
from leporello.session.events import RequestReady
from leporello.store.sqlite import SQLiteStore
from leporello.testing.lifecycle import RecordingEngine
from leporello.testing.manual_executor import ManualExecutor
from leporello.tokens import count_messages

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from leporello.messages import Message

pytestmark = pytest.mark.slow

MODEL = "claude-sonnet-5"
USAGE = {"prompt_tokens": 1_000, "completion_tokens": 100, "total_tokens": 1_100}
SUMMARY = Completion(text="## Goal\nPut the yard in order.", usage=USAGE, model=MODEL)  # type: ignore[arg-type]
EACH = cost(USAGE, MODEL, "anthropic") or 0.0
PICTURE: dict[str, Any] = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
ENGINES = ("compressor", "lcm")


def summariser() -> ScriptedLLM:
    return ScriptedLLM(SUMMARY, model=MODEL, provider="anthropic", context_length=64_000)


def figures(session: Session) -> dict[str, Any]:
    usage = session.usage()
    return {
        **asdict(usage.conversation),
        "compactions": usage.compactions,
        "prefix_moves": usage.prefix_moves,
        "window_messages": usage.messages,
    }


def shown(path: Path) -> dict[str, Any]:
    """Return the same figures from `leporello sessions show`."""
    run = CliRunner().invoke(commands, ["sessions", "show", "talk", "--store", str(path), "--json"])
    assert run.exit_code == 0, run.output
    return json.loads(run.stdout)  # type: ignore[no-any-return]


def opened_on(
    store: Any, engine: str, llm: Any, *, on_event: Any = lambda _: None, executor: ManualExecutor | None = None
) -> Session:
    kept = store if isinstance(store, SQLiteStore) else SQLiteStore(store)
    own: Any = engine
    options: dict[str, Any] = {"llm": llm}
    if engine == "lcm":
        own, options = LCMEngine(16_000, llm=llm, store=kept, executor=executor or ManualExecutor()), {}
    return Session.open(
        "talk",
        store=kept,
        engine=own,
        model=MODEL,
        provider="anthropic",
        context_length=16_000,
        system="You are the harbour's assistant.",
        config={},
        on_event=on_event,
        **options,
    )


def live_through(session: Session, answer: Callable[..., Any]) -> None:
    """Answer, fail, compress, undo, and ask an engine tool that calls a model."""

    def said(text: str, *calls: Any) -> None:
        session.add({"role": "user", "content": f"{text} " + "What is in the yard? " * 120})
        session.request()
        session.record(answer(f"{text} was answered. " * 20, *calls, tokens=count_messages(session.window) + 300))

    for n in range(12):
        said(f"question {n}")
    session.add({"role": "user", "content": "This one fails."})
    session.request()
    assert not session.recover(ConnectionError("away"))
    said("after the failure")
    session.compress()
    session.undo()
    said("after the undo")
    if session.engine.name == "lcm":
        said("recall", ("lcm_expand_query", {"question": "question 3"}))
        session.request()
        session.record(answer("It was in the yard.", tokens=2_000))


def check(store: Any, path: Path, engine: str, answer: Callable[..., Any]) -> None:
    """Live through a conversation; the session, the next session on the same store and the command agree."""
    llm = summariser()
    with opened_on(store, engine, llm) as session:
        live_through(session, answer)
        live = figures(session)
    assert live["compactions"] > 0
    assert live["engine_calls"] == len(llm.calls) > 0
    assert live["cost_usd"] > EACH * len(llm.calls)
    with opened_on(SQLiteStore(path), engine, llm) as again:
        resumed = figures(again)
    command = shown(path)
    assert resumed == live
    assert {name: command[name] for name in live} == live


@pytest.mark.parametrize("engine", ENGINES)
def test_the_session_a_resumed_one_and_the_command_agree(
    tmp_path: Path, engine: str, answer: Callable[..., Any]
) -> None:
    check(tmp_path / "s.db", tmp_path / "s.db", engine, answer)


class Leaky(SQLiteStore):
    """A store with a planted defect: what a compaction cost is lost."""

    def save_window(self, conversation: str, window: Any, request: Any, **options: Any) -> Any:
        """Save the window, and lose the report."""
        return super().save_window(conversation, window, replace(request, report={}, cost_usd=None), **options)


class Outage(SQLiteStore):
    """A store that refuses every write while `down`."""

    down = False

    def append(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse or store."""
        return self._unless_down(super().append, *args, **kwargs)

    def record_request(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse or write."""
        return self._unless_down(super().record_request, *args, **kwargs)

    def save_window(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse or save."""
        return self._unless_down(super().save_window, *args, **kwargs)

    def _unless_down(self, write: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self.down:
            raise StoreError("the disk is full.")
        return write(*args, **kwargs)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_check_catches_a_journal_with_gaps(tmp_path: Path, engine: str, answer: Callable[..., Any]) -> None:
    path = tmp_path / "s.db"
    with pytest.raises(AssertionError):
        check(Leaky(path), path, engine, answer)


def test_what_was_spent_while_the_store_was_away_is_in_the_journal_afterwards(
    tmp_path: Path, answer: Callable[..., Any]
) -> None:
    store = Outage(tmp_path / "s.db")
    with opened_on(store, "compressor", summariser()) as session:
        for n in range(14):
            store.down = n in (10, 11)
            session.add({"role": "user", "content": f"Question {n} " + "about the yard " * 200})
            session.request()
            session.record(answer(f"Answer {n}.", tokens=900 + n))
            if n == 11:
                assert session.compress().status == "folded"
                assert session.usage().conversation.requests == 12
        live = figures(session)
    assert (live["requests"], live["compactions"]) == (14, 1)
    with opened_on(SQLiteStore(tmp_path / "s.db"), "compressor", summariser()) as again:
        resumed = figures(again)
    assert resumed == live


def test_summaries_of_the_background_are_in_the_reports_and_in_the_sums(
    tmp_path: Path, answer: Callable[..., Any]
) -> None:
    background, llm, reports = ManualExecutor(), summariser(), []

    def listen(event: Any) -> None:
        if isinstance(event, CompactionFinished):
            reports.append(event)

    with opened_on(tmp_path / "s.db", "lcm", llm, executor=background, on_event=listen) as session:
        for n in range(60):
            session.add({"role": "user", "content": f"Question {n}: " + "which vessel lies at the quay? " * 30})
            session.request()
            session.record(answer(f"Answer {n}. " * 40, tokens=count_messages(session.window) + 300))
            background.run()
            if reports and not any(session.store.prepared_nodes("talk")):
                break
        usage = session.usage()
    assert sum(report.model_calls for report in reports) == len(llm.calls) > 0
    assert sum(report.cost_usd or 0.0 for report in reports) == pytest.approx(EACH * len(llm.calls))
    assert usage.conversation.engine_calls == len(llm.calls)
    assert usage.compactions == sum(report.status == "folded" for report in reports)


def test_events_say_what_they_count(answer: Callable[..., Any], opened: Any) -> None:
    tool = {"type": "function", "function": {"name": "read", "description": "Read a file. " * 50, "parameters": {}}}
    session = opened(engine=RecordingEngine(fires_at=(3,)), system="You are careful. " * 50)
    for n in range(4):
        session.add({"role": "user", "content": f"Question {n} " + "about the yard " * 100})
        window = session.window
        session.request([tool])
        session.record(answer(f"Answer {n}."))
        if any(isinstance(event, CompactionFinished) for event in session.told):
            break
    (started,) = [event for event in session.told if isinstance(event, CompactionStarted)]
    (finished,) = [event for event in session.told if isinstance(event, CompactionFinished)]
    ready = [event for event in session.told if isinstance(event, RequestReady)]
    assert started.tokens == finished.tokens_before == sum(count_messages([message]) for message in window)
    assert started.prompt_tokens > started.tokens + 100  # the tools are in it
    assert ready[-1].tokens > finished.tokens_after


class Drawing(RecordingEngine):
    """An engine whose summary is a message of parts, with a picture in it."""

    def compress(self, messages: list[Message], *args: Any, **kwargs: Any) -> list[Message]:
        """Put a picture before the newest turn."""
        folded = super().compress(messages, *args, **kwargs)
        parts = [{"type": "text", "text": "What was said so far."}, PICTURE]
        seen: Message = {"role": "assistant", "content": "I have seen it."}
        return [folded[0], {"role": "user", "content": parts}, seen, *folded[1:]]


@pytest.mark.parametrize("engine", [*ENGINES, "drawing"])
def test_a_window_with_pictures_is_counted_folded_and_resumed(
    tmp_path: Path, engine: str, answer: Callable[..., Any]
) -> None:
    def talk() -> Session:
        if engine != "drawing":
            return opened_on(tmp_path / "s.db", engine, summariser())
        return Session.open(
            "talk", engine=Drawing(), store=tmp_path / "s.db", model=MODEL, config={}, system="You are careful."
        )

    with talk() as session:
        for n in range(14):
            text = {"type": "text", "text": f"Question {n} " + "about this picture of the yard " * 60}
            session.add({"role": "user", "content": [text, PICTURE]})
            session.request()
            session.record(answer(f"Answer {n}. " * 20, tokens=count_messages(session.window) + 300))
            assert session.usage().parts.tail > 0
        assert session.compress().status == "folded"
        usage, window = session.usage(), session.window
        assert usage.parts.summaries > 0
    with talk() as again:
        assert again.window == window
        assert again.usage().messages == usage.messages
        assert again.usage().parts.summaries > 0
    assert shown(tmp_path / "s.db")["window_messages"] == len(window)
