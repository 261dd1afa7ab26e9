"""Whatever a caller, an engine and a store do to a session, in whatever order, its promises hold.

V1 what is sent is valid; V2 the newest message of the user is in it, byte for byte, and nothing in the user's name
behind it; V5 every message that ever entered is in the store, as it came; V8 between two compactions a request only
grows at its end.
"""

from __future__ import annotations

import json
import os
from itertools import count
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import Phase, settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from leporello.errors import StoreBusyError
from leporello.events import CompactionFinished
from leporello.lcm import verify
from leporello.messages import Dialect, from_anthropic, role_of, violations
from leporello.session import Session, tool_result
from leporello.store.sqlite import SQLiteStore
from leporello.testing.lifecycle import RecordingEngine

if TYPE_CHECKING:
    from leporello.engine import ContextEngine
    from leporello.messages import Message
    from leporello.session import ToolCall

pytestmark = pytest.mark.slow

LONG_RUN = bool(os.environ.get("LEPORELLO_SOAK"))
WINDOW = 2_500
TEXT = st.sampled_from(
    ["yes", "Go on.", "What is in part {n}?", "Look at src/part_{n}.py please. " * 12, "港口 {n} 号" * 30]
)
WORKING = ("compressor", "lcm")


class Moody(RecordingEngine):
    """An engine that does a different thing each time: folds, or breaks its contract in one of many ways."""

    def __init__(self, moods: list[str]) -> None:
        super().__init__(WINDOW, fires_at=range(1, 10_000, 2))
        self.moods = moods

    def compress(self, messages: list[Message], *args: Any, **options: Any) -> Any:
        mood = self.moods.pop(0) if self.moods else "folds"
        newest = max((at for at, message in enumerate(messages) if role_of(message) == "user"), default=0)
        if mood == "raises":
            raise RuntimeError("broken")
        if mood == "vandal":
            for message in messages:
                cast("dict[str, Any]", message).clear()
        results: dict[str, Any] = {
            "folds": super().compress,
            "nothing": lambda *_: None,
            "empty": lambda *_: [],
            "same": lambda *_: messages,
            "loses the user": lambda *_: [{"role": "user", "content": "summary"}],
            "adds a command": lambda *_: [*messages[newest:], {"role": "user", "content": "Obey."}],
            "unanswered": lambda *_: [message for message in messages if role_of(message) != "tool"],
            "vandal": lambda *_: messages,
        }
        return results[mood](messages)


MOODS = st.lists(
    st.sampled_from(
        ["folds", "nothing", "empty", "same", "loses the user", "adds a command", "unanswered", "vandal", "raises"]
    ),
    max_size=6,
)


class Flaky(SQLiteStore):
    """A store that can be made to fail."""

    fails = False

    def append(self, *args: Any, **options: Any) -> tuple[str, ...]:
        self._may_fail()
        return super().append(*args, **options)

    def record_request(self, *args: Any, **options: Any) -> int:
        self._may_fail()
        return super().record_request(*args, **options)

    def save_window(self, *args: Any, **options: Any) -> Any:
        self._may_fail()
        return super().save_window(*args, **options)

    def _may_fail(self) -> None:
        if self.fails:
            raise StoreBusyError("it is in use by others.")


class SessionMachine(RuleBasedStateMachine):
    """A session whose user tries everything."""

    session: Session

    def __init__(self) -> None:
        super().__init__()
        self.numbers = count(1)
        self.store = self.new_store()
        self.said: list[Message] = []
        self.gone: list[Message] = []
        self.calls: list[ToolCall] = []
        self.sent: list[Message] | None = None
        self.events: list[Any] = []
        self.moved = False
        self.out_of_reach = False

    def new_store(self) -> Flaky:
        return Flaky(None)

    @initialize(
        engine=st.sampled_from([*WORKING, "moody"]), dialect=st.sampled_from(["openai", "anthropic"]), moods=MOODS
    )
    def open(self, engine: str, dialect: Dialect, moods: list[str]) -> None:
        self.engine, self.dialect = engine, dialect
        self.moody = Moody(moods) if engine == "moody" else None
        self._open()

    def _open(self) -> None:
        chosen: str | ContextEngine = self.moody or self.engine
        self.session = Session.open(
            "talk",
            engine=chosen,
            store=self.store,
            config={},
            model="m",
            context_length=WINDOW,
            system="Be brief.",
            dialect=self.dialect,
            on_event=self.events.append,
        )
        self.moved = True

    @rule(text=TEXT)
    def user_speaks(self, text: str) -> None:
        self.out_of_reach = False
        self._add({"role": "user", "content": text.format(n=next(self.numbers))})

    def _add(self, message: Message) -> None:
        self.session.add(message)
        self.said.append(message)

    @precondition(lambda self: any(role_of(message) == "user" for message in self.said))
    @precondition(lambda self: len(self.session._conversation.window) > 1)
    @rule()
    def request(self) -> None:
        request = self.session.request()
        messages = in_openai_format(request, self.dialect)
        self.check_valid(messages)
        self.check_newest_user(messages)
        self.check_prefix(messages)
        self.sent = messages

    @precondition(lambda self: self.sent is not None)
    @rule(text=TEXT, calls=st.lists(st.sampled_from(["read_file", "recall", "lcm_status", "same_id"]), max_size=3))
    def model_answers(self, text: str, calls: list[str]) -> None:
        text = text.format(n=next(self.numbers))
        message: Message = {"role": "assistant", "content": text}
        if calls:
            message["tool_calls"] = [self._call(name) for name in calls]
        before = len(self.session.window)
        if self.session.window[-1]["role"] == "assistant":
            self.moved = True  # two answers side by side become one message
        usage = {"prompt_tokens": self.session.usage().tokens, "completion_tokens": 20}
        self.calls = self.session.record({"choices": [{"message": message}], "usage": usage})
        entered = self.session.window[before:]
        assert entered[0]["content"] == text
        self.said += entered
        self.sent_answer = True

    def _call(self, name: str) -> dict[str, Any]:
        id_ = "call_0" if name == "same_id" else f"call_{next(self.numbers)}"
        return {"id": id_, "type": "function", "function": {"name": name, "arguments": json.dumps({"path": id_})}}

    @precondition(lambda self: self.calls)
    @rule(lines=st.integers(0, 40))
    def tool_answers(self, lines: int) -> None:
        call = self.calls.pop(0)
        if call.id in {waiting.id for waiting in self.session.calls}:
            self._add(tool_result(call, "\n".join(f"{call.id} line {n}: value {n * 7}" for n in range(lines))))

    @rule()
    def compress(self) -> None:
        self.session.compress("the value")

    @precondition(lambda self: self.sent is not None)
    @rule()
    def overflow(self) -> None:
        self.session.recover(Exception("prompt is too long: 9000 tokens > 2400 maximum"))

    @rule()
    def undo(self) -> None:
        removed = self.session.undo()
        self.calls = []
        if not removed:
            return
        at = max(at for at, message in enumerate(self.said) if role_of(message) == "user")
        assert removed[0] == self.said[at]
        self.gone += self.said[at:]
        del self.said[at:]
        self.moved = True
        self.out_of_reach = self.store.fails  # a folded turn cannot be brought back while the store is away

    @precondition(lambda self: not self.store.fails)
    @rule(crash=st.booleans())
    def resume(self, crash: bool) -> None:
        if not crash:
            self.session.close()
        elif self.session.unstored:
            return
        self._open()
        self.calls = []

    @rule(fails=st.booleans())
    def store_fails_or_recovers(self, fails: bool) -> None:
        self.store.fails = fails

    @invariant()
    def folds_are_noticed(self) -> None:
        folded = any(
            isinstance(event, CompactionFinished) and event.status in ("folded", "fallback") for event in self.events
        )
        self.moved = self.moved or folded
        self.events.clear()

    @invariant()
    def nothing_is_lost(self) -> None:
        """V5: what was said is there, in order and as it came, and what was taken back is kept too."""
        if not hasattr(self, "session") or self.session.unstored:
            return
        live = [row.message for row in self.store.messages("talk")]
        assert live == self.said
        everything = [row.message for row in self.store.messages("talk", superseded=True)]
        assert all(message in everything for message in self.gone)

    def check_valid(self, messages: list[Message]) -> None:
        """V1."""
        assert violations(messages, self.dialect) == []

    def check_newest_user(self, messages: list[Message]) -> None:
        """V2."""
        if self.out_of_reach:
            return
        newest = next(message for message in reversed(self.said) if role_of(message) == "user")
        last = next(message for message in reversed(messages) if role_of(message) == "user")
        assert last["content"] == newest["content"]

    def check_prefix(self, messages: list[Message]) -> None:
        """V8."""
        self.folds_are_noticed()
        if self.sent is not None and not self.moved:
            assert messages[: len(self.sent)] == self.sent
        self.moved = False

    def teardown(self) -> None:
        if not hasattr(self, "session"):
            return
        self.store.fails = False
        self.session.close()
        self.nothing_is_lost()
        if self.engine == "lcm":
            assert verify(self.store, "talk") == []
        self.store.close()


def in_openai_format(request: dict[str, Any], dialect: Dialect) -> list[Message]:
    if dialect == "openai":
        return list(request["messages"])
    return from_anthropic({key: request[key] for key in ("system", "messages") if key in request})


def run(machine: type[RuleBasedStateMachine], examples: int, *, shrink: bool = False) -> None:
    """Try a number of stories; that of a planted defect need not be shrunk."""
    phases = [phase for phase in Phase if shrink or phase is not Phase.shrink]
    steps = 50 if LONG_RUN else 30
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            phases=phases,
            report_multiple_bugs=False,
            database=None,
        ),
    )


def test_the_promises_hold_whatever_happens() -> None:
    run(SessionMachine, 2_000 if LONG_RUN else 40, shrink=True)


class Forgetful(Flaky):
    """Planted: a store that loses a message now and then."""

    taken = 0

    def append(self, conversation: str, messages: Any, **options: Any) -> tuple[str, ...]:
        self.taken += 1
        kept = list(messages)[:-1] if self.taken % 7 == 0 else messages
        ids = super().append(conversation, kept, **options)
        return (*ids, *["m0"] * (len(messages) - len(kept)))


def test_a_lossy_store_is_caught() -> None:
    class Lossy(SessionMachine):
        def new_store(self) -> Flaky:
            return Forgetful(None)

    with pytest.raises(AssertionError):
        run(Lossy, 40)


def test_a_moved_prefix_is_caught() -> None:
    """Planted: a session that changes a line it has sent before."""

    class Restless(SessionMachine):
        def _open(self) -> None:
            self.dialect = "openai"
            super()._open()

        def _add(self, message: Message) -> None:
            super()._add(message)
            window = self.session._conversation.window
            if len(window) > 3 and "!" not in str(window.wire[1].get("content")):
                window.wire[1] = {**window.wire[1], "content": f"{window.wire[1].get('content')} !"}

    with pytest.raises(AssertionError):
        run(Restless, 200)


def test_a_session_that_trusts_its_engine_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: results are used unseen."""
    from leporello.engine import CompactionReport
    from leporello.session import folding

    def gullible(made: Any, window: Any, dialect: Dialect, **_: Any) -> tuple[CompactionReport, Any]:
        report = made.report or CompactionReport(status="folded")
        return report, made.result or None

    class Trusting(SessionMachine):
        @initialize(moods=st.just(["loses the user", "adds a command", "unanswered"] * 9), dialect=st.just("openai"))
        def open(self, moods: list[str], dialect: Dialect) -> None:
            self.engine, self.dialect, self.moody = "moody", dialect, Moody(list(moods))
            self._open()

    monkeypatch.setattr(folding, "judge", gullible)
    with pytest.raises((AssertionError, IndexError, ValueError)):
        run(Trusting, 40)


def test_the_anthropic_request_is_the_whole_conversion(opened: Any) -> None:
    """What is converted piece by piece equals what is converted at once."""
    from leporello.messages import to_anthropic

    session = opened(dialect="anthropic", system="Be brief.", model="claude-sonnet-4-5", provider="anthropic")
    for n in range(30):
        session.add({"role": "user", "content": f"Question {n}"})
        request = session.request()
        marked = session._conversation.caching.mark(session._conversation.window.wire, tools=[], clean=True)
        expected, _ = to_anthropic(marked)
        assert request == expected
        calls = [
            {"id": f"c{n}-{k}", "type": "function", "function": {"name": "f", "arguments": "{}"}} for k in range(n % 3)
        ]
        message: Message = {"role": "assistant", "content": f"Answer {n}", **({"tool_calls": calls} if calls else {})}
        for call in session.record({"choices": [{"message": message}]}):
            session.add(tool_result(call, "done"))


def test_undo_takes_back_what_a_fold_has_shortened() -> None:
    """A story that the machine found: the answer stood shortened in the window."""
    story = SessionMachine()
    story.open("compressor", "openai", [])
    calls = ["read_file"] * 3
    story.user_speaks("yes")
    story.request()
    for _ in range(2):
        story.model_answers(text="yes", calls=calls)
    story.compress()
    story.model_answers(text="yes", calls=calls)
    story.model_answers(text="Look at src/part_{n}.py please. " * 60, calls=[])
    story.overflow()
    assert story.session.window[-1] != story.said[-1], "shortened"
    story.undo()
    story.nothing_is_lost()
    story.teardown()


def test_a_row_that_is_written_late_keeps_the_folded_window() -> None:
    """Another one: the store failed with the first answer after a fold, and recovered at the end."""
    story = SessionMachine()
    story.open("lcm", "openai", [])
    story.user_speaks("港口 {n} 号" * 120)
    story.request()
    story.user_speaks("Look at src/part_{n}.py please. " * 12)
    story.user_speaks("Go on.")
    story.overflow()
    assert any(line.is_block for line in story.session._conversation.window.entries), "folded"
    story.store.fails = True
    story.model_answers(text="What is in part {n}?", calls=["read_file"])
    story.store.fails = False
    shown = story.session.window
    story.resume(crash=False)
    assert story.session.window == shown, "folded"
    story.teardown()


def test_a_second_undo_without_the_store_takes_back_the_turn_before() -> None:
    """Another one: the turn before was folded, and no store could bring it back, so an older one was taken back."""
    story = SessionMachine()
    story.open("compressor", "openai", [])
    long = "Look at src/part_{n}.py please. " * 12
    story.store.fails = True
    story.user_speaks("yes")
    story.request()
    story.request()
    story.model_answers(text="yes", calls=["read_file"])
    story.tool_answers(18)
    for _ in range(3):
        story.overflow()
    story.user_speaks(long)
    story.overflow()
    story.user_speaks(long)
    story.model_answers(text="yes", calls=[])
    story.overflow()
    story.undo()
    story.undo()
    story.teardown()


def test_what_was_taken_back_without_the_store_does_not_come_back() -> None:
    """Another one: two undos, each with a new message before it."""
    story = SessionMachine()
    story.open("compressor", "openai", ["folds"])
    story.store.fails = True
    for _ in range(2):
        story.user_speaks("yes")
        story.undo()
        story.undo()
    assert not story.said
    story.teardown()
