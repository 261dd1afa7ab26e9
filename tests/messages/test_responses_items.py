"""Items of the Responses API: there and back without loss, the provider's rules, and how clients write the same."""

from __future__ import annotations

import os
from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings, strategies as st

from leporello.errors import MessageError
from leporello.messages import Message, groups, spoken, violations, without_private
from leporello.messages.fixed import CLEARED_OUTPUT, STUB_RESULT
from leporello.messages.responses import (
    answer_of,
    from_responses,
    item_violations,
    items_of,
    kind_of,
    messages_of,
    rules,
    settled,
    to_responses,
    tools_to_responses,
)
from leporello.messages.responses.items import CALLS, OF_THE_MODEL, OUTPUTS
from leporello.testing.response_items import ItemList, response_items
from leporello.testing.strategies import response_item_lists

if TYPE_CHECKING:
    from collections.abc import Callable

    from leporello.messages.responses import Item

EXAMPLES = 2_000 if os.environ.get("LEPORELLO_SOAK") else 200
many = settings(max_examples=EXAMPLES, deadline=None)

USER = {"role": "user", "content": "Look at it."}
CALL = {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "text"}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
ANSWER = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "phase": "final_answer",
    "content": [{"type": "output_text", "text": "Done.", "annotations": [], "logprobs": []}],
}
TRIGGER = {"type": "compaction_trigger"}
PROGRAM = {"type": "program", "id": "pr", "call_id": "p1", "code": "run()", "fingerprint": "f"}
RESULT = {"type": "program_output", "id": "po", "call_id": "p1", "result": "1", "status": "completed"}
OF_PROGRAM = {"caller": {"type": "program", "caller_id": "p1"}}


def test_the_generated_lists_hold_every_kind_of_item() -> None:
    made = chain.from_iterable(response_items(seed, turns=6, end="trigger").items for seed in range(200))
    kinds = {kind_of(item) for item in made}
    assert kinds >= {"message", "additional_tools", "configuration_update", "compaction_trigger", "agent_message"}
    assert kinds >= set(CALLS) | set(OUTPUTS) | OF_THE_MODEL - {"item_reference"}


@many
@given(response_item_lists())
def test_items_come_back_as_they_were(made: ItemList) -> None:
    assert item_violations(made.items, made.reasoned) == []
    messages = messages_of(made.items)
    assert violations(messages, "responses") == []
    assert items_of(messages) == made.items
    assert settled(made.items) == made.items


def test_a_note_that_is_lost_is_noticed() -> None:
    """The planted defect of the test above: without notes the items are others."""
    made = response_items(7)
    assert items_of(without_private(messages_of(made.items))) != made.items


@many
@given(response_item_lists())
def test_without_their_notes_messages_become_items_that_are_taken(made: ItemList) -> None:
    bare = [without_private(message) for message in messages_of(made.items)]
    items = settled(items_of(bare))
    assert item_violations(items) == []
    assert [kind_of(item) for item in items if kind_of(item) == "reasoning"] == [
        kind_of(item) for item in made.items if kind_of(item) == "reasoning"
    ]


@many
@given(response_item_lists(), st.data())
def test_an_output_that_was_cleared_fits_into_its_kind(made: ItemList, data: st.DataObject) -> None:
    messages = messages_of(made.items)
    results = [at for at, message in enumerate(messages) if message["role"] == "tool"]
    if not results:
        return
    at = data.draw(st.sampled_from(results))
    messages[at] = {**messages[at], "content": CLEARED_OUTPUT}
    items = items_of(messages)
    assert item_violations(items, made.reasoned) == []
    assert len(items) == len(made.items)
    other = [old for old, new in zip(made.items, items, strict=True) if old != new]
    answered = messages[at]["tool_call_id"]
    approved = any(kind_of(item) == "mcp_approval_request" and item["id"] == answered for item in made.items)
    assert len(other) == (0 if approved else 1)


BROKEN: dict[str, list[Any]] = {
    rules.NOT_AN_ITEM: [USER, {"content": "who?"}],
    rules.ROLE: [{"type": "message", "role": "critic", "content": "no"}],
    rules.CONTENT: [{"role": "user"}],
    rules.PART: [USER, {"role": "assistant", "content": [{"type": "input_text", "text": "x"}]}],
    rules.FIELD_MISSING: [USER, {"type": "reasoning", "id": "rs"}, ANSWER],
    rules.OUTPUT_ORPHAN: [USER, OUTPUT],
    rules.OUTPUT_MISSING: [USER, CALL],
    rules.OUTPUT_DUPLICATE: [USER, CALL, OUTPUT, OUTPUT],
    rules.OUTPUT_KIND: [USER, CALL, {**OUTPUT, "type": "custom_tool_call_output"}],
    rules.CALL_DUPLICATE: [USER, CALL, OUTPUT, CALL],
    rules.ID_DUPLICATE: [USER, ANSWER, USER, ANSWER],
    rules.REASONING_ALONE: [USER, THOUGHT, USER],
    rules.REASONING_MISSING: [USER, ANSWER],
    rules.TRIGGER_NOT_LAST: [TRIGGER, USER],
    rules.PROGRAM_MISSING: [USER, RESULT],
}


def test_every_rule_is_tried() -> None:
    codes = {value for name, value in vars(rules).items() if name.isupper() and isinstance(value, str)}
    assert codes - {"reasoning", "program", "item_reference", "compaction_trigger"} == set(BROKEN)


@pytest.mark.parametrize("code", BROKEN)
def test_what_the_provider_refuses_is_found(code: str) -> None:
    found = item_violations(BROKEN[code], {"msg_1": "rs_1"} if code == rules.REASONING_MISSING else {})
    assert [violation.code for violation in found] == [code]


@pytest.mark.parametrize(
    "items",
    [
        [USER, THOUGHT, ANSWER],
        [USER, THOUGHT, CALL, OUTPUT],
        [USER, THOUGHT, {"type": "web_search_call", "id": "ws"}, THOUGHT | {"id": "rs_2"}, ANSWER],
        [USER, PROGRAM, CALL | OF_PROGRAM, OUTPUT | OF_PROGRAM, RESULT, ANSWER],
        [USER, ANSWER, TRIGGER],
        [USER, {"type": "item_reference", "id": "rs_1"}, {"id": "msg_1"}],
    ],
    ids=["message", "call", "search", "program", "trigger", "reference"],
)
def test_what_the_provider_takes_is_left_alone(items: list[Item]) -> None:
    assert item_violations(items, {"msg_1": "rs_1"} if THOUGHT in items else {}) == []
    assert settled(items) == items


@pytest.mark.parametrize(
    ("items", "left"),
    [
        ([USER, ANSWER, THOUGHT], [USER, ANSWER]),
        ([USER, THOUGHT, THOUGHT | {"id": "rs_2"}, USER], [USER, USER]),
        ([USER, RESULT, ANSWER], [USER, ANSWER]),
        ([USER, CALL | OF_PROGRAM, OUTPUT | OF_PROGRAM], [USER, CALL, OUTPUT]),
        ([USER, TRIGGER, ANSWER], [USER, ANSWER]),
        (
            [USER, THOUGHT, ANSWER, USER, THOUGHT, ANSWER],
            [USER, THOUGHT, ANSWER, USER, {key: value for key, value in ANSWER.items() if key != "id"}],
        ),
    ],
    ids=["reasoning last", "two thoughts", "result of no program", "call of no program", "trigger", "twice"],
)
def test_what_a_fold_left_over_is_settled(items: list[Item], left: list[Item]) -> None:
    assert settled(items) == left
    assert item_violations(left) == []


def test_reasoning_stays_in_the_message_of_what_follows_it() -> None:
    messages = messages_of([USER, THOUGHT, CALL, OUTPUT, THOUGHT | {"id": "rs_2"}, ANSWER, USER])
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant", "user"]
    assert messages[1]["content"][0]["id"] == "rs_1"
    assert [part["type"] for part in messages[3]["content"]] == ["reasoning", "text"]


def test_a_program_and_what_belongs_to_it_are_one_group() -> None:
    rounds = [PROGRAM, CALL | OF_PROGRAM, OUTPUT | OF_PROGRAM]
    again = [{**CALL, **OF_PROGRAM, "call_id": "c2"}, {**OUTPUT, **OF_PROGRAM, "call_id": "c2"}]
    messages = messages_of([USER, *rounds, *again, RESULT, ANSWER, USER])
    assert [(group.start, group.stop) for group in groups(messages)] == [(0, 1), (1, 6), (6, 7)]
    parted = messages_of([USER, CALL, OUTPUT, ANSWER, USER])
    assert [(group.start, group.stop) for group in groups(parted)] == [(0, 1), (1, 3), (3, 4), (4, 5)]


SAME: list[tuple[str, Callable[[Item], Item]]] = [
    ("ids left out", lambda item: {key: value for key, value in item.items() if key != "id" or "summary" in item}),
    ("states left out", lambda item: {key: value for key, value in item.items() if key != "status"}),
]


@pytest.mark.parametrize("change", [change for _, change in SAME], ids=[name for name, _ in SAME])
@settings(max_examples=50, deadline=None)
@given(made=response_item_lists())
def test_a_client_that_leaves_names_out_says_the_same(change: Callable[[Item], Item], made: ItemList) -> None:
    named = {"local_shell_call_output", "mcp_approval_request", "item_reference", "apply_patch_call_output"}
    items = [item if kind_of(item) in named else change(item) for item in made.items]
    assert list(map(spoken, messages_of(items))) == list(map(spoken, messages_of(made.items)))


def test_reasoning_string_or_parts_and_types_make_no_difference() -> None:
    plain = [USER, {"role": "assistant", "content": "Done."}, {"role": "user", "content": "Thanks"}]
    typed = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Look at it."}]},
        THOUGHT,
        ANSWER,
        {"type": "message", "role": "user", "content": "Thanks"},
    ]
    assert list(map(spoken, messages_of(plain))) == list(map(spoken, messages_of(typed)))
    other = [*typed[:-1], {"role": "user", "content": "Thank you"}]
    assert list(map(spoken, messages_of(plain))) != list(map(spoken, messages_of(other)))


def test_references_are_told_apart_by_their_ids() -> None:
    one, other = ({"type": "item_reference", "id": id_} for id_ in ("msg_1", "msg_2"))
    assert spoken(messages_of([one])[0]) != spoken(messages_of([other])[0])


@many
@given(response_item_lists())
def test_an_answer_is_recognised_when_the_client_sends_it_back(made: ItemList) -> None:
    history = messages_of(made.items)
    for message in history:
        if message["role"] == "assistant":
            output = items_of([message])
            assert spoken(answer_of(output)) == spoken(message)
            assert items_of([answer_of(output)]) == output


def test_instructions_are_the_system_prompt_and_items_stay_items() -> None:
    tools = {"type": "additional_tools", "role": "developer", "tools": []}
    request = {
        "instructions": "You fix programs.",
        "input": [tools, {"role": "developer", "content": "Be short."}, USER],
    }
    messages = from_responses(request)
    assert [message["role"] for message in messages] == ["system", "developer", "developer", "user"]
    assert to_responses(messages) == request
    assert to_responses(from_responses({"input": "hi"})) == {"input": [{"role": "user", "content": "hi"}]}


def test_a_chat_message_becomes_the_item_that_says_the_same() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    items = items_of(
        [
            {"role": "user", "content": [{"type": "text", "text": "look"}, image]},
            {"role": "assistant", "content": "I read.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "text"},
            {"role": "assistant", "content": None, "refusal": "no"},
        ]
    )
    assert items == [
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "look"},
                {"type": "input_image", "image_url": "https://example.com/a.png", "detail": "auto"},
            ],
        },
        {"type": "message", "role": "assistant", "content": "I read."},
        {"type": "function_call", "call_id": "c", "name": "read", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "text"},
        {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
    ]


def test_a_result_without_a_note_answers_its_call_in_the_kind_of_the_call() -> None:
    asked = {"type": "mcp_approval_request", "id": "r", "server_label": "s", "name": "rm", "arguments": "{}"}
    custom = {"type": "custom_tool_call", "call_id": "c", "name": "x", "input": "y"}
    shell = {"type": "shell_call", "call_id": "s", "action": {"commands": ["ls"]}}
    answers: list[Message] = [{"role": "tool", "tool_call_id": id_, "content": "yes"} for id_ in ("r", "c", "s")]
    items = items_of([*messages_of([USER, asked, custom, shell]), *answers])
    assert items[-3:] == [
        {"type": "mcp_approval_response", "approval_request_id": "r", "approve": True},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "yes"},
        {
            "type": "shell_call_output",
            "call_id": "s",
            "output": [{"stdout": "yes", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
        },
    ]
    answers[0]["content"] = STUB_RESULT
    stub = items_of([*messages_of([USER, asked]), answers[0]])
    assert stub[-1]["type"] == "mcp_approval_request"


def test_tools_are_written_flat() -> None:
    function = {"name": "read", "description": "Read.", "parameters": {"type": "object"}}
    flat = {"type": "function", "strict": False, **function}
    assert tools_to_responses([{"type": "function", "function": function}, function]) == [flat, flat]
    assert tools_to_responses([{"type": "web_search"}, flat]) == [{"type": "web_search"}, flat]


@pytest.mark.parametrize("given_input", [None, 3, {"role": "user"}, [3], [{}], [{"content": "x"}]])
def test_what_holds_no_items_is_refused(given_input: Any) -> None:
    with pytest.raises(MessageError):
        from_responses({"input": given_input})


_words = st.sampled_from(["", "c1", "user", "developer", "program", "server", *CALLS, *OUTPUTS, *OF_THE_MODEL])
_anything = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | _words,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["type", "text"]), inner, max_size=2),
    max_leaves=4,
)
_fields = "type role content id call_id name arguments input output tools caller approval_request_id environment"
_hostile = st.dictionaries(st.sampled_from(_fields.split()), _anything, max_size=6)


def check_read_or_refused(items: list[Item]) -> None:
    """Whatever stands in an item, it is read or refused, and nothing else happens."""
    item_violations(items)
    try:
        messages = messages_of(items)
    except MessageError:
        return
    items_of(messages)
    settled(items)
    [spoken(message) for message in messages]


@many
@given(st.lists(_hostile, max_size=4))
def test_fields_may_hold_anything(items: list[Item]) -> None:
    check_read_or_refused(items)


def test_planted_a_field_that_must_be_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    item = {"type": "message", "role": ["user"], "content": "x"}
    check_read_or_refused([item])
    monkeypatch.setattr(rules, "_message_faults", lambda item: item["role"] in {"user", "system"})
    with pytest.raises(TypeError):
        check_read_or_refused([item])
