"""What comes at the wrong moment: a fold under a pending request, an abandoned stream, a late result."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest

from leporello.engine import ContextEngine
from leporello.errors import ContextTooLongError, MalformedAnswerError, MessageError, SessionError
from leporello.events import Notice
from leporello.messages import Message, violations
from leporello.session import AsyncSession, tool_result
from leporello.session.events import WindowCorrected

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LONG = "what is in this part of the yard? " * 200
PIECES = [{"choices": [{"index": 0, "delta": {"content": text}}]} for text in ("The yard ", "is empty.")]


class KeepNewest(ContextEngine):
    """Folds everything but the newest message, whenever it is asked to."""

    name = "keep-newest"

    def __init__(self) -> None:
        self.context_length = 100_000
        self.seen: list[int] = []

    def update_from_response(self, usage: dict[str, Any]) -> None:
        self.last_prompt_tokens = usage["prompt_tokens"]

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        return False

    def compress(
        self,
        messages: list[Any],
        current_tokens: int | None = None,
        focus_topic: str | None = None,
    ) -> list[Any]:
        self.seen.append(len(messages))
        return messages[-1:]


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def texts(session: Any) -> list[Any]:
    return [message["content"] for message in session.window]


def pending(opened: Any, answer: Callable[..., Any]) -> Any:
    """Return a session with a long history whose request waits for its answer."""
    session = opened(engine=KeepNewest())
    session.add(user(LONG))
    session.request()
    session.record(answer(LONG, tokens=3_000))
    session.add(user("And now?"))
    session.request()
    return session


def test_a_count_of_what_was_folded_meanwhile_is_not_used(opened: Any, answer: Callable[..., Any]) -> None:
    session = pending(opened, answer)
    assert session.compress().status == "folded"
    session.record(answer("Empty.", tokens=12_000))
    assert session.usage().tokens < 100
    assert not session.usage().reported


def test_the_journal_goes_on_after_a_fold_under_a_pending_request(opened: Any, answer: Callable[..., Any]) -> None:
    session = pending(opened, answer)
    session.compress()
    session.record(answer("Empty.", tokens=12_000))
    session.add(user("Sure?"))
    session.request()
    session.record(answer("Yes.", tokens=50))
    assert [item["m"] for item in session.store.window("talk").items] == ["m3", "m4", "m5"]


def test_an_answer_costs_what_the_model_costs_that_was_asked(opened: Any, answer: Callable[..., Any]) -> None:
    session = opened(model="claude-opus-4-5", provider="anthropic")
    session.add(user("Hello"))
    session.request()
    session.switch_model("claude-haiku-4-5")
    session.record(answer("Hi.", tokens=1_000_000))
    assert session.usage().conversation.cost_usd == pytest.approx(5.0 + 25 * 10 / 1_000_000)
    assert not session.usage().reported


def test_a_stream_that_nobody_reads_on_is_recorded_before_the_next_request(opened: Any, answer: Any) -> None:
    session = opened()
    session.add(user("Is it empty?"))
    session.request()
    reading = session.stream(iter(PIECES))
    next(reading)
    session.add(user("Never mind."))
    session.request()
    session.record(answer("Well."))
    reading.close()
    assert texts(session) == ["Is it empty?", "The yard ", "Never mind.", "Well."]


@pytest.mark.parametrize("end", ["reset", "undo"])
def test_an_abandoned_stream_is_recorded_before_the_turn_ends(end: str, opened: Any) -> None:
    session = opened()
    session.add(user("Is it empty?"))
    session.request()
    reading = session.stream(iter(PIECES))
    next(reading)
    getattr(session, end)()
    reading.close()
    stored = [row.message["content"] for row in session.store.messages("talk", superseded=True)]
    assert stored == ["Is it empty?", "The yard "]


def test_an_abandoned_stream_may_outlive_its_session(opened: Any) -> None:
    session = opened()
    session.add(user("Is it empty?"))
    session.request()
    reading = session.stream(iter(PIECES))
    next(reading)
    session.close()
    reading.close()
    assert texts(session) == ["Is it empty?", "The yard "]


def test_what_is_said_while_an_answer_comes_stands_behind_it(opened: Any) -> None:
    session = opened()
    session.add(user("Is it empty?"))
    session.request()
    reading = session.stream(iter(PIECES))
    next(reading)
    with pytest.raises(MessageError):
        session.add({"role": "user", "content": b"bytes"})
    session.add(user("And the other one?"))
    list(reading)
    assert texts(session) == ["Is it empty?", "The yard is empty.", "And the other one?"]
    assert [row.message["content"] for row in session.store.messages("talk")] == texts(session)
    assert not session.done


@pytest.mark.parametrize("wrong", [{"choices": [], "usage": None}, ["text", 7], [("id", "x"), ("choices", [])]])
def test_what_is_no_stream_is_said_and_not_taken_for_an_empty_answer(wrong: Any, opened: Any) -> None:
    session = opened()
    session.add(user("Hello"))
    session.request()
    with pytest.raises(MalformedAnswerError, match="stream=True"):
        list(session.stream(wrong))


def test_events_that_lack_their_fields_do_not_break_the_reading(opened: Any) -> None:
    session = opened()
    session.add(user("Hello"))
    session.request()
    broken = [
        {"choices": 5},
        {
            "choices": [
                None,
                {"delta": "x"},
                {"index": 0, "delta": {"tool_calls": [None, {"index": 0, "function": None}]}},
            ]
        },
        {"type": "content_block_start"},
        {"type": "content_block_delta", "index": 0},
    ]
    assert list(session.stream(broken)) == broken
    session.add(user("Again"))
    assert violations(session.request()["messages"], "openai") == []


def test_an_async_session_closes_twice_and_says_that_it_is_closed() -> None:
    async def run() -> None:
        session = await AsyncSession.open("talk", store=":memory:", config={}, model="m", context_length=1_000)
        await session.close()
        await session.close()
        with pytest.raises(SessionError, match="is closed"):
            await session.add(user("Hello"))

    asyncio.run(run())


def test_after_a_new_message_an_overflow_is_recovered_again(opened: Any, answer: Callable[..., Any]) -> None:
    session = pending(opened, answer)
    recovered = [session.recover(ContextTooLongError("too long"))]
    session.request()
    recovered.append(session.recover(ContextTooLongError("too long")))
    session.add({"role": "assistant", "content": LONG}, user("Next."))
    session.request()
    recovered.append(session.recover(ContextTooLongError("too long")))
    assert recovered == [True, False, True]


def test_an_overflow_answer_without_numbers_tells_that_the_window_is_smaller(opened: Any, answer: Any) -> None:
    """Else a built-in engine finds nothing to fold: far below the window that is known, but wrong."""
    session = opened(engine="compressor", context_length=200_000)
    for number in range(60):
        session.add(user(f"Question {number}: " + LONG[:400]))
        session.record(answer(LONG[:400]))
    session.add(user("And now?"))
    session.request()
    size = session.usage().tokens
    assert session.recover(ContextTooLongError("Input is too long for requested model."))
    assert session.context_length == size
    assert session.usage().tokens < size
    assert [(told.before, told.after) for told in session.told if isinstance(told, WindowCorrected)] == [
        (200_000, size)
    ]


def test_a_short_request_that_is_found_too_long_says_nothing_about_the_window(opened: Any) -> None:
    session = opened(context_length=200_000)
    session.add(user("Hello"))
    session.request()
    assert not session.recover(ContextTooLongError("Input is too long for requested model."))
    assert session.context_length == 200_000


def test_a_late_result_finds_its_stub_though_another_came_twice(opened: Any, answer: Callable[..., Any]) -> None:
    session = opened()
    session.add(user("Look at both."))
    session.request()
    first, second = session.record(answer(None, ("look", {"at": 1}), ("look", {"at": 2})))
    session.add(tool_result(second, "second"), tool_result(second, "second again"), user("Hurry up."))
    session.request()
    session.record(answer("Well."))
    session.add(tool_result(first, "first, late"))
    results = {m["tool_call_id"]: m["content"] for m in session.request()["messages"] if m["role"] == "tool"}
    assert (results[first.id], results[second.id]) == ("first, late", "second")


class Meddler(KeepNewest):
    """Changes the messages that it is shown."""

    def _meddle(self, messages: list[Any]) -> None:
        for message in messages:
            message["content"] = "changed"

    def should_compress_preflight(self, messages: list[Any]) -> bool:
        self._meddle(messages)
        return False

    def on_turn_complete(self, messages: list[Any], usage: Any = None, **more: Any) -> None:
        self._meddle(messages)

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        return [{"name": "meddle", "description": "Change things.", "parameters": {"type": "object", "properties": {}}}]

    def handle_tool_call(self, name: str, args: dict[str, Any], **more: Any) -> str:
        self._meddle(more["messages"])
        return "{}"


def test_what_an_engine_does_to_the_live_list_does_not_reach_the_window(opened: Any, answer: Any) -> None:
    session = opened(engine=Meddler())
    session.add(user("Hello"))
    session.request()
    session.record(answer(None, ("meddle", {})))
    assert "changed" not in str(session.request())
    assert "changed" not in str(session.window)


def test_what_the_caller_does_to_an_answer_afterwards_changes_nothing(opened: Any, answer: Callable[..., Any]) -> None:
    session = opened()
    session.add(user("Hello"))
    session.request()
    response = answer(None, ("look", {"at": 1}))
    session.record(response)
    response["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] = "changed"
    assert "changed" not in str(session.window)


def test_a_listener_that_fails_is_logged_and_the_conversation_goes_on(
    opened: Any, answer: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    def listen(event: Any) -> None:
        raise RuntimeError(f"cannot show {type(event).__name__}")

    session = opened(on_event=listen)
    session.add(user("Hello"))
    session.request()
    with caplog.at_level(logging.ERROR, logger="leporello"):
        session.record(answer("Hi."))
    assert session.done
    assert "on_event failed" in caplog.text


def test_a_key_in_the_words_of_an_engine_is_not_passed_on(opened: Any, answer: Callable[..., Any]) -> None:
    key = "sk-proj-" + "aB3dE5fG7hJ9" * 4

    class Telling(KeepNewest):
        def compress(self, messages: Any, *args: Any, **more: Any) -> Any:
            raise RuntimeError(f"refused: {key}")

    session = opened(engine=Telling())
    session.add(user("Hello"))
    session.record(answer("Hi."))
    report = session.compress()
    assert "refused: [REDACTED" in report.reason
    assert key not in f"{report} {session.told}"


def turn(session: Any, answer: Callable[..., Any], text: str) -> None:
    session.add(user(text))
    session.request()
    session.record(answer(f"About {text}"))


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["compressor", "lcm"])
@pytest.mark.parametrize("turns", [1, 14])
def test_a_session_goes_on_from_where_another_one_has_taken_the_conversation(
    turns: int, engine: str, opened: Any, answer: Callable[..., Any], tmp_path: Path
) -> None:
    options = {"engine": engine, "store": tmp_path / "talk.db", "context_length": 3_000}
    one, other = opened(**options), opened(**options)
    turn(one, answer, "a0 " + "word " * 50)
    for number in range(turns):
        turn(other, answer, f"b{number} " + "word " * 100)
    newest = [text[:9] for text in texts(other)[-2:]]
    turn(one, answer, "a1")
    turn(other, answer, "the end")
    assert [text[:9] for text in texts(one)[-4:-2]] == newest
    assert texts(other)[-4:] == ["a1", "About a1", "the end", "About the end"]
    assert opened(**options).window == other.window
    stored = [row.message["content"] for row in one.store.messages("talk")]
    assert len(stored) == len(set(stored)) == 2 * (turns + 3)
    assert [str(told) for told in one.told if isinstance(told, Notice)] == [
        "another process went on with this conversation: it is taken up from there"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["compressor", "lcm", KeepNewest])
def test_a_session_alone_is_never_taken_for_two(engine: Any, opened: Any, answer: Callable[..., Any]) -> None:
    session = opened(engine=engine if isinstance(engine, str) else engine(), context_length=3_000)
    for number in range(12):
        turn(session, answer, f"q{number} " + "word " * 100)
        if number % 3 == 0:
            session.compress()
        if number % 4 == 0:
            session.undo()
    assert not [told for told in session.told if isinstance(told, Notice)]


@pytest.mark.slow
def test_what_two_say_at_the_same_moment_is_in_the_window_of_who_goes_on(
    opened: Any, answer: Callable[..., Any], tmp_path: Path
) -> None:
    one, other = opened(store=tmp_path / "talk.db"), opened(store=tmp_path / "talk.db")
    one.add(user("from one"))
    one.request()
    other.add(user("from the other"))
    other.request()
    one.record(answer("to one"))
    other.record(answer("to the other"))
    turn(one, answer, "again from one")
    for text in ("from one", "to one", "from the other", "to the other", "again from one"):
        assert str(one.window).count(text) >= 1, text
    stored = [row.message["content"] for row in one.store.messages("talk")]
    assert len(stored) == len(set(stored)) == 6


def test_a_call_in_an_answer_that_was_joined_with_the_one_before_keeps_its_id_to_itself(
    opened: Any, answer: Callable[..., Any]
) -> None:
    session = opened()
    session.add(user("Look."))
    session.request()
    session.record(answer("A moment."))
    for number in range(3):
        session.request()
        session.record(answer(f"Look {number}", ("look", {}), id_="c1"))
        session.add(user("And?"))
        assert violations(session.request()["messages"], "openai") == []
        session.record(answer("A moment."))
