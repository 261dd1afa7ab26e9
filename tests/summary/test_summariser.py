"""A failing model costs no conversation: the summary is made without it, the user is told, the model comes back."""

from __future__ import annotations

import gc
import json
import weakref
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from leporello.errors import (
    AuthenticationError,
    ContextTooLongError,
    MalformedAnswerError,
    ModelError,
    NetworkError,
    OutputLimitError,
    OverloadedError,
    QuotaError,
    RateLimitError,
    RequestRefusedError,
)
from leporello.llm.client import Completion
from leporello.llm.scripted import FakeClock, ScriptedLLM
from leporello.redact import EMPTY, redact, redact_messages
from leporello.summary.summariser import Summariser, Summary, SummaryRequest
from leporello.tokens import count_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leporello.messages.types import Message


def asked(messages: Sequence[Message], budget_tokens: int, **texts: str) -> SummaryRequest:
    """Return a request for a summary, made as an engine does."""
    clean = {name: redact(text) for name, text in texts.items()}
    return SummaryRequest(messages=redact_messages(messages), budget_tokens=budget_tokens, **clean)  # type: ignore[arg-type]


GOOD = "## Goal\n- The user asked for a blue demo.\n\n## Next Steps\n- Look at it."
NEEDLES = ("E   AssertionError: expected 4711 rows, got 4712", "/srv/billing/0042_totals.py", "INV-20931")


def conversation() -> list[Message]:
    """Return a conversation with needles in the middle of a long output and at the end of long arguments."""
    rows = [f"row {n % 97} of the table was copied to the new one" for n in range(4_200)]
    arguments = json.dumps({"path": "app.py", "content": "\n".join(rows), "ticket": NEEDLES[2]})
    calls = [{"id": "c1", "type": "function", "function": {"name": "write_file", "arguments": arguments}}]
    output = "\n".join([*rows[:2_100], f"wrote {NEEDLES[1]}", NEEDLES[0], *rows[2_100:]])
    return [
        {"role": "user", "content": "Make the demo blue. Never touch the logo."},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "content": output},
        {"role": "assistant", "content": "The demo is blue now, except for one failing test."},
    ]


def request() -> SummaryRequest:
    """Ask for a summary of a short conversation."""
    told: list[Message] = [
        {"role": "user", "content": "Make the demo blue. " * 200},
        {"role": "assistant", "content": "It is blue."},
    ]
    return asked(messages=told, budget_tokens=2_000)


def long_request() -> SummaryRequest:
    """Ask for a summary of a conversation with needles."""
    return asked(messages=conversation(), budget_tokens=2_000)


def keeps_the_conversation(summary: Summary) -> None:
    """Check what must hold whatever the model did."""
    for needle in (*NEEDLES, "app.py", "blue"):
        assert needle in summary.text
    assert count_text(summary.text) <= 2_000


LONG = "## Goal\n" + "\n".join(f"- Sentence number {n} of an endless answer." for n in range(20_000))
FAILURES: dict[str, object] = {
    "network": NetworkError("connection reset"),
    "overloaded": OverloadedError("overloaded", status=529),
    "rate limit": RateLimitError("slow down", retry_after=2.0),
    "long rate limit": RateLimitError("slow down", retry_after=5_000.0),
    "refused key": AuthenticationError("the key was refused", status=401),
    "no credit": QuotaError("no credit", status=402),
    "wrong request": RequestRefusedError("no such model", status=404),
    "malformed": MalformedAnswerError("no JSON"),
    "too long for the window": ContextTooLongError("too long"),
    "output limit": OutputLimitError("too many tokens", status=400),
    "only thinking, too long": OutputLimitError("nothing but thinking"),
    "plain error": ModelError("something else"),
    "empty": "",
    "white space": " \n\t ",
    "reasoning only": "<think>The user wants a summary, let me see.</think>",
    "unfinished reasoning": "<think>The user wants",
    "raw reasoning only": Completion(text="<think>I will now think about it</think>\n"),
    "placeholder": "...",
    "template without content": "## Goal\n- None\n\n## Progress\n### Done\n- (none)\n\n## Next Steps\n- N/A",
    "announcement": "Here is the summary:",
    "refusal": "I'm sorry, but I can't help with that request.",
    "refusal in Chinese": "抱歉，我无法完成这个请求。",
    "longer than its source": LONG,
}


@pytest.mark.slow
@pytest.mark.parametrize("answer", FAILURES.values(), ids=FAILURES.keys())
def test_a_failing_model_is_replaced_for_this_summary(answer: str | Completion | ModelError) -> None:
    llm = ScriptedLLM(answer, context_length=200_000)
    summary = Summariser(llm, clock=FakeClock(), sleep=lambda _: None).summarise(long_request())
    keeps_the_conversation(summary)
    assert summary.partly_extractive
    assert summary.fallback or summary.note
    assert 1 <= len(llm.calls) <= 2


def test_a_client_that_raises_something_else_is_a_failing_model() -> None:
    def broken(_: list[Message]) -> str:
        raise KeyError("choices")

    summary = Summariser(ScriptedLLM(broken), clock=FakeClock()).summarise(long_request())
    keeps_the_conversation(summary)
    assert "KeyError" in summary.fallback


def test_a_client_that_returns_something_else_is_a_failing_model() -> None:
    class Odd(ScriptedLLM):
        def complete(self, *_: object, **__: object) -> Completion:
            return None  # type: ignore[return-value]

    summary = Summariser(Odd(), clock=FakeClock()).summarise(request())
    assert "NoneType" in summary.fallback


@pytest.mark.parametrize("answer", [GOOD, "<think>Let me see.</think>\n" + GOOD, "```markdown\n" + GOOD + "\n```"])
def test_a_good_answer_is_used(answer: str) -> None:
    summary = Summariser(ScriptedLLM(answer, context_length=200_000), clock=FakeClock()).summarise(long_request())
    keeps_the_conversation(summary)
    assert "The user asked for a blue demo." in summary.text
    assert "Let me see" not in summary.text
    assert (summary.fallback, summary.note, summary.partly_extractive, summary.retry_in) == ("", "", False, None)


def test_without_a_model_the_summary_is_extractive_and_nothing_has_failed() -> None:
    summary = Summariser(None, clock=FakeClock()).summarise(
        replace(long_request(), previous=redact("## Goal\n- Make the page green."))
    )
    keeps_the_conversation(summary)
    assert (summary.fallback, summary.partly_extractive, summary.model_calls, summary.cost_usd) == ("", False, 0, 0.0)
    assert "green" in summary.text


def test_an_answer_over_its_budget_is_trimmed() -> None:
    answer = "## Goal\n- A blue demo.\n## Key Decisions\n" + "\n".join(
        f"- Decision {n}: keep it simple." for n in range(400)
    )
    told: list[Message] = [*conversation(), {"role": "user", "content": "Think about every detail again. " * 2_000}]
    summariser = Summariser(ScriptedLLM(answer, context_length=200_000), clock=FakeClock())
    summary = summariser.summarise(asked(messages=told, budget_tokens=2_000))
    keeps_the_conversation(summary)
    assert (summary.fallback, summary.note) == ("", "")
    assert "Decision 399" in summary.text


def test_the_last_line_of_an_answer_that_was_cut_off_is_not_trusted() -> None:
    answer = Completion(text=GOOD + "\n- The port is 80", finish_reason="length")
    summary = Summariser(ScriptedLLM(answer, context_length=200_000), clock=FakeClock()).summarise(request())
    assert "Look at it" in summary.text
    assert "The port is 80" not in summary.text


def test_one_retry_is_enough_for_a_short_disturbance() -> None:
    llm = ScriptedLLM([NetworkError("connection reset"), GOOD], context_length=200_000)
    summary = Summariser(llm, clock=FakeClock()).summarise(request())
    assert (summary.fallback, summary.model_calls) == ("", 2)
    assert "The user asked for a blue demo." in summary.text


def test_a_short_retry_after_is_waited_for_and_a_long_one_is_not() -> None:
    waited: list[float] = []
    short = ScriptedLLM([RateLimitError("slow down", retry_after=3.0), GOOD], context_length=200_000)
    assert Summariser(short, clock=FakeClock(), sleep=waited.append).summarise(request()).fallback == ""
    long = ScriptedLLM(RateLimitError("slow down", retry_after=30.0), context_length=200_000)
    assert Summariser(long, clock=FakeClock(), sleep=waited.append).summarise(request()).fallback
    assert (waited, len(long.calls)) == ([3.0], 1)


def test_a_retry_after_that_does_not_fit_the_deadline_is_not_waited_for() -> None:
    waited: list[float] = []
    llm = ScriptedLLM(RateLimitError("slow down", retry_after=6.0), context_length=200_000)
    Summariser(llm, clock=FakeClock(), sleep=waited.append, deadline_seconds=5).summarise(request())
    assert waited == []


def test_an_error_that_a_retry_cannot_end_is_not_retried() -> None:
    llm = ScriptedLLM(RequestRefusedError("no such model"), context_length=200_000)
    Summariser(llm, clock=FakeClock()).summarise(request())
    assert len(llm.calls) == 1


def comes_back(summariser: Summariser, clock: FakeClock, llm: ScriptedLLM, seconds: float) -> None:
    """Check that the model is left alone before the time is over and asked when it is."""
    asked = len(llm.calls)
    clock.advance(seconds - 1)
    assert summariser.summarise(request()).fallback
    assert len(llm.calls) == asked
    clock.advance(1)
    summariser.summarise(request())
    assert len(llm.calls) > asked


def test_the_cooldown_grows_to_ten_minutes_and_a_success_ends_it() -> None:
    clock = FakeClock()
    llm = ScriptedLLM([NetworkError("down")] * 12, then=GOOD, context_length=200_000)
    summariser = Summariser(llm, clock=clock)
    assert summariser.summarise(request()).retry_in == 60
    for seconds in (60, 120, 240, 480, 600):
        comes_back(summariser, clock, llm, seconds)
    clock.advance(600)
    assert summariser.summarise(request()).fallback == ""
    assert summariser.status()["failures_in_a_row"] == 0


def test_after_a_success_the_cooldown_begins_small_again() -> None:
    clock = FakeClock()
    down = [NetworkError("down")] * 2
    llm = ScriptedLLM([*down, *down, GOOD, *down], context_length=200_000)
    summariser = Summariser(llm, clock=clock)
    waits = []
    for _ in range(4):
        waits.append(summariser.summarise(request()).retry_in)
        clock.advance(700)
    assert waits == [60, 120, None, 60]


def test_a_longer_retry_after_of_the_provider_is_respected_up_to_an_hour() -> None:
    for named, respected in ((900.0, 900.0), (90_000.0, 3_600.0), (20.0, 60.0)):
        llm = ScriptedLLM(RateLimitError("slow down", retry_after=named), context_length=200_000)
        assert Summariser(llm, clock=FakeClock()).summarise(request()).retry_in == respected


def test_a_clock_that_is_set_back_does_not_lock_the_model_out() -> None:
    clock = FakeClock(1_000_000.0)
    llm = ScriptedLLM([NetworkError("down")] * 2, then=GOOD, context_length=200_000)
    summariser = Summariser(llm, clock=clock)
    summariser.summarise(request())
    clock.advance(-900_000)
    assert summariser.status()["retry_in"] == 60
    comes_back(summariser, clock, llm, 60)


def test_a_refused_key_waits_for_another_one() -> None:
    clock = FakeClock()
    refused = ScriptedLLM(AuthenticationError("the key was refused"), context_length=200_000)
    summariser = Summariser(refused, clock=clock)
    first = summariser.summarise(request())
    clock.advance(1e9)
    second = summariser.summarise(long_request())
    assert (len(refused.calls), first.retry_in, second.retry_in) == (1, None, None)
    keeps_the_conversation(second)
    summariser.configure(refused)
    assert summariser.summarise(request()).fallback == "the key was refused"
    accepted = ScriptedLLM(GOOD, context_length=200_000)
    summariser.configure(accepted)
    assert summariser.summarise(request()).fallback == ""
    assert (len(refused.calls), len(accepted.calls)) == (1, 1)


def test_credit_may_come_back_after_an_hour() -> None:
    clock = FakeClock()
    llm = ScriptedLLM([QuotaError("no credit")], then=GOOD, context_length=200_000)
    summariser = Summariser(llm, clock=clock)
    assert summariser.summarise(request()).retry_in == 3_600
    comes_back(summariser, clock, llm, 3_600)


def test_the_status_tells_what_is_wrong_and_when_it_is_tried_again() -> None:
    clock = FakeClock()
    llm = ScriptedLLM(NetworkError("connection reset"), model="small", provider="local", context_length=200_000)
    summariser = Summariser(llm, clock=clock)
    fresh = summariser.status()
    summariser.summarise(request())
    clock.advance(20)
    assert fresh == {
        "model": "small",
        "provider": "local",
        "available": True,
        "last_error": "",
        "failures_in_a_row": 0,
        "retry_in": None,
    }
    assert summariser.status() == {
        "model": "small",
        "provider": "local",
        "available": False,
        "last_error": "connection reset",
        "failures_in_a_row": 1,
        "retry_in": 40,
    }
    assert Summariser(None).status()["available"] is False


@pytest.mark.slow
def test_what_the_model_made_before_it_failed_is_kept() -> None:
    messages: list[Message] = [{"role": "user", "content": f"Step {n}: go on. " * 60} for n in range(200)]
    llm = ScriptedLLM([GOOD, NetworkError("down"), NetworkError("down")], context_length=16_384)
    summariser = Summariser(llm, clock=FakeClock())
    summary = summariser.summarise(asked(messages=messages, budget_tokens=2_000))
    assert "The user asked for a blue demo." in summary.text
    assert (summary.fallback, summary.partly_extractive, summary.retry_in) == ("down", True, 60)


@pytest.mark.slow
def test_a_model_that_does_not_shorten_is_not_punished() -> None:
    llm = ScriptedLLM([LONG, LONG, GOOD], context_length=200_000)
    summariser = Summariser(llm, clock=FakeClock())
    first, second = summariser.summarise(long_request()), summariser.summarise(long_request())
    assert "tokens, what it summarises" in first.note
    assert (first.fallback, second.fallback, second.note) == ("", "", "")


class TestPlantedDefects:
    """The checks above reject summarisers that break their rules."""

    def test_a_summary_that_drops_the_middle(self) -> None:
        with pytest.raises(AssertionError):
            keeps_the_conversation(Summary(text=redact(GOOD)))

    def test_an_empty_summary(self) -> None:
        with pytest.raises(AssertionError):
            keeps_the_conversation(Summary(text=EMPTY))

    def test_a_cooldown_that_never_ends(self) -> None:
        clock = FakeClock()
        llm = ScriptedLLM(AuthenticationError("the key was refused"), context_length=200_000)
        summariser = Summariser(llm, clock=clock)
        summariser.summarise(request())
        with pytest.raises(AssertionError):
            comes_back(summariser, clock, llm, 3_600)

    def test_a_cooldown_that_ends_at_once(self) -> None:
        clock = FakeClock()
        llm = ScriptedLLM(GOOD, context_length=200_000)
        summariser = Summariser(llm, clock=clock)
        with pytest.raises(AssertionError):
            comes_back(summariser, clock, llm, 60)


def test_a_failure_that_is_remembered_does_not_hold_the_conversation() -> None:
    class Conversation(list["Message"]):
        """A list that can be watched."""

    messages = Conversation([{"role": "user", "content": "Fix the build."}, {"role": "assistant", "content": "Done."}])
    held = weakref.ref(messages)
    summariser = Summariser(ScriptedLLM(NetworkError("connection refused")), sleep=lambda _: None)
    summariser.summarise(asked(messages=messages, budget_tokens=2_000))
    del messages
    gc.collect()
    assert summariser.status()["failures_in_a_row"] == 1
    assert held() is None
