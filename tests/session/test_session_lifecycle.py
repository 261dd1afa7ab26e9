"""The exact order of calls on an engine, whatever hosts the conversation."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from openai import AsyncOpenAI, OpenAI

from leporello.compressor import ContextCompressor
from leporello.events import Event, Notice
from leporello.session import AsyncSession, Session, tool_result
from leporello.store import open_store
from leporello.testing.lifecycle import FIRES_AT, LOG, SAID, SCRIPT, RecordingEngine, expected_calls
from leporello.testing.model_server import ModelServer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.slow

READ_FILE = {"type": "function", "function": {"name": "read_file", "parameters": {"type": "object", "properties": {}}}}
ASKED = ["should_compress_preflight", "should_compress"]
ANSWERED = ["update_from_response", "on_turn_complete"]


def play(engine: RecordingEngine, server: ModelServer) -> None:
    with (
        OpenAI(base_url=server.openai_url, api_key="any") as client,
        Session.open("story", engine=engine, store=":memory:", config={}, model="any") as session,
    ):
        for text in SAID:
            session.add({"role": "user", "content": text})
            while not session.done:
                response = client.chat.completions.create(model="any", **session.request([READ_FILE]))
                for call in session.record(response):
                    session.add(tool_result(call, LOG))


async def play_async(engine: RecordingEngine, server: ModelServer) -> None:
    client = AsyncOpenAI(base_url=server.openai_url, api_key="any")
    async with (
        client,
        await AsyncSession.open("story", engine=engine, store=":memory:", config={}, model="any") as session,
    ):
        for text in SAID:
            await session.add({"role": "user", "content": text})
            while not session.done:
                response = await client.chat.completions.create(model="any", **await session.request([READ_FILE]))
                for call in await session.record(response):
                    await session.add(tool_result(call, LOG))


def test_a_session_makes_these_calls_in_this_order() -> None:
    engine = RecordingEngine(fires_at=FIRES_AT)
    with ModelServer(SCRIPT) as server:
        play(engine, server)
    assert engine.story() == expected_calls("story")


def test_an_async_session_makes_the_same_calls() -> None:
    engine = RecordingEngine(fires_at=FIRES_AT)
    with ModelServer(SCRIPT) as server:
        asyncio.run(play_async(engine, server))
    assert engine.story() == expected_calls("story")


def test_a_host_that_forgets_a_call_is_caught() -> None:
    """Planted: an engine that is not told about the end of model calls."""

    class Deaf(RecordingEngine):
        on_turn_complete = None  # type: ignore[assignment]

    engine = Deaf(fires_at=FIRES_AT)
    with ModelServer(SCRIPT) as server:
        play(engine, server)
    assert engine.story() != expected_calls("story")


def test_the_engine_is_told_where_it_runs(home: Path) -> None:
    engine = RecordingEngine()
    Session.open("told", engine=engine, store=":memory:", config={}, model="m", owner="anna", platform="bot").close()
    (start,) = [call for call in engine.calls if call.method == "on_session_start"]
    told = {key: value for key, value in start.options.items() if key != "lease_token"}
    assert told == {
        "platform": "bot",
        "model": "m",
        "context_length": 100_000,
        "conversation_id": "told",
        "leporello_home": str(home),
        "hermes_home": str(home),
        "owner": "anna",
    }
    assert start.options["lease_token"]


def test_the_live_list_reaches_the_engines_tool(answer: Callable[..., Any]) -> None:
    engine = RecordingEngine()
    with Session.open("live", engine=engine, store=":memory:", config={}) as session:
        session.add({"role": "user", "content": "Recall it."})
        session.request()
        assert session.record(answer(None, ("recall", {"about": "x"}))) == []
        assert not session.done
        window = session.window
    (call,) = [call for call in engine.calls if call.method == "handle_tool_call"]
    assert call.args == ("recall", {"about": "x"})
    assert call.options["messages"] == window[:2]
    assert window[2]["content"] == '{"recalled": {"about": "x"}}'


def test_a_model_switch_is_told_before_the_next_question(answer: Callable[..., Any]) -> None:
    engine = RecordingEngine()
    with Session.open("switch", engine=engine, store=":memory:", config={}, model="m") as session:
        session.switch_model("gpt-5.5", provider="openai-codex")
        session.add({"role": "user", "content": "Hello"})
        session.request()
        session.record(answer("Hi."))
        assert session.context_length == 272_000
    assert engine.methods() == [
        "update_model",
        "on_session_start",
        "update_model",
        *ASKED,
        *ANSWERED,
        "on_session_end",
    ]
    assert engine.calls[2].args == ("gpt-5.5", 272_000)


def test_reset_ends_resets_and_starts_the_same_engine(answer: Callable[..., Any]) -> None:
    engine = RecordingEngine()
    with Session.open("old", engine=engine, store=":memory:", config={}, system="Be brief.") as session:
        session.add({"role": "user", "content": "Hello"})
        session.request()
        session.record(answer("Hi."))
        new = session.reset()
        assert new == session.id != "old"
        assert session.window == [{"role": "system", "content": "Be brief."}]
        assert session.reset("third") == "third"
    assert engine.story() == [
        "update_model",
        "on_session_start old",
        *ASKED,
        *ANSWERED,
        "on_session_end old",
        "on_session_reset",
        f"on_session_start {new}",
        f"on_session_end {new}",
        "on_session_reset",
        "on_session_start third",
        "on_session_end third",
    ]


def test_a_crash_calls_nothing_and_a_resumed_conversation_starts_again(
    tmp_path: Path, answer: Callable[..., Any]
) -> None:
    crashed = RecordingEngine()
    session = Session.open("talk", engine=crashed, store=tmp_path / "s.db", config={})
    session.add({"role": "user", "content": "Hello"})
    session.request()
    session.record(answer("Hi."))
    session.add({"role": "user", "content": "Still there?"})
    del session  # as kill -9 does: nothing is closed

    resumed = RecordingEngine()
    with Session.open("talk", engine=resumed, store=tmp_path / "s.db", config={}) as session:
        assert [message["content"] for message in session.window] == ["Hello", "Hi.", "Still there?"]
        assert not session.done
        session.request()
        session.record(answer("Yes."))
    assert crashed.methods() == ["update_model", "on_session_start", *ASKED, *ANSWERED]
    assert resumed.story() == ["update_model", "on_session_start talk", *ASKED, *ANSWERED, "on_session_end talk"]


def test_an_engine_that_was_handed_over_is_not_closed_and_a_loaded_one_is() -> None:
    engine = RecordingEngine()
    Session.open("a", engine=engine, store=":memory:", config={}).close()
    assert "close" not in engine.methods()


def test_closing_twice_ends_once() -> None:
    engine = RecordingEngine()
    session = Session.open("a", engine=engine, store=":memory:", config={})
    session.close()
    session.close()
    assert engine.methods() == ["update_model", "on_session_start", "on_session_end"]


def test_the_conversation_is_marked_as_ended_in_the_store(tmp_path: Path, answer: Callable[..., Any]) -> None:
    with Session.open("talk", store=tmp_path / "s.db", config={}) as session:
        session.add({"role": "user", "content": "Hello"})
        session.request()
        session.record(answer("Hi."))
    store = open_store(tmp_path / "s.db")
    info = store.info("talk")
    store.close()
    assert info is not None
    assert info.ended is not None


CODEX: dict[str, Any] = {"model": "gpt-5.5", "provider": "openai-codex"}


def raises_told(told: list[Event]) -> list[Event]:
    """Return the notices of a raised threshold."""
    return [event for event in told if isinstance(event, Notice) and "85 %" in event.text]


@pytest.mark.parametrize("given", [False, True], ids=["configured engine", "own engine"])
def test_a_raised_threshold_is_told_once_when_a_session_is_opened(*, given: bool) -> None:
    told: list[Event] = []
    engine = ContextCompressor() if given else None
    with Session.open("codex", engine=engine, store=":memory:", config={}, on_event=told.append, **CODEX) as session:
        assert session.usage().threshold_tokens == 231_200
        session.add({"role": "user", "content": "Hello"})
        session.request()
        session.reset("next")
    (notice,) = raises_told(told)
    assert notice.session_id == "codex"


def test_a_raised_threshold_is_told_in_an_event_loop_too() -> None:
    told: list[Event] = []

    async def talk() -> None:
        async with await AsyncSession.open("codex", store=":memory:", config={}, on_event=told.append, **CODEX):
            pass

    asyncio.run(talk())
    assert len(raises_told(told)) == 1
