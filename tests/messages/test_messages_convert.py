"""Conversion: to Anthropic's format and back, with the residue equal, without it equal in canonical form."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from copy import deepcopy
from typing import Any, cast

import pytest
from hypothesis import given, settings
from inline_snapshot import snapshot

from leporello.errors import MessageError
from leporello.messages import (
    Message,
    anthropic_request,
    canonical,
    from_anthropic,
    repair,
    to_anthropic,
    tools_from_anthropic,
    tools_to_anthropic,
    violations,
)
from leporello.testing.conversations import conversation
from leporello.testing.defects import broken_conversation
from leporello.testing.strategies import valid_conversations

To = Callable[[list[Any]], tuple[dict[str, Any], dict[str, Any]]]
Back = Callable[..., list[Any]]

USER: Message = {"role": "user", "content": "hello"}
ANSWER: Message = {"role": "assistant", "content": "hi"}
MARK = {"type": "ephemeral"}
SIGNED = {"type": "thinking", "thinking": "hm", "signature": "sig"}
TEXT = {"type": "text", "text": "words"}


def call(call_id: str = "c1", arguments: str = '{"a": 1}', **fields: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "f", "arguments": arguments}, **fields}


def result(call_id: str = "c1", content: Any = "done", **fields: Any) -> Any:
    return {"role": "tool", "tool_call_id": call_id, "content": content, **fields}


def check_round_trip(to: To, back: Back, messages: list[Any]) -> None:
    """Require all that the conversion of a valid conversation promises."""
    before = deepcopy(messages)
    request, residue = to(messages)
    assert messages == before, "the input was changed"
    check_request(request)
    said = json.dumps(request, ensure_ascii=False)
    assert all(json.dumps(words, ensure_ascii=False)[1:-1] in said for words in words_of(messages))
    stored = json.loads(json.dumps(residue))
    assert back(request, stored) == messages
    plain = back(request)
    assert canonical(plain) == canonical(messages)
    assert to(plain)[0] == request, "the way back does not lead there again"
    assert violations(plain, "anthropic") == []


def words_of(messages: list[Any]) -> list[str]:
    """Return the texts that must not get lost on the way."""
    texts = [m["content"] for m in messages if isinstance(m["content"], str) and m["content"].strip()]
    parts = [p for m in messages if isinstance(m["content"], list) for p in m["content"]]
    return texts + [p[key] for p in parts for key in ("text", "thinking", "signature", "data") if key in p]


def check_request(request: dict[str, Any]) -> None:
    """Require what Anthropic requires, read from the blocks alone."""
    assert request.keys() <= {"system", "messages"}
    assert request.get("system", "absent") not in ([], "", None)
    for block in request.get("system", ()):
        check_block(block, "system")
    messages = request["messages"]
    assert [m["role"] for m in messages] == ["user", "assistant"] * (len(messages) // 2) + ["user"] * (
        len(messages) % 2
    )
    used: list[str] = []
    open_calls: list[str] = []
    for message in messages:
        assert message.keys() == {"role", "content"}
        blocks = (
            message["content"]
            if isinstance(message["content"], list)
            else [{"type": "text", "text": message["content"]}]
        )
        assert blocks
        assert blocks[-1]["type"] not in ("thinking", "redacted_thinking")
        for block in blocks:
            check_block(block, message["role"])
        answered = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        assert sorted(answered) == sorted(open_calls)
        assert all(block["type"] == "tool_result" for block in blocks[: len(answered)])
        open_calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
        used += open_calls
    assert len(used) == len(set(used))


FIELDS = {
    "text": {"type", "text", "cache_control"},
    "image": {"type", "source", "cache_control"},
    "thinking": {"type", "thinking", "signature"},
    "redacted_thinking": {"type", "data"},
    "tool_use": {"type", "id", "name", "input", "cache_control"},
    "tool_result": {"type", "tool_use_id", "content", "cache_control"},
}
ALLOWED = {
    "system": {"text"},
    "user": {"text", "image", "tool_result"},
    "assistant": {"text", "thinking", "redacted_thinking", "tool_use"},
    "tool_result": {"text", "image"},
}


def check_block(block: dict[str, Any], place: str) -> None:
    assert block["type"] in ALLOWED[place]
    assert block.keys() <= FIELDS[block["type"]], block
    assert block.get("text", "x").strip()
    assert isinstance(block.get("input", {}), dict)
    assert re.fullmatch(r"[a-zA-Z0-9_-]+", block.get("id", block.get("tool_use_id", "x")))
    assert block.get("source", {}).keys() <= {"type", "media_type", "data", "url"}
    if block["type"] == "tool_result" and isinstance(block["content"], list):
        for inner in block["content"]:
            check_block(inner, "tool_result")


@pytest.mark.slow
@given(valid_conversations())
@settings(max_examples=250, deadline=None)
def test_a_valid_conversation_makes_the_round_trip(messages: list[Any]) -> None:
    check_round_trip(to_anthropic, from_anthropic, messages)


@pytest.mark.slow
@pytest.mark.parametrize("thousand", range(10))
def test_ten_thousand_conversations_are_valid_and_make_the_round_trip(thousand: int) -> None:
    for seed in range(thousand * 1000, thousand * 1000 + 1000):
        messages = conversation(seed, turns=1 + seed % 4)
        assert violations(messages, "openai") == []
        assert violations(messages, "anthropic") == []
        check_round_trip(to_anthropic, from_anthropic, messages)


def _forgets_the_residue(messages: list[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    return to_anthropic(messages)[0], {"originals": []}


def _without(field: str) -> To:
    def lossy(messages: list[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        request, residue = to_anthropic(messages)
        text = json.dumps(request)
        return json.loads(re.sub(rf'"{field}": "(?:[^"\\]|\\.)*"', f'"{field}": "x"', text)), residue

    return lossy


def _leaks_private_keys(messages: list[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    request, residue = to_anthropic(messages)
    return {**request, "messages": [{**m, "_note": 1} for m in request["messages"]]}, residue


def _parts_results(messages: list[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    request, residue = to_anthropic(messages)
    split = [
        {"role": m["role"], "content": [block]} if isinstance(m["content"], list) else m
        for m in request["messages"]
        for block in (m["content"] if isinstance(m["content"], list) else [None])
    ]
    return {**request, "messages": split}, residue


@pytest.mark.parametrize(
    "planted",
    [_forgets_the_residue, _without("text"), _without("thinking"), _without("id"), _leaks_private_keys, _parts_results],
)
def test_a_planted_defect_in_the_converter_is_noticed(planted: To) -> None:
    with pytest.raises(AssertionError):
        check_round_trips(planted, from_anthropic)


def check_round_trips(to: To, back: Back) -> None:
    for seed in range(60):
        check_round_trip(to, back, conversation(seed))


def _forgets_calls(request: dict[str, Any], residue: Any = None) -> list[Any]:
    return [{k: v for k, v in m.items() if k != "tool_calls"} for m in from_anthropic(request, residue)]


def _ignores_the_guard(request: dict[str, Any], residue: Any = None) -> list[Any]:
    messages = from_anthropic(request)
    for entry in reversed(residue["originals"] if residue else []):
        messages[entry["at"] : entry["at"] + entry["span"]] = entry["messages"]
    return messages


def test_a_way_back_that_forgets_calls_is_noticed() -> None:
    with pytest.raises(AssertionError):
        check_round_trips(to_anthropic, _forgets_calls)


@pytest.mark.parametrize(("back", "kept"), [(from_anthropic, "edited"), (_ignores_the_guard, "hello")])
def test_an_edited_request_is_not_reverted(back: Back, kept: str) -> None:
    request, residue = to_anthropic([{**USER, "timestamp": "t1"}, {"role": "assistant", "content": "hi", "name": "Bo"}])
    request["messages"][0]["content"] = "edited"
    request["messages"].append({"role": "user", "content": "more"})
    messages = back(request, residue)
    assert messages[0]["content"] == kept
    assert messages[1:] == [{"role": "assistant", "content": "hi", "name": "Bo"}, {"role": "user", "content": "more"}]


def test_the_residue_holds_only_what_is_lost() -> None:
    messages: list[Message] = [USER, {"role": "assistant", "content": "hi"}, {**USER, "name": "Ada"}]
    residue = to_anthropic(messages)[1]
    assert [entry["messages"] for entry in residue["originals"]] == [[{**USER, "name": "Ada"}]]
    assert to_anthropic(messages[:2])[1] == {"originals": []}


def test_a_conversation_with_everything_converts_like_this() -> None:
    messages: list[Any] = [
        {"role": "developer", "content": "be brief", "cache_control": MARK},
        {"role": "user", "content": [TEXT, {"type": "image_url", "image_url": {"url": "data:image/jpg;base64,AA=="}}]},
        {"role": "assistant", "content": "\n", "thinking_blocks": [SIGNED], "tool_calls": [call("a.b"), call("c")]},
        result("a.b", "", cache_control=MARK, name="f"),
        result("c", [{"type": "image_url", "image_url": {"url": "https://e.com/a.png", "detail": "low"}}]),
        {"role": "user", "content": "and?", "_note": 1},
        {"role": "assistant", "content": None, "refusal": "No.", "cache_control": MARK},
    ]
    assert to_anthropic(messages)[0] == snapshot(
        {
            "system": [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}],
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "words"},
                        {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "AA=="}},
                    ],
                },
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "hm", "signature": "sig"},
                        {"type": "tool_use", "id": "a_b_e56a617bbe0d", "name": "f", "input": {"a": 1}},
                        {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "tool_result",
                            "tool_use_id": "a_b_e56a617bbe0d",
                            "content": "",
                            "cache_control": {"type": "ephemeral"},
                        },
                        {
                            "type": "tool_result",
                            "tool_use_id": "c",
                            "content": [{"type": "image", "source": {"type": "url", "url": "https://e.com/a.png"}}],
                        },
                        {"type": "text", "text": "and?"},
                    ],
                },
                {
                    "role": "assistant",
                    "content": [{"type": "text", "text": "No.", "cache_control": {"type": "ephemeral"}}],
                },
            ],
        }
    )
    check_round_trip(to_anthropic, from_anthropic, messages)


def only(message: Message) -> Any:
    return to_anthropic([message])[0]["messages"][0]["content"]


def test_a_marker_on_a_message_moves_to_what_can_carry_it() -> None:
    marked: Message = {"role": "assistant", "cache_control": MARK}
    assert only({**marked, "content": "hi"}) == [{"type": "text", "text": "hi", "cache_control": MARK}]
    assert only({**marked, "content": [TEXT, TEXT]}) == [TEXT, {**TEXT, "cache_control": MARK}]
    assert only({**marked, "content": [TEXT, SIGNED]}) == [{**TEXT, "cache_control": MARK}, SIGNED]
    uses = only({**marked, "content": "hi", "tool_calls": [call("a"), call("b")]})
    assert [block.get("cache_control") for block in uses] == [None, None, MARK]


def test_a_marker_is_dropped_where_nothing_can_carry_it() -> None:
    assert only({"role": "assistant", "content": [{**SIGNED, "cache_control": MARK}], "cache_control": MARK}) == [
        SIGNED
    ]
    assert only({"role": "user", "content": "", "cache_control": MARK}) == ""


def test_ids_that_anthropic_refuses_are_mapped_without_collision() -> None:
    ids = ["a.b", "a:b", "a_b", "ä", "x" * 100, "functions.f:0"]
    messages = [USER, {"role": "assistant", "content": None, "tool_calls": [call(i) for i in ids]}, *map(result, ids)]
    check_round_trip(to_anthropic, from_anthropic, messages)


def test_what_anthropic_cannot_show_becomes_a_line_of_text() -> None:
    audio = {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}}
    pdf = {"type": "file", "file": {"file_data": "data:application/pdf;base64,AA==", "filename": "a.pdf"}}
    messages: list[Message] = [{"role": "user", "content": [audio, pdf]}]
    request, residue = to_anthropic(messages)
    assert request["messages"][0]["content"] == snapshot(
        [
            {"type": "text", "text": "[audio that cannot be shown here]"},
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AA=="}},
        ]
    )
    assert from_anthropic(request, residue) == messages


REAL: list[dict[str, Any]] = [
    {"role": "user", "content": "Fix it"},
    {
        "role": "assistant",
        "content": [
            SIGNED,
            {"type": "text", "text": "I look.", "citations": [{"type": "char_location", "cited_text": "x"}]},
            {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"p": 1.0}, "caller": {"type": "direct"}},
            {"type": "redacted_thinking", "data": "d"},
            {"type": "text", "text": "And again.", "cache_control": MARK},
            {"type": "tool_use", "id": "toolu_2", "name": "Bash", "input": {}, "cache_control": MARK},
        ],
    },
    {
        "role": "user",
        "content": [
            {
                "type": "tool_result",
                "tool_use_id": "toolu_1",
                "content": [
                    {"type": "text", "text": "ok", "cache_control": MARK},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}},
                    {"type": "search_result", "source": "s", "title": "t", "content": []},
                ],
                "is_error": True,
            },
            {"type": "tool_result", "tool_use_id": "toolu_2", "cache_control": MARK, "toolset_name": "shell"},
            {"type": "text", "text": "Go on", "cache_control": MARK},
            {"type": "document", "source": {"type": "file", "file_id": "f1"}, "title": "t"},
        ],
    },
    {
        "role": "assistant",
        "content": [
            {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "q"}},
            {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []},
            {"type": "text", "text": "Done."},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "image", "source": {"type": "url", "url": "https://e.com/a.png"}, "cache_control": MARK},
            {"type": "image", "source": {"type": "file", "file_id": "f2"}},
            {"type": "text", "text": "Thanks"},
        ],
    },
    {"role": "assistant", "content": "Welcome"},
]


def check_anthropic_round_trip(to: To, request: dict[str, Any]) -> None:
    before = deepcopy(request)
    messages = from_anthropic(request)
    assert violations(messages, "anthropic") == []
    assert to(messages)[0] == request == before


def test_anthropic_content_comes_back_equal() -> None:
    system = [{"type": "text", "text": "s", "cache_control": MARK}, {"type": "text", "text": "t"}]
    check_anthropic_round_trip(to_anthropic, {"system": system, "messages": REAL})


def test_a_converter_that_loses_the_notes_is_noticed() -> None:
    def careless(messages: list[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        return to_anthropic([cast("Message", {k: v for k, v in m.items() if k != "_anthropic"}) for m in messages])

    with pytest.raises(AssertionError):
        check_anthropic_round_trip(careless, {"messages": REAL})


@pytest.mark.slow
@given(valid_conversations(extras=False))
@settings(max_examples=100, deadline=None)
def test_any_anthropic_request_comes_back_equal(messages: list[Any]) -> None:
    check_anthropic_round_trip(to_anthropic, to_anthropic(messages)[0])


def test_a_note_that_does_not_fit_any_more_is_ignored() -> None:
    messages = from_anthropic({"messages": REAL})
    messages[1]["content"] = "edited"
    assert [block["type"] for block in to_anthropic(messages)[0]["messages"][1]["content"]] == [
        "text",
        "tool_use",
        "tool_use",
    ]
    messages[1] = {**messages[1], "content": [TEXT, TEXT, TEXT, SIGNED], "_anthropic": {"order": "cpcppp"}}
    assert to_anthropic(messages)[0]["messages"][1]["content"][-1]["type"] == "tool_use"


def test_interleaved_order_survives_a_repair_that_joins_messages() -> None:
    split = [REAL[0], {"role": "assistant", "content": [{"type": "text", "text": "First."}]}, *REAL[1:]]
    joined = repair(from_anthropic({"messages": split})).messages
    blocks = to_anthropic(joined)[0]["messages"][1]["content"]
    assert blocks == [{"type": "text", "text": "First."}, *REAL[1]["content"]]


def test_system_text_of_anthropic_is_one_system_message() -> None:
    assert from_anthropic({"system": "s", "messages": []}) == [{"role": "system", "content": "s"}]
    assert from_anthropic({"system": [TEXT], "messages": []}) == [{"role": "system", "content": "words"}]


@pytest.mark.parametrize(
    ("messages", "path"),
    [
        ([{"role": "critic", "content": "x"}], "messages[0]"),
        (["x"], "messages[0]"),
        ([USER, {"role": "tool", "content": "x"}], "messages[1]"),
        ([USER, {"role": "assistant", "tool_calls": [call("a"), call("b", "{")]}], "messages[1].tool_calls[1]"),
        ([USER, {"role": "assistant", "tool_calls": [None]}], "messages[1].tool_calls[0]"),
    ],
)
def test_what_cannot_be_converted_is_named_with_its_place(messages: list[Any], path: str) -> None:
    with pytest.raises(MessageError, match=r"repair\(\) repairs it") as caught:
        to_anthropic(messages)
    assert caught.value.path == path


def texts_of(request: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(message["role"], message["content"]) for message in request["messages"]]


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def note(words: str) -> dict[str, Any]:
    return text(f"<system_message>\n{words}\n</system_message>")


def test_a_system_message_in_the_middle_is_text_of_the_turn_that_it_stands_in() -> None:
    late: Message = {"role": "system", "content": "late"}
    calls: Message = {"role": "assistant", "content": None, "tool_calls": [call()]}
    request = anthropic_request([late, USER, late, calls, result(), late, USER, ANSWER, late, late, ANSWER, late])
    assert request["system"] == [text("late")]
    assert texts_of(request) == [
        ("user", [text("hello"), note("late")]),
        ("assistant", [{"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}}]),
        ("user", [{"type": "tool_result", "tool_use_id": "c1", "content": "done"}, note("late"), text("hello")]),
        ("assistant", "hi"),
        ("user", [note("late"), note("late")]),
        ("assistant", "hi"),
        ("user", [note("late")]),
    ]


NATIVE = {"role": "system", "content": "late"}


@pytest.mark.parametrize(
    "messages",
    [
        [USER, NATIVE],
        [USER, NATIVE, ANSWER, USER, {**NATIVE, "clear_at": "next_user_message"}],
        [USER, {"role": "system", "content": [{**TEXT, "cache_control": MARK}]}, ANSWER],
    ],
)
def test_a_system_message_that_came_by_its_role_goes_out_by_it(messages: list[Any]) -> None:
    check_anthropic_round_trip(to_anthropic, {"messages": messages})


def test_a_system_message_goes_out_by_its_role_only_where_the_api_takes_it() -> None:
    """Behind a turn of the user and before an answer or the end, and never two in a row."""
    native = from_anthropic({"messages": [USER, NATIVE]})[1]
    ours: Message = {"role": "system", "content": "ours"}
    assert texts_of(anthropic_request([USER, native, native])) == [
        ("user", "hello"),
        ("system", [text("late"), text("late")]),
    ]
    assert texts_of(anthropic_request([USER, ours, native])) == [
        ("user", [text("hello"), note("ours")]),
        ("system", "late"),
    ]
    assert texts_of(anthropic_request([USER, native, ours])) == [("user", [text("hello"), note("late"), note("ours")])]
    assert texts_of(anthropic_request([USER, ANSWER, native, USER]))[2:] == [("user", [note("late"), text("hello")])]
    assert texts_of(anthropic_request([USER, ANSWER, native, ANSWER]))[2] == ("user", [note("late")])


@pytest.mark.parametrize("request_", [{}, {"messages": "x"}, {"messages": ["x"]}])
def test_what_is_no_request_is_refused(request_: dict[str, Any]) -> None:
    with pytest.raises(MessageError):
        from_anthropic(request_)


@pytest.mark.slow
def test_repaired_conversations_convert_too() -> None:
    for seed in range(150):
        messages = repair(broken_conversation(seed, defects=6)).messages
        if messages:
            request, residue = to_anthropic(messages)
            assert from_anthropic(request, residue) == messages
            assert canonical(from_anthropic(request)) == canonical(messages)


def test_canonical_form_is_reached_once_and_for_all() -> None:
    for seed in range(150):
        once = canonical(conversation(seed))
        assert canonical(once) == once


def test_canonical_form_forgets_how_something_was_written_but_not_what() -> None:
    written: list[Any] = [
        USER,
        {"role": "assistant", "content": "", "tool_calls": [call(arguments='{"b":1, "a": "ä"}', index=0)]},
    ]
    other: list[Any] = [
        {"role": "user", "content": [{"type": "text", "text": "hello", "cache_control": MARK}], "name": "Ada", "_x": 1},
        {"role": "assistant", "content": None, "tool_calls": [call(arguments='{"a": "\\u00e4", "b": 1}')]},
    ]
    assert canonical(written) == canonical(other)
    changed: list[Any] = [USER, {**written[1], "tool_calls": [call(arguments='{"a": "ä", "b": 2}')]}]
    assert canonical(changed) != canonical(written)


TOOLS: list[dict[str, Any]] = [
    {"name": "f", "description": "d", "input_schema": {"type": "object", "properties": {"a": {"type": "string"}}}},
    {"name": "g", "input_schema": {"type": "object"}, "strict": True, "defer_loading": True, "cache_control": MARK},
    {"type": "web_search_20250305", "name": "web_search", "max_uses": 3},
]


def test_tools_make_the_round_trip() -> None:
    assert tools_to_anthropic(tools_from_anthropic(TOOLS)) == TOOLS


def test_tools_convert_wrapped_and_bare() -> None:
    bare = {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}}
    expected = [{"name": "f", "description": "d", "input_schema": {"type": "object", "properties": {}}}]
    assert tools_to_anthropic([bare]) == tools_to_anthropic([{"type": "function", "function": bare}]) == expected
    assert tools_to_anthropic([{"type": "function", "function": {"name": "f"}}]) == [
        {"name": "f", "input_schema": {"type": "object", "properties": {}}}
    ]
