"""What only Anthropic's format can say reaches Anthropic again, and no more marks than it takes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from leporello.caching.markers import count_markers
from leporello.session import tool_result

MARK = {"type": "ephemeral"}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": list(blocks), "stop_reason": "end_turn"}


def unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: unmarked(item) for key, item in value.items() if key != "cache_control"}
    return [unmarked(item) for item in value] if isinstance(value, list) else value


BLOCKS: list[dict[str, Any]] = [
    {"type": "thinking", "thinking": "first", "signature": "s1"},
    {"type": "redacted_thinking", "data": "zz"},
    {"type": "server_tool_use", "id": "srv1", "name": "web_search", "input": {"query": "cranes"}},
    {"type": "web_search_tool_result", "tool_use_id": "srv1", "content": [{"type": "web_search_result", "url": "u"}]},
    {"type": "text", "text": "It says so.", "citations": [{"type": "web_search_result_location", "url": "u"}]},
    {"type": "thinking", "thinking": "second", "signature": "s2"},
    {"type": "tool_use", "id": "tu1", "name": "look", "input": {"at": 1}},
]


@pytest.mark.parametrize("provider", ["anthropic", "openrouter"])
def test_every_block_of_an_answer_goes_back_in_order_with_all_its_fields(provider: str, opened: Any) -> None:
    session = opened(dialect="anthropic", model="claude-sonnet-5", provider=provider)
    session.add(user("Look."))
    session.request()
    (call,) = session.record(said(*BLOCKS))
    session.add(tool_result(call, "a crane"))
    for _ in range(3):
        assert unmarked(session.request()["messages"][1]["content"]) == BLOCKS
        session.record(said({"type": "text", "text": "More?"}))
        session.add(user("More."))


def test_a_result_that_failed_is_sent_as_failed(opened: Any) -> None:
    session = opened(dialect="anthropic", model="claude-sonnet-5")
    session.add(user("Look."))
    session.request()
    session.record(said(BLOCKS[-1]))
    result = {"type": "tool_result", "tool_use_id": "tu1", "content": "no crane", "is_error": True}
    session.add({"role": "user", "content": [result]})
    for _ in range(3):
        assert unmarked(session.request()["messages"][2]["content"][0]) == result
        session.record(said({"type": "text", "text": "More?"}))
        session.add(user("More."))


def test_tool_results_are_marked_in_anthropics_dialect_for_every_provider(opened: Any) -> None:
    session = opened(dialect="anthropic", model="claude-sonnet-5", provider="openrouter")
    session.add(user("Look."))
    session.request()
    (call,) = session.record(said(BLOCKS[-1]))
    session.add(tool_result(call, "a crane"))
    assert session.request()["messages"][-1]["content"][0]["cache_control"] == MARK


@pytest.mark.slow
@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
@pytest.mark.parametrize("marked_tools", range(7))
def test_there_are_never_more_than_four_marks_whatever_came_in(marked_tools: int, dialect: str, opened: Any) -> None:
    session = opened(dialect=dialect, model="claude-sonnet-5", provider="anthropic", system="You watch over a port.")
    for number in range(6):
        part = {"type": "text", "text": f"Question {number}", "cache_control": MARK}
        session.add({"role": "user", "content": [part], "cache_control": MARK})
        session.record(said({"type": "text", "text": f"Answer {number}", "cache_control": MARK}))
    session.add(user("And now?"))
    tools = [
        {"name": f"t{n}", "description": "d", "input_schema": {"type": "object", "properties": {}}} for n in range(7)
    ]
    for tool in tools[:marked_tools]:
        tool["cache_control"] = MARK
    request = session.request(tools=tools)
    assert json.dumps(request).count("cache_control") <= 4
    assert count_markers(request["tools"]) == (marked_tools if marked_tools <= 4 else 1)
    assert all("cache_control" in tool for tool in tools[:marked_tools])
