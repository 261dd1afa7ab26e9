"""A host whose people repeat themselves: the same few texts again and again, in lists that an engine must repair.

Assistant messages side by side are handed back as one, results without a call are dropped, calls without a result get
a stub; then the same texts are said again. Every message must still come back, once, in order.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from leporello import LCMEngine
from leporello.lcm import verify
from leporello.lcm.host_lists import HostLists
from leporello.store import Store, open_store
from leporello.store.reconcile import full_plan, incremental_plan
from leporello.testing.manual_executor import ManualExecutor

if TYPE_CHECKING:
    from leporello.messages import Message

TEXTS = ("yes", "Done.", "go on", "word " * 150)


def called(text: str) -> list[Message]:
    """Return a call and its result; ids repeat as they do with hosts that number them anew in every turn."""
    function = {"name": "run", "arguments": '{"n": 1}'}
    calls = [{"id": "call_0", "type": "function", "function": function}]
    return [
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "call_0", "content": text},
    ]


SAID = st.one_of(
    st.builds(
        lambda role, text: [{"role": role, "content": text}],
        st.sampled_from(["user", "assistant"]),
        st.sampled_from(TEXTS),
    ),
    st.builds(called, st.sampled_from(TEXTS)),
    st.builds(lambda text: called(text)[1:], st.sampled_from(TEXTS)),
    st.builds(lambda text: called(text)[:1], st.sampled_from(TEXTS)),
)


class Repeating(RuleBasedStateMachine):
    """A host that adds to its list, asks the engine, takes over what it folds, and is started again."""

    def __init__(self) -> None:
        super().__init__()
        self.store: Store = open_store(":memory:")
        self.entered: list[Message] = []
        self.messages: list[Message] = []
        self._start()

    def _start(self) -> None:
        self.engine = LCMEngine(8_192, store=self.store, executor=ManualExecutor())
        self.engine.on_event = lambda _: None
        self.engine.on_session_start("repeats")

    @rule(said=st.lists(SAID, min_size=1, max_size=4), stored=st.booleans())
    def say(self, said: list[list[Message]], stored: bool) -> None:
        new = [message for some in said for message in some]
        self.entered += copy.deepcopy(new)
        self.messages = [*self.messages, *new]
        if stored:
            self.engine.should_compress_preflight(self.messages)

    @rule()
    def say_a_lot(self) -> None:
        self.say([[{"role": ("user", "assistant")[n % 2], "content": "word " * 150}] for n in range(40)], stored=True)

    @rule()
    def fold(self) -> None:
        self.messages = self.engine.compress(self.messages)

    @rule()
    def start_again(self) -> None:
        """Start with the list as it was; what was read from it before is gone."""
        self.engine.should_compress_preflight(self.messages)
        self.engine.close()
        self.store._readings.clear()  # type: ignore[attr-defined]
        self._start()

    @invariant()
    def everything_comes_back_once(self) -> None:
        self.engine.should_compress_preflight(self.messages)
        rows = list(self.store.messages("repeats", superseded=True))
        assert [row.message for row in rows] == self.entered
        assert not any(row.superseded for row in rows)
        assert verify(self.store, "repeats") == []

    def teardown(self) -> None:
        self.engine.close()
        self.store.close()


Repeating.TestCase.settings = settings(
    max_examples=12, stateful_step_count=20, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestRepeating = Repeating.TestCase


class Forgetful(HostLists):
    """A planted defect: what the host gets is not noted."""

    def handed_out(self, messages: Any) -> None:
        pass


class ForgetfulHost(Repeating):
    """A host of such an engine."""

    def _start(self) -> None:
        super()._start()
        self.engine._lists.__class__ = Forgetful


def assert_caught(machine: type[Repeating]) -> None:
    quiet = settings(
        max_examples=60,
        stateful_step_count=20,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow],
    )
    with pytest.raises(AssertionError):
        run_state_machine_as_test(machine, settings=quiet)


def test_the_machine_catches_an_engine_that_forgets_what_it_handed_out() -> None:
    assert_caught(ForgetfulHost)


def test_the_machine_catches_a_store_that_goes_by_the_text_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted defect: a list is never taken for one that goes on, so what repeats an older text is taken for that."""
    monkeypatch.setattr(full_plan, "continuation_plan", lambda *_: None)
    monkeypatch.setattr(incremental_plan, "_grown_plan", lambda *_: None)
    assert_caught(Repeating)
