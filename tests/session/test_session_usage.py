"""Tokens, cost, cache and tools: what a session counts, and what it sends."""

from __future__ import annotations

import asyncio
import json
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import anthropic
import pytest

from leporello.caching.markers import count_markers
from leporello.errors import MalformedAnswerError, PluginWarning, SessionError
from leporello.events import Notice
from leporello.prices import cost
from leporello.session import AsyncSession, Session, tool_result
from leporello.session.events import PrefixMoved
from leporello.testing.lifecycle import RecordingEngine
from leporello.testing.model_server import ModelServer, Step, Use
from leporello.tokens import DEFAULT_WINDOW, count_request

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CLAUDE = "claude-sonnet-5"
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "read_file", "parameters": {"type": "object", "properties": {}}},
}


def test_before_any_report_the_estimate_counts_system_prompt_and_tools(opened: Any) -> None:
    session = opened(system="Du bist ein Hafenmeister. " * 40, engine="lcm")
    session.add({"role": "user", "content": "港口里有什么？" * 50})
    request = session.request([TOOL])
    usage = session.usage()
    assert usage.tokens == count_request(request["messages"], tools=request["tools"])
    assert not usage.reported
    parts = usage.parts
    assert parts.system > 0
    assert parts.tools > 100  # the engine's tools are among them
    assert parts.system + parts.tools + parts.summaries + parts.tail == pytest.approx(usage.tokens, abs=5)


def test_the_reported_count_wins_and_teaches_the_estimate_of_what_is_new(
    opened: Any, answer: Callable[..., Any]
) -> None:
    session = opened()
    for n in range(4):
        session.add({"role": "user", "content": f"Question {n}: " + "what is in the yard? " * 30})
        session.request()
        estimated = count_request(session.window)
        session.record(answer(f"Answer {n}.", tokens=estimated * 2))
    before = session.usage().tokens
    assert session.usage().reported
    text = "a long question about the yard. " * 30
    session.add({"role": "user", "content": text})
    new = count_request([{"role": "user", "content": text}]) - 3
    assert session.usage().tokens - before == pytest.approx(2 * new, rel=0.1)


def test_after_a_fold_the_count_of_before_is_not_used(opened: Any, answer: Callable[..., Any]) -> None:
    session = opened(engine=RecordingEngine())
    for n in range(4):
        session.add({"role": "user", "content": f"Question {n}: " + "what is in the yard? " * 30})
        session.request()
        session.record(answer(f"Answer {n}.", tokens=90_000))
    session.add({"role": "user", "content": "And?"})
    assert session.usage().tokens > 90_000
    assert session.compress().status == "folded"
    assert not session.usage().reported
    assert session.usage().tokens < 1_000
    session.request()
    assert session.engine.calls[-1].args[0] < 1_000


def test_another_model_is_counted_anew(opened: Any, answer: Callable[..., Any]) -> None:
    session = opened()
    session.add({"role": "user", "content": "Hello"})
    session.request()
    session.record(answer("Hi.", tokens=5_000))
    session.switch_model("other", context_length=50_000)
    assert not session.usage().reported
    assert (session.usage().context_length, session.usage().model) == (50_000, "other")


def test_cost_per_turn_and_conversation_with_cache_reads_and_writes(opened: Any) -> None:
    session = opened(model=CLAUDE, dialect="anthropic")
    usages = [
        {"input_tokens": 100, "cache_creation_input_tokens": 5_000, "cache_read_input_tokens": 0, "output_tokens": 50},
        {"input_tokens": 10, "cache_creation_input_tokens": 200, "cache_read_input_tokens": 5_000, "output_tokens": 70},
    ]
    expected = []
    for n, usage in enumerate(usages):
        session.add({"role": "user", "content": f"Question {n}"})
        session.request()
        text = [{"type": "text", "text": f"Answer {n}"}]
        response = {"type": "message", "role": "assistant", "content": text, "usage": usage, "stop_reason": "end_turn"}
        session.record(response)
        expected.append(session.store.journal("talk")[-1].cost_usd)
    counted = {"input_tokens": 10, "cache_write_tokens": 200, "cache_read_tokens": 5_000, "output_tokens": 70}
    assert expected[1] == cost(counted, CLAUDE, "anthropic")
    spent = session.usage()
    assert spent.turn.cost_usd == expected[1]
    assert spent.conversation.cost_usd == pytest.approx(sum(expected))
    assert (spent.turn.cache_read_tokens, spent.turn.cache_write_tokens) == (5_000, 200)
    assert spent.conversation.prompt_tokens == 5_100 + 5_210
    assert spent.conversation.cache_share == pytest.approx(5_000 / 10_310)


def test_the_cost_of_a_model_without_a_price_is_not_made_up(opened: Any, answer: Callable[..., Any]) -> None:
    session = opened(model="nobody-knows")
    session.add({"role": "user", "content": "Hello"})
    session.request()
    session.record(answer("Hi.", tokens=100))
    session.compress()
    assert session.usage().conversation.cost_usd is None
    assert session.usage().conversation.unpriced == 1


def test_claude_requests_are_marked_and_the_window_is_not(opened: Any, answer: Callable[..., Any]) -> None:
    session = opened(model=CLAUDE, provider="openrouter", system="Be brief.")
    for n in range(6):
        session.add({"role": "user", "content": f"Question {n}"})
        messages = session.request()["messages"]
        assert 1 <= count_markers(messages) <= 4
        session.record(answer(f"Answer {n}"))
    assert count_markers(session.window) == 0
    assert count_markers([row.message for row in session.store.messages("talk")]) == 0
    assert session.caching == "💾 Prompt caching: ENABLED (Claude via OpenRouter, 5m TTL)"


def test_other_models_are_not_marked(opened: Any) -> None:
    session = opened(model="llama-3", provider="openrouter")
    session.add({"role": "user", "content": "Hello"})
    assert count_markers(session.request()["messages"]) == 0


def test_a_prefix_that_moves_is_told_with_its_reason(opened: Any, answer: Callable[..., Any]) -> None:
    session = opened()
    for n in range(3):
        session.add({"role": "user", "content": f"Question {n}: " + "what is there? " * 20})
        session.request([TOOL])
        session.record(answer(f"Answer {n}"))
    assert not [event for event in session.told if isinstance(event, PrefixMoved)]
    session.add({"role": "user", "content": "And?"})
    session.request([TOOL, {**TOOL, "function": {**TOOL["function"], "name": "terminal"}}])
    (moved,) = [event for event in session.told if isinstance(event, PrefixMoved)]
    assert moved.reason == "tools changed"
    assert moved.tokens_lost > 0
    assert session.usage().prefix_moves == 1


def test_private_keys_and_times_stay_at_home(opened: Any) -> None:
    session = opened()
    session.add({"role": "user", "content": "Hello", "timestamp": "2026-01-01", "_note": 1, "name": "anna"})
    assert session.request()["messages"] == [{"role": "user", "content": "Hello", "name": "anna"}]
    assert session.window[0]["_note"] == 1


def test_tools_of_both_formats_reach_each_provider_in_its_own(opened: Any) -> None:
    in_anthropic = {"name": "list", "description": "List.", "input_schema": {"type": "object", "properties": {}}}
    session = opened("a", dialect="anthropic", engine=RecordingEngine())
    session.add({"role": "user", "content": "Hello"})
    tools = session.request([TOOL, in_anthropic])["tools"]
    assert [tool["name"] for tool in tools] == ["read_file", "list", "recall"]
    assert all("input_schema" in tool for tool in tools)
    session = opened("b", engine=RecordingEngine())
    session.add({"role": "user", "content": "Hello"})
    tools = session.request([TOOL])["tools"]
    assert [tool["function"]["name"] for tool in tools] == ["read_file", "recall"]


def test_a_request_holds_nothing_but_messages_tools_and_system(opened: Any) -> None:
    plain = opened("a", system="Be brief.")
    plain.add({"role": "user", "content": "Hello"})
    assert plain.request().keys() == {"messages"}
    both = opened("b", system="Be brief.", dialect="anthropic", engine="lcm")
    both.add({"role": "user", "content": "Hello"})
    assert both.request().keys() == {"system", "messages", "tools"}


def test_a_tool_of_the_callers_wins_over_the_engines_of_the_same_name(opened: Any, answer: Callable[..., Any]) -> None:
    session = opened(engine=RecordingEngine())
    own = {"type": "function", "function": {"name": "recall", "parameters": {"type": "object", "properties": {}}}}
    session.add({"role": "user", "content": "Hello"})
    with pytest.warns(PluginWarning, match="recall"):
        session.request([own])
    (call,) = session.record(answer(None, ("recall", {})))
    assert call.name == "recall"
    session.add(tool_result(call, "mine"))
    session.request([own])  # the same list again: nobody is warned twice


def test_thinking_blocks_go_back_signed_and_in_order() -> None:
    script: list[Any] = [
        Step(thinking="I should look.", text="Looking.", tool_calls=[Use(name="read_file", arguments={"path": "a"})]),
        Step(thinking="Empty.", text="It is empty."),
        "Bye.",
    ]
    with (
        ModelServer(script) as server,
        anthropic.Anthropic(base_url=server.anthropic_url, api_key="any") as client,
        Session.open("t", dialect="anthropic", store=":memory:", config={}, model="any") as session,
    ):
        for text in ("What is in a?", "Thanks."):
            session.add({"role": "user", "content": text})
            while not session.done:
                response = client.messages.create(model="any", max_tokens=500, **session.request([TOOL]))
                for call in session.record(response):
                    session.add({"role": "user", "content": [result_block(call.id, "nothing")]})
        sent = server.requests[-1].body["messages"]
    blocks = [(m["role"], b["type"]) for m in sent for b in m["content"] if isinstance(m["content"], list)]
    assert blocks == [
        ("assistant", "thinking"),
        ("assistant", "text"),
        ("assistant", "tool_use"),
        ("user", "tool_result"),
        ("assistant", "thinking"),
        ("assistant", "text"),
    ]
    assert sent[1]["content"][0]["thinking"] == "I should look."
    assert sent[1]["content"][0]["signature"]


def result_block(call_id: str, text: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": text}


def test_an_unknown_window_is_assumed_and_said(opened: Any) -> None:
    session = opened(model="nobody-knows", context_length=None)
    assert session.context_length == DEFAULT_WINDOW
    (notice,) = [str(event) for event in session.told if isinstance(event, Notice)]
    assert "'nobody-knows' is not known: 128,000 tokens are assumed; set model.context_length" in notice


def test_mistakes_are_said_clearly(opened: Any) -> None:
    with pytest.raises(SessionError, match="use 'openai', 'anthropic' or 'responses'"):
        Session.open("a", dialect="gemini", store=":memory:", config={})  # type: ignore[arg-type]
    with pytest.raises(SessionError, match="leave out llm"):
        Session.open("a", engine=RecordingEngine(), llm=None, store=":memory:", config={})
    session = opened()
    session.add({"role": "user", "content": "Hello"})
    answers: tuple[Any, ...] = (
        "Hi.",
        {"choices": []},
        {"choices": [{"message": None}]},
        {"error": {"message": "no"}},
        7,
        None,
    )
    for wrong in answers:
        with pytest.raises(MalformedAnswerError):
            session.record(wrong)
    assert len(session.window) == 1


PLUGIN = '''
    import sqlite3, threading
    from leporello import ContextEngine

    THREADS = set()

    class BoundEngine(ContextEngine):
        """Holds a connection that belongs to the thread that opened it."""

        name = "bound"

        def __init__(self, context_length=0):
            self.connection = sqlite3.connect(":memory:")
            self.connection.execute("CREATE TABLE calls (method TEXT)")

        def note(self, method):
            THREADS.add(threading.get_ident())
            self.connection.execute("INSERT INTO calls VALUES (?)", (method,))

        def update_from_response(self, usage):
            self.note("update_from_response")

        def should_compress(self, prompt_tokens=None):
            self.note("should_compress")
            return False

        def compress(self, messages, current_tokens=None, focus_topic=None):
            self.note("compress")
            return messages

        def on_session_start(self, session_id, **kwargs):
            self.note("on_session_start")

        def on_session_end(self, session_id, messages):
            self.note("on_session_end")

        def close(self):
            self.note("close")
            self.connection.close()
'''


def test_a_thread_of_its_own_constructs_the_engine_and_makes_every_call(tmp_path: Path, answer: Any) -> None:
    folder = tmp_path / "engines" / "bound"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(textwrap.dedent(PLUGIN), encoding="utf-8")
    (folder / "plugin.yaml").write_text("name: bound\ndescription: x\nversion: 1.0.0\n", encoding="utf-8")
    config = {"plugins": {"paths": [str(tmp_path / "engines")]}, "context": {"engine": "bound"}}

    async def talk() -> None:
        async with await AsyncSession.open("t", config=config, store=":memory:", context_length=1_000) as session:
            for n in range(3):
                await session.add({"role": "user", "content": f"Question {n}"})
                await session.request()
                await session.record(answer(f"Answer {n}"))
            await session.compress()
            await session.reset()

    asyncio.run(talk())
    (module,) = [module for name, module in sys.modules.items() if "bound_" in name and hasattr(module, "THREADS")]
    assert len(module.THREADS) == 1


def test_events_of_an_async_session_arrive_in_the_event_loop(answer: Any) -> None:
    import threading

    threads: set[int] = set()

    async def talk() -> None:
        def heard(event: Any) -> None:
            threads.add(threading.get_ident())

        async with await AsyncSession.open("t", config={}, store=":memory:", on_event=heard) as session:
            await session.add({"role": "user", "content": "Hello"})
            await session.request()
            await session.record(answer("Hi."))
            assert (await session.usage()).messages == 2
            assert await session.undo()

    asyncio.run(talk())
    assert threads == {threading.get_ident()}


def test_the_arguments_of_a_call_come_parsed_and_as_they_were(opened: Any) -> None:
    session = opened()
    session.add({"role": "user", "content": "Hello"})
    calls = [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": [1, 2]}'}},
        {"id": "b", "type": "function", "function": {"name": "f", "arguments": '{"x": [1, '}},
    ]
    session.request()
    one, other = session.record({"choices": [{"message": {"role": "assistant", "content": None, "tool_calls": calls}}]})
    assert (one.arguments, one.raw) == ({"x": [1, 2]}, '{"x": [1, 2]}')
    assert (other.arguments, other.raw) == ({}, '{"x": [1, ')
    session.add(tool_result(one, "1"), tool_result(other, "the arguments are not JSON"))
    sent = session.request()["messages"]
    assert all(json.loads(call["function"]["arguments"]) for call in sent[1]["tool_calls"])
