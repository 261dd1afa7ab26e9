"""What a session does with an engine's result, whatever engine made it."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest

from leporello import CompactionReport, ContextEngine
from leporello.events import CompactionFinished, CompactionStarted, Notice
from leporello.messages import is_system, role_of, violations
from leporello.store import open_store
from leporello.testing.lifecycle import RecordingEngine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from leporello.messages import Message
    from leporello.session import Session

Open = "Callable[..., Session]"
QUESTION: Message = {"role": "user", "content": "And now?"}


class Scripted(RecordingEngine):
    """An engine whose result is what a test makes of the list."""

    def __init__(self, make: Callable[[list[Message]], Any], **options: Any) -> None:
        super().__init__(**options)
        self.make = make

    def compress(self, messages: list[Message], *args: Any, **options: Any) -> Any:
        self._note("compress", **options)
        return self.make(messages)


def talked(session: Session, answer: Callable[..., Any], turns: int = 6) -> None:
    for n in range(turns):
        session.add({"role": "user", "content": f"Question {n}: what is in part {n} of the yard?"})
        session.request()
        session.record(answer(f"Answer {n}: containers, and a crane that waits for part {n}."))
    session.add(QUESTION)


def newest_turn(messages: list[Message]) -> list[Message]:
    newest = max(at for at, message in enumerate(messages) if role_of(message) == "user")
    return [*(message for message in messages if is_system(message)), *messages[newest:]]


BROKEN: dict[str, Callable[[list[Message]], Any]] = {
    "nothing": lambda _: None,
    "an empty list": lambda _: [],
    "no list": lambda messages: tuple(newest_turn(messages)),
    "no messages": lambda _: ["hello"],
    "a message that is no dict": lambda messages: [*newest_turn(messages), "hello"],
    "larger": lambda messages: [{**messages[0], "content": "x " * 9_000}, *messages[1:]],
    "without the newest message": lambda _: [{"role": "user", "content": "a summary"}],
    "the newest message changed": lambda messages: [{**newest_turn(messages)[-1], "content": "And then?"}],
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_result_is_refused_and_the_window_stays(kind: str, opened: Any, answer: Callable[..., Any]) -> None:
    session = opened(engine=Scripted(BROKEN[kind]))
    talked(session, answer)
    before = session.window
    report = session.compress()
    assert report.status == "refused"
    assert report.reason
    assert report.tokens_before == report.tokens_after > 0
    assert session.window == before
    assert session.usage().compactions == 0
    (finished,) = [event for event in session.told if isinstance(event, CompactionFinished)]
    assert (finished.status, finished.reason) == ("refused", report.reason)


def test_a_good_result_is_used(opened: Any, answer: Callable[..., Any]) -> None:
    """The same assertions would fail for a session that refuses everything."""
    session = opened(engine=Scripted(newest_turn))
    talked(session, answer)
    report = session.compress()
    assert (report.status, report.messages_before, report.messages_after) == ("folded", 13, 1)
    assert report.tokens_after < report.tokens_before
    assert session.window == [QUESTION]
    assert session.usage().compactions == 1


def test_an_engine_that_raises_is_refused_with_its_words(opened: Any, answer: Callable[..., Any]) -> None:
    def fails(messages: list[Message]) -> Any:
        raise RuntimeError("no room left in the attic")

    session = opened(engine=Scripted(fails))
    talked(session, answer)
    before = session.window
    report = session.compress()
    assert report.status == "refused"
    assert "engine 'recording' failed in compress(): RuntimeError: no room left in the attic" in report.reason
    assert session.window == before


def test_an_engine_that_changes_what_it_is_given_changes_nothing(opened: Any, answer: Callable[..., Any]) -> None:
    def vandal(messages: list[Message]) -> Any:
        for message in messages:
            message["content"] = "?"
        messages.clear()

    session = opened(engine=Scripted(vandal))
    talked(session, answer)
    before = session.window
    session.compress()
    assert session.window == before
    assert session.request()["messages"] == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [
        "on_session_start",
        "should_compress_preflight",
        "should_compress",
        "update_from_response",
        "on_turn_complete",
        "get_tool_schemas",
        "on_session_end",
    ],
)
def test_an_engine_that_raises_elsewhere_is_reported_once_and_the_conversation_goes_on(
    method: str, opened: Any, answer: Callable[..., Any]
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise ValueError("broken")

    engine = RecordingEngine()
    setattr(engine, method, fails)
    session = opened(engine=engine)
    talked(session, answer, turns=3)
    assert len(session.request()["messages"]) == 7
    session.close()
    told = [str(event) for event in session.told if isinstance(event, Notice)]
    assert told == [f"engine 'recording' failed in {method}(): ValueError: broken"]


def test_an_interrupt_passes_through_the_engine(opened: Any, answer: Callable[..., Any]) -> None:
    def interrupted(messages: list[Message]) -> Any:
        signal.raise_signal(signal.SIGINT)

    session = opened(engine=Scripted(interrupted))
    talked(session, answer)
    with pytest.raises(KeyboardInterrupt):
        session.compress()
    session.engine.make = newest_turn
    assert session.compress().status == "folded"  # the right to compact was given back


def test_no_fold_every_turn_when_results_are_refused(opened: Any, answer: Callable[..., Any]) -> None:
    """An engine that does not say when it refires is asked for another fold only when the request has grown by 5 %."""
    engine = Scripted(lambda _: None, fires_at=range(1, 1_000), context_length=10_000)
    session = opened(engine=engine, context_length=10_000)
    talked(session, answer, turns=12)
    session.request()
    asked = engine.methods().count("should_compress")
    assert asked == 13
    assert engine.methods().count("compress") == 1
    session.record(answer("A long answer. " * 300))
    session.add(QUESTION)
    session.request()
    assert engine.methods().count("compress") == 2


def test_compression_disabled_folds_only_when_asked_and_after_an_overflow(
    opened: Any, answer: Callable[..., Any]
) -> None:
    engine = RecordingEngine(fires_at=range(1, 1_000))
    session = opened(engine=engine, config={"compression": {"enabled": False}})
    talked(session, answer)
    session.request()
    assert "compress" not in engine.methods()
    assert session.recover(Exception("prompt is too long: 210000 tokens > 200000 maximum"))
    talked(session, answer)
    assert session.compress("the crane").status == "folded"
    assert [call.options["focus_topic"] for call in engine.calls if call.method == "compress"] == [None, "the crane"]


def test_the_host_fills_in_the_report_of_an_engine_that_makes_none(opened: Any, answer: Callable[..., Any]) -> None:
    session = opened(engine=Scripted(newest_turn))
    talked(session, answer)
    report = session.compress()
    assert isinstance(report, CompactionReport)
    assert report.seconds > 0
    (started,) = [event for event in session.told if isinstance(event, CompactionStarted)]
    (finished,) = [event for event in session.told if isinstance(event, CompactionFinished)]
    assert started.messages == 13
    assert (finished.messages_before, finished.messages_after) == (13, 1)


def test_our_engines_report_a_compaction_once(opened: Any, answer: Callable[..., Any]) -> None:
    session = opened(context_length=4_000)
    talked(session, answer, turns=40)
    session.compress()
    kinds = [type(event).__name__ for event in session.told if "Compaction" in type(event).__name__]
    assert kinds == ["CompactionStarted", "CompactionFinished"] * (len(kinds) // 2)


@pytest.mark.slow
def test_two_sessions_never_compact_a_conversation_at_the_same_time(tmp_path: Path, opened: Any, answer: Any) -> None:
    store = open_store(tmp_path / "s.db")
    session = opened(engine=Scripted(newest_turn), store=store)
    talked(session, answer)
    store.acquire("talk", "another process", seconds=60)
    report = session.compress()
    assert (report.status, report.reason) == ("refused", "another process is compacting this conversation")
    assert "compress" not in session.engine.methods()
    store.release("talk", "another process")
    assert session.compress().status == "folded"


@pytest.mark.slow
def test_the_engine_may_take_the_same_lease_while_it_compacts(tmp_path: Path, opened: Any, answer: Any) -> None:
    store = open_store(tmp_path / "s.db")
    taken: list[bool] = []

    def folds(messages: list[Message]) -> list[Message]:
        token = next(call for call in engine.calls if call.method == "on_session_start").options["lease_token"]
        taken.append(store.acquire("talk", token, seconds=60))
        taken.append(store.acquire("talk", "somebody else", seconds=60))
        return newest_turn(messages)

    engine = Scripted(folds)
    session = opened(engine=engine, store=store)
    talked(session, answer)
    session.compress()
    assert taken == [True, False]


def test_the_engine_may_wait_for_the_providers_own_count(opened: Any, answer: Callable[..., Any]) -> None:
    class Waits(RecordingEngine):
        def should_defer_preflight_to_real_usage(self, rough_tokens: int) -> bool:
            return True

    engine = Waits(fires_at=range(1, 100))
    session = opened(engine=engine)
    session.add({"role": "user", "content": "Hello there, this is a question."})
    session.request()
    session.record(answer("Hi."))
    session.add(QUESTION)
    session.request()
    assert "compress" not in engine.methods()  # no count was ever reported
    session.record(answer("Yes.", tokens=500))
    session.add({"role": "user", "content": "And now?!"})
    session.request()
    assert "compress" in engine.methods()


@pytest.mark.slow
def test_what_is_sent_after_a_fold_is_valid_in_the_dialect(opened: Any, answer: Callable[..., Any]) -> None:
    for dialect in ("openai", "anthropic"):
        session = opened(f"talk-{dialect}", context_length=4_000, dialect=dialect)
        talked(session, answer, turns=60)
        session.request()
        assert session.usage().compactions > 0
        assert violations(session.window, dialect) == []


def test_an_engine_on_an_older_base_class_works(opened: Any, answer: Callable[..., Any]) -> None:
    """An engine may lack every method that is not one of the four."""

    class Old(ContextEngine):
        name = "old"
        on_turn_complete = should_compress_preflight = should_defer_preflight_to_real_usage = None  # type: ignore[assignment]

        def update_from_response(self, usage: dict[str, Any]) -> None:
            pass

        def should_compress(self, prompt_tokens: int | None = None) -> bool:
            return (prompt_tokens or 0) > 100

        def compress(self, messages: list[Message], current_tokens: int | None = None) -> list[Message]:  # type: ignore[override]
            return newest_turn(messages)

    session = opened(engine=Old())
    talked(session, answer)
    session.request()
    assert session.usage().compactions > 0
    assert session.compress("with a focus that it does not take").status == "unchanged"


@pytest.mark.parametrize(
    ("calls", "dollars", "told", "spent"),
    [
        (0, 0.0, "0 model calls", None),
        (0, 0.25, "0 model calls, $0.2500", 0.25),  # paid beforehand, in the background
        (2, 0.5, "2 model calls, $0.5000", 0.5),
        (2, None, "2 model calls", None),
    ],
)
def test_what_a_fold_cost_is_told_and_added_up_where_it_cost_something(
    opened: Any, answer: Callable[..., Any], calls: int, dollars: float | None, told: str, spent: float | None
) -> None:
    class Paying(Scripted):
        def compress(self, messages: list[Message], *args: Any, **options: Any) -> Any:
            self.last_compaction = CompactionReport(status="folded", model_calls=calls, cost_usd=dollars)
            return super().compress(messages, *args, **options)

    events: list[Any] = []
    session = opened(engine=Paying(newest_turn), on_event=events.append)
    talked(session, answer)
    assert session.compress().status == "folded"
    (finished,) = [event for event in events if isinstance(event, CompactionFinished)]
    assert str(finished).endswith(told)
    assert session.usage().conversation.cost_usd == spent
