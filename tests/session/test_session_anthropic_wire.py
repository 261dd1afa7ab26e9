"""What only Anthropic's format can say reaches Anthropic again, and no more marks than it takes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from leporello.caching.markers import count_markers
from leporello.session import streams, tool_result

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def streamed(*blocks: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the events of an answer: whatever can come in pieces does."""
    yield {"type": "message_start", "message": {"id": "msg_1", "model": "m"}}
    for index, block in enumerate(blocks):
        begun = {key: value for key, value in block.items() if key != "citations"}
        pieces: list[dict[str, Any]] = []
        for key in ("text", "thinking", "signature"):
            if key in block:
                begun[key] = ""
                pieces.append({key: block[key]})
        if "input" in block:
            begun["input"], told = {}, json.dumps(block["input"])
            pieces += [{"partial_json": told[:3]}, {"partial_json": told[3:]}]
        if block["type"] == "compaction":
            begun["content"] = None
            pieces.append({"type": "compaction_delta", "content": block["content"]})
        pieces += [{"citation": one} for one in block.get("citations", ())]
        yield {"type": "content_block_start", "index": index, "content_block": begun}
        for piece in pieces:
            yield {"type": "content_block_delta", "index": index, "delta": piece}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}}
    yield {"type": "message_stop"}


def go_back_streamed(opened: Any) -> None:
    own: list[dict[str, Any]] = [
        {"type": "compaction", "content": "Cranes were counted."},
        {"type": "mcp_tool_use", "id": "mcp1", "name": "berths", "server_name": "port", "input": {"at": 1}},
        {
            "type": "mcp_tool_result",
            "tool_use_id": "mcp1",
            "is_error": False,
            "content": [{"type": "text", "text": "6"}],
        },
    ]
    session = opened(dialect="anthropic", model="claude-sonnet-5")
    session.add(user("Look."))
    session.request()
    list(session.stream(streamed(*own, *BLOCKS)))
    (call,) = session.calls
    session.add(tool_result(call, "a crane"))
    assert unmarked(session.request()["messages"][1]["content"]) == [*own, *BLOCKS]


def test_every_block_of_a_streamed_answer_goes_back_too(opened: Any) -> None:
    go_back_streamed(opened)


def test_planted_an_input_that_does_not_come_at_once_is_lost(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams._AnthropicStream, "_block", lambda self, index: self._blocks[index])
    with pytest.raises(AssertionError):
        go_back_streamed(opened)


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
