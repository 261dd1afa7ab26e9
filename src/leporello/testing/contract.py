"""The contract kit: checks any engine against the contract and the promises that can be seen from outside.

In a test file:

    class TestMyEngine(ContractSuite):
        def make_engine(self, context_length=0):
            return MyEngine(context_length=context_length)

Or in a program: `check_engine(MyEngine)` returns one result per check. The engine's model is replaced by a scripted
one that counts, fails or is slow: through the constructor's `llm=` when it takes one, else through the `call_llm` of
Hermes plugins. What cannot be seen is reported as not checked, never as passed.
"""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias

from leporello.engine import ContextEngine, ForeignCall, call_fitting, fitting
from leporello.errors import NetworkError, PluginWarning
from leporello.llm import LLM, ScriptedLLM
from leporello.llm.scripted import FakeClock
from leporello.messages import Message, copied, role_of, violations
from leporello.plugins.hermes import route_llm
from leporello.session.acceptance import CompressResult, judge
from leporello.session.result_repair import repaired_result
from leporello.session.window import Source, Window
from leporello.summary.refire import SAFE_SHARE
from leporello.testing.conversations import conversation
from leporello.testing.defects import broken_conversation
from leporello.testing.picture import picture, same_picture
from leporello.tokens import count_messages

MakeEngine: TypeAlias = Callable[..., ContextEngine]

WINDOW = 32_000
SUMMARY = "## Goal\nFinish the task.\n\n## Progress\n### Done\n- Looked at the files.\n\n## Next Steps\n- Go on."
MOST_CALLS_PER_COMPACTION = 64
LONGEST_COMPACTION_SECONDS = 600.0
TURNS_UNDER_PRESSURE = 40


class NotChecked(Exception):  # noqa: N818 - an outcome, not an error
    """Something that cannot be seen from outside this engine."""


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """The outcome of one check."""

    check: str
    title: str
    status: Literal["passed", "failed", "not checked"]
    detail: str = ""


Check: TypeAlias = "Callable[[Kit], str | None]"
"""Raises when the engine fails; returns what its author should know all the same."""


@dataclass
class Kit:
    """An engine under test: makes fresh ones, with a scripted model behind them."""

    make: MakeEngine
    conversations: int = 30
    clock: FakeClock = field(default_factory=FakeClock)

    @contextmanager
    def engine(self, llm: LLM | None = None, window: int = WINDOW) -> Iterator[ContextEngine]:
        """Yield a started engine whose model is `llm`."""
        llm = llm or ScriptedLLM(SUMMARY)
        with route_llm(llm):
            engine = call_fitting(self.make, context_length=window, llm=llm, clock=self.clock)
            if engine.context_length != window:
                engine.update_model("contract-kit", window)
            engine.on_event = lambda _: None
            engine.on_session_start("contract-kit", platform="test", model="contract-kit", context_length=window)
            yield engine
            if callable(close := getattr(engine, "close", None)):  # an engine on another host's base class may lack it
                close()

    @property
    def takes_a_clock(self) -> bool:
        """Whether time can be moved for this engine."""
        return bool(fitting(self.make, clock=self.clock))

    def valid(self) -> Iterator[list[Message]]:
        """Yield valid conversations of many shapes, from a few messages to many times the window."""
        for seed in range(self.conversations):
            yield conversation(seed, turns=(seed * 7) % 60 + 1)

    def broken(self) -> Iterator[list[Message]]:
        """Yield conversations with defects."""
        for seed in range(self.conversations):
            yield broken_conversation(seed, turns=(seed * 5) % 30 + 1)

    def full(self, seed: int = 1) -> list[Message]:
        """Return a valid conversation well above the threshold that ends with a small user message."""
        messages = conversation(seed, turns=120, payload=1_500, end="assistant")
        return [*messages, {"role": "user", "content": "Please go on with the next step."}]

    def working(self, seed: int = 1) -> list[Message]:
        """Return a valid conversation well above the threshold that ends with unread tool results."""
        return conversation(seed, turns=60, payload=1_500, end="tool")


def check_engine(
    make: MakeEngine, *, conversations: int = 30, checks: Iterable[str] | None = None
) -> list[CheckResult]:
    """Run the checks against an engine class or factory: all of `CHECKS`, or those that are named."""
    names = CHECKS if checks is None else checks
    return [_result(name, *CHECKS[name], Kit(make, conversations)) for name in names]


def _result(name: str, title: str, check: Check, kit: Kit) -> CheckResult:
    call = ForeignCall()
    try:
        with call:
            detail = check(kit)
    except NotChecked as reason:
        return CheckResult(check=name, title=title, status="not checked", detail=str(reason))
    except BaseException as error:
        if not call.blames(error):
            raise
        return CheckResult(check=name, title=title, status="failed", detail=_describe(error))
    return CheckResult(check=name, title=title, status="passed", detail=detail or "")


def _describe(error: BaseException) -> str:
    text = str(error).strip().partition("\n")[0]
    return text if isinstance(error, AssertionError) and text else f"{type(error).__name__}: {text}"


def _compress(engine: ContextEngine, messages: list[Message], **offered: Any) -> list[Message]:
    result = call_fitting(engine.compress, messages, **offered)
    assert isinstance(result, list), f"compress() returned {type(result).__name__}, not a list"
    return result


def _newest_user(messages: list[Message]) -> Message | None:
    return next((message for message in reversed(messages) if role_of(message) == "user"), None)


def check_abc(kit: Kit) -> None:
    """Check the abstract base class: identity, attributes, a settable instance."""
    with kit.engine() as engine:
        assert isinstance(engine, ContextEngine), "the engine is not a ContextEngine"
        assert isinstance(engine.name, str), "name is not a string"
        assert engine.name, "name is empty"
        for attribute in ("last_prompt_tokens", "threshold_tokens", "context_length", "compression_count"):
            assert isinstance(getattr(engine, attribute), int), f"{attribute} is not a whole number"
        engine.set_by_a_host = True  # type: ignore[attr-defined]
        simple = _compress(engine, [{"role": "user", "content": "hello"}])
        assert all("role" in message for message in simple), "compress() of one message returned something else"
        schemas = engine.get_tool_schemas()
        assert isinstance(schemas, list), "get_tool_schemas() must return a list"
        answer = json.loads(engine.handle_tool_call("no_such_tool", {}, messages=[]))
        assert "error" in answer, "an unknown tool must be answered with an error JSON"


def check_lifecycle(kit: Kit) -> None:
    """Check counters, threshold, reset, end and the start of another conversation on the same instance."""
    with kit.engine() as engine:
        assert engine.context_length == WINDOW, "update_model() must set context_length"
        assert 0 < engine.threshold_tokens <= WINDOW, "threshold_tokens must lie inside the window"
        engine.update_from_response({"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120})
        counters = (engine.last_prompt_tokens, engine.last_completion_tokens, engine.last_total_tokens)
        assert counters == (100, 20, 120), f"update_from_response() left the counters at {counters}"
        assert not engine.should_compress(1), "should_compress() fires in an empty window"
        assert engine.should_compress(WINDOW), "should_compress() does not fire in a full window"
        status = engine.get_status()
        assert {"context_length", "threshold_tokens", "compression_count"} <= status.keys(), "get_status() lacks keys"
        messages = conversation(3, turns=3)
        engine.on_session_end("contract-kit", messages)
        engine.on_session_reset()
        assert engine.last_prompt_tokens == 0, "on_session_reset() must clear the counters"
        engine.on_session_start("another", platform="test", model="contract-kit", context_length=WINDOW)
        _compress(engine, messages)
    with kit.engine(window=0) as engine:
        assert not engine.should_compress(10**9), "with context_length 0 nothing may fire"


def check_valid(kit: Kit) -> None:
    """Check that the result is legal in both dialects, also for input that was not."""
    for kind, conversations in (("valid", kit.valid()), ("broken", kit.broken())):
        for number, messages in enumerate(conversations):
            with kit.engine() as engine:
                result = _compress(engine, messages)
            for dialect in ("openai", "anthropic"):
                found = violations(result, dialect) if result else []
                assert not found, (
                    f"{kind} conversation {number}, {dialect}: {found[0].message} (message {found[0].index})"
                )


def check_newest_user_message(kit: Kit) -> None:
    """Check that the newest user message is unchanged, and that no later one was made."""
    for number, messages in enumerate([*kit.valid(), kit.full()]):
        with kit.engine() as engine:
            result = _compress(engine, messages)
        assert _newest_user(result) == _newest_user(messages), f"conversation {number}: the newest user message changed"


def check_shrinks_or_stays(kit: Kit) -> None:
    """Check that the result has fewer tokens, or is the same list."""
    for number, messages in enumerate([*kit.valid(), kit.full()]):
        with kit.engine() as engine:
            result = _compress(engine, messages)
        grew = count_messages(result) - count_messages(messages)
        assert result == messages or grew < 0, f"conversation {number}: changed, but not shorter ({grew:+} tokens)"


def check_fits(kit: Kit) -> None:
    """Check that the result is below the threshold, or that the report names what cannot be folded."""
    for seed in range(5):
        messages = kit.full(seed)
        with kit.engine() as engine:
            result = _compress(engine, messages, current_tokens=count_messages(messages))
            report, tokens = engine.last_compaction, count_messages(result)
            named = report is not None and bool(report.unfoldable)
            assert tokens < engine.threshold_tokens or named, (
                f"{tokens:,} tokens after a compaction, threshold {engine.threshold_tokens:,}, and no report says why"
            )


def check_survives_a_failing_model(kit: Kit) -> None:
    """Check that the conversation stays usable while the model fails, and that the model is used again later."""
    failing = ScriptedLLM(NetworkError("connection refused"))
    for llm in (failing, ScriptedLLM(""), ScriptedLLM("x" * 400_000)):
        messages = kit.full()
        with kit.engine(llm) as engine:
            result = _compress(engine, messages, current_tokens=count_messages(messages))
        assert not violations(result, "openai"), "a failing model led to an invalid list"
        assert _newest_user(result) == _newest_user(messages), "a failing model cost the newest user message"
    if not failing.calls:
        raise NotChecked("the engine never asked a model")
    if not kit.takes_a_clock:
        raise NotChecked("usable with a failing model; recovery not seen, because the engine takes no clock")
    _check_recovery(kit)


def _check_recovery(kit: Kit) -> None:
    answers = {"works": False}

    def answer(_: list[Message]) -> str:
        if not answers["works"]:
            raise NetworkError("connection refused")
        return SUMMARY

    llm = ScriptedLLM(answer)
    with kit.engine(llm) as engine:
        messages = _compress(engine, kit.full())
        answers["works"], failed = True, len(llm.calls)
        kit.clock.advance(86_400)
        grown = [*messages[:-1], *kit.full(2)[1:]]
        _compress(engine, grown)
        assert len(llm.calls) > failed, "a day after a failure the model was not asked again"


def check_bounded(kit: Kit) -> None:
    """Check that calls and time are bounded, and that not every turn is compacted."""
    llm = ScriptedLLM(SUMMARY, context_length=8_000)
    with kit.engine(llm) as engine:
        _compress(engine, kit.full())
    assert len(llm.calls) <= MOST_CALLS_PER_COMPACTION, f"{len(llm.calls)} model calls for one compaction"
    _check_refire(kit)
    if not llm.calls:
        raise NotChecked("no compaction every turn; calls and time not seen, because the engine never asked a model")
    if not kit.takes_a_clock:
        raise NotChecked("calls are bounded; the deadline not seen, because the engine takes no clock")
    _check_deadline(kit)


def _check_refire(kit: Kit) -> None:
    """Grow a conversation that cannot get below the threshold, turn by turn."""
    with kit.engine() as engine:
        huge: Message = {"role": "user", "content": "word " * WINDOW}
        messages: list[Message] = [{"role": "system", "content": "s"}, huge]
        fired = 0
        for turn in range(TURNS_UNDER_PRESSURE):
            tool = {"id": f"c{turn}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
            messages.append({"role": "assistant", "content": None, "tool_calls": [tool]})
            messages.append({"role": "tool", "tool_call_id": f"c{turn}", "content": "nothing new"})
            tokens = count_messages(messages)
            if engine.should_compress(tokens):
                fired += 1
                messages = _compress(engine, messages, current_tokens=tokens)
        assert fired < TURNS_UNDER_PRESSURE / 2, (
            f"{fired} compactions in {TURNS_UNDER_PRESSURE} turns that brought nothing"
        )


def _check_deadline(kit: Kit) -> None:
    slow = ScriptedLLM(SUMMARY, context_length=8_000, seconds=45, clock=kit.clock)
    with kit.engine(slow) as engine:
        started = kit.clock()
        _compress(engine, kit.full())
        took = kit.clock() - started
    assert took <= LONGEST_COMPACTION_SECONDS, f"one compaction with a slow model took {took:.0f} s"


def check_input_unchanged(kit: Kit) -> None:
    """Check that the caller's list and dicts are not changed."""
    for messages in (*kit.valid(), *kit.broken(), kit.full()):
        original = picture(messages)
        with kit.engine() as engine:
            result = _compress(engine, messages)
        assert same_picture(original, picture(messages)), "compress() changed its input"
        assert result is not messages, "compress() returned the caller's own list"


def check_accepted(kit: Kit) -> str:
    """Check that a session uses what the engine returns; returns what the session repairs in it first."""
    repaired: Counter[str] = Counter()
    conversations = [*(kit.full(seed) for seed in range(4)), *(kit.working(seed) for seed in range(2))]
    for number, messages in enumerate(conversations):
        window = Window(Source(message=message).entry() for message in messages)
        with kit.engine() as engine:
            made = CompressResult(result=call_fitting(engine.compress, [copied(message) for message in messages]))
        room = int(SAFE_SHARE * WINDOW)
        report, _ = judge(made, window, "openai", room=room)
        assert report.status != "refused", f"conversation {number}: a session refuses the result: {report.reason}"
        repaired.update(repaired_result(made.result, window, "openai", room=room).changes)
    told = (f"{change} ({times} of {len(conversations)})" for change, times in repaired.most_common())
    return f"repaired: {'; '.join(told)}" if repaired else ""


CHECKS: dict[str, tuple[str, Check]] = {
    "contract": ("the ContextEngine class and its attributes", check_abc),
    "lifecycle": ("start, usage, check, compress, end, reset", check_lifecycle),
    "valid": ("valid in both dialects", check_valid),
    "newest": ("the newest user message is untouched", check_newest_user_message),
    "shrinks": ("shrinks or stays", check_shrinks_or_stays),
    "fits": ("fits, or says what cannot be folded", check_fits),
    "failures": ("a failing model keeps the conversation", check_survives_a_failing_model),
    "bounded": ("bounded calls and time, never every turn", check_bounded),
    "input": ("the input is not changed", check_input_unchanged),
    "accepted": ("a session uses what compress() returns", check_accepted),
}


class ContractSuite:
    """Subclass this in a test file and define `make_engine`; every check becomes a test."""

    conversations: ClassVar[int] = 30

    def make_engine(self, *args: Any, **kwargs: Any) -> ContextEngine:
        """Return a fresh engine; offered by name are `context_length`, `llm` and `clock`: name those you take."""
        raise NotImplementedError("define make_engine() in your subclass of ContractSuite")

    def _run(self, check: str) -> None:
        import pytest

        try:
            detail = CHECKS[check][1](Kit(self.make_engine, self.conversations))
        except NotChecked as reason:
            pytest.skip(f"not checked: {reason}")
        if detail:
            warnings.warn(detail, PluginWarning, stacklevel=3)

    def test_contract(self) -> None:
        """The ContextEngine class and its attributes."""
        self._run("contract")

    def test_lifecycle(self) -> None:
        """Start, usage, check, compress, end, reset."""
        self._run("lifecycle")

    def test_valid(self) -> None:
        """Valid in both dialects."""
        self._run("valid")

    def test_newest_user_message(self) -> None:
        """The newest user message is untouched."""
        self._run("newest")

    def test_shrinks_or_stays(self) -> None:
        """Shrinks or stays."""
        self._run("shrinks")

    def test_fits(self) -> None:
        """Fits, or says what cannot be folded."""
        self._run("fits")

    def test_failing_model(self) -> None:
        """A failing model keeps the conversation."""
        self._run("failures")

    def test_bounded(self) -> None:
        """Bounded calls and time, never every turn."""
        self._run("bounded")

    def test_input_unchanged(self) -> None:
        """The input is not changed."""
        self._run("input")

    def test_accepted_by_a_session(self) -> None:
        """A session uses what compress() returns; a warning tells what it had to repair."""
        self._run("accepted")
