"""repair(): any list comes out valid, visibly, and what was said is still there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from inline_snapshot import snapshot

from leporello.messages import (
    EMPTY_ASSISTANT,
    EMPTY_USER,
    FIRST_USER,
    FIXED_TEXTS,
    NO_REPLY,
    RULES,
    STUB_RESULT,
    Message,
    Repaired,
    repair,
    text_of,
    to_anthropic,
    tool_result,
    violations,
)
from leporello.messages.rules import message_faults
from leporello.testing.defects import DEFECTS, broken_conversation
from leporello.testing.strategies import broken_conversations, valid_conversations

Repair = Callable[[list[Any]], Repaired]

USER = {"role": "user", "content": "hello"}
ANSWER = {"role": "assistant", "content": "hi"}
SIGNED = {"type": "thinking", "thinking": "hm", "signature": "sig"}


def call(call_id: Any = "c1", name: Any = "f", arguments: Any = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(*calls: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def result(call_id: Any = "c1", content: Any = "done") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def flat(value: Any) -> list[Any]:
    """Return everything in a value as one list, however deep it is and even if it holds itself."""
    tokens: list[Any] = []
    seen: dict[int, int] = {}
    stack = [value]
    while stack:
        item = stack.pop()
        if not isinstance(item, (dict, list, tuple)):
            tokens.append((type(item), item if isinstance(item, (str, int)) else id(item)))
        elif id(item) in seen:
            tokens.append(("again", seen[id(item)]))
        else:
            seen[id(item)] = len(seen)
            tokens.append((type(item), len(item)))
            stack.extend([*item, *item.values()] if isinstance(item, dict) else item)
    return tokens


def thinking_of(messages: list[Any]) -> list[Any]:
    """Return the signed thinking blocks of the assistant, in order; the content's own come before all others."""
    blocks: list[Any] = []
    for message in messages:
        if isinstance(message, dict) and message.get("role") == "assistant":
            parts = message.get("content") if isinstance(message.get("content"), list) else []
            found = [
                p for p in parts or [] if isinstance(p, dict) and p.get("type") in ("thinking", "redacted_thinking")
            ]
            other = message.get("thinking_blocks")
            blocks += found or (other if isinstance(other, list) else [])
    return [b for b in blocks if isinstance(b, dict) and b.get("signature") and isinstance(b.get("thinking"), str)]


def check_repair(function: Repair, messages: list[Any]) -> None:
    """Require all that a repair promises."""
    before = flat(messages)
    repaired = function(messages)
    assert flat(messages) == before, "the input was changed"
    if not messages:
        assert repaired == Repaired(messages=[], changes=())
        return
    assert violations(repaired.messages, "openai") == []
    assert violations(repaired.messages, "anthropic") == []
    to_anthropic(repaired.messages)
    again = function(repaired.messages)
    assert again.changes == ()
    assert [id(m) for m in again.messages] == [id(m) for m in repaired.messages]
    assert bool(repaired.changes) == bool(violations(messages, "openai") + violations(messages, "anthropic"))
    assert all(change.code in RULES and 0 <= change.index <= len(messages) for change in repaired.changes)
    check_nobody_is_silenced(messages, repaired.messages)


def check_repairs(function: Repair, seeds: range) -> None:
    for seed in seeds:
        check_repair(function, broken_conversation(seed))


def check_nobody_is_silenced(messages: list[Any], repaired: list[Any]) -> None:
    """Require that whole user messages are there, the same objects in order, and signed thinking as it was."""
    users = [m for m in messages if isinstance(m, dict) and m.get("role") == "user" and not message_faults(m, "user")]
    kept = [m for m in repaired if any(m is user for user in users)]
    assert [id(m) for m in kept] == [id(m) for m in users]
    if users:
        after = repaired[max(i for i, m in enumerate(repaired) if m is users[-1]) + 1 :]
        assert not any(m["role"] == "user" and m["content"] == FIRST_USER for m in after)
    said = iter(thinking_of(repaired))
    assert all(block in said for block in thinking_of(messages)), "thinking was lost or changed its order"


@given(valid_conversations())
@settings(max_examples=150, deadline=None)
def test_a_valid_list_comes_back_with_the_same_objects(messages: list[Any]) -> None:
    repaired = repair(messages)
    assert repaired.changes == ()
    assert repaired.messages is not messages
    assert all(new is old for new, old in zip(repaired.messages, messages, strict=True))


@pytest.mark.slow
@given(broken_conversations())
@settings(max_examples=400, deadline=None)
def test_anything_is_repaired(messages: list[Any]) -> None:
    check_repair(repair, messages)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(DEFECTS))
def test_each_defect_by_itself_is_repaired(name: str) -> None:
    from random import Random

    from leporello.testing.conversations import conversation

    for seed in range(12):
        messages: list[Any] = conversation(seed, turns=3, end="tool")
        DEFECTS[name](Random(seed), messages)
        check_repair(repair, messages)


@pytest.mark.slow
@pytest.mark.parametrize("thousand", range(10))
def test_ten_thousand_broken_conversations_are_repaired(thousand: int) -> None:
    for seed in range(thousand * 1000, thousand * 1000 + 1000):
        check_repair(repair, broken_conversation(seed, turns=1 + seed % 4, defects=1 + seed % 5))


def _merges_users(messages: list[Any]) -> Repaired:
    good = repair(messages)
    words = [m["content"] for m in good.messages if m["role"] == "user"]
    return Repaired(messages=[{"role": "user", "content": str(words)}], changes=good.changes)


def _changes_its_input(messages: list[Any]) -> Repaired:
    good = repair(messages)
    messages.append("one more")
    return good


def _leaves_it(messages: list[Any]) -> Repaired:
    return Repaired(messages=list(messages), changes=())


def _forgets_to_say(messages: list[Any]) -> Repaired:
    return Repaired(messages=repair(messages).messages, changes=())


def _drops_thinking(messages: list[Any]) -> Repaired:
    good = repair(messages)
    rest: list[Any] = [{k: v for k, v in m.items() if k != "thinking_blocks"} for m in good.messages]
    for message in rest:
        if message["role"] == "assistant" and isinstance(message["content"], list):
            message["content"] = [p for p in message["content"] if p.get("type") != "thinking"] or "nothing"
    return Repaired(messages=[m if m != old else old for m, old in zip(rest, good.messages)], changes=good.changes)  # noqa: B905 - the same length


def _speaks_for_the_user(messages: list[Any]) -> Repaired:
    good = repair(messages)
    tail: list[Any] = [{"role": "assistant", "content": "ok"}] if good.messages[-1]["role"] == "user" else []
    return Repaired(messages=[*good.messages, *tail, {"role": "user", "content": FIRST_USER}], changes=good.changes)


@pytest.mark.parametrize(
    "planted",
    [_merges_users, _changes_its_input, _leaves_it, _forgets_to_say, _drops_thinking, _speaks_for_the_user],
)
def test_a_planted_defect_in_the_repair_is_noticed(planted: Repair) -> None:
    with pytest.raises(AssertionError):
        check_repairs(planted, range(200))


def story(*messages: Any) -> tuple[list[Any], list[tuple[int, str]]]:
    """Return the repaired messages and the place and code of each change."""
    check_repair(repair, list(messages))
    repaired = repair(list(messages))
    return repaired.messages, [(change.index, change.code) for change in repaired.changes]


def test_between_two_user_messages_stands_a_line_of_the_assistant() -> None:
    messages, changes = story(USER, {"role": "user", "content": "again"})
    assert messages == [USER, {"role": "assistant", "content": NO_REPLY}, {"role": "user", "content": "again"}]
    assert changes == [(1, "repeated-role")]


def test_two_assistant_messages_become_one_with_their_thinking_in_place() -> None:
    first = {"role": "assistant", "content": "one", "thinking_blocks": [SIGNED], "timestamp": "t1"}
    second = {"role": "assistant", "content": [SIGNED, {"type": "text", "text": "two"}], "tool_calls": [call()]}
    messages, _ = story(USER, first, second, result())
    assert messages[1] == snapshot(
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "sig"},
                {"type": "text", "text": "one"},
                {"type": "thinking", "thinking": "hm", "signature": "sig"},
                {"type": "text", "text": "two"},
            ],
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            "timestamp": "t1",
        }
    )


def test_a_first_message_of_the_assistant_gets_a_user_line_in_front() -> None:
    messages, changes = story({"role": "system", "content": "s"}, ANSWER, USER)
    assert [m["content"] for m in messages] == ["s", FIRST_USER, "hi", "hello"]
    assert changes == [(1, "first-not-user")]


def test_a_list_without_anybody_gets_a_user_line() -> None:
    assert story({"role": "system", "content": "s"})[0][-1] == {"role": "user", "content": FIRST_USER}
    assert story(None, result())[0] == [{"role": "user", "content": FIRST_USER}]


def test_an_empty_list_stays_empty() -> None:
    assert repair([]) == Repaired(messages=[], changes=())


def test_what_is_no_list_is_refused() -> None:
    with pytest.raises(TypeError, match="a list of messages, not str"):
        repair("hello")  # type: ignore[arg-type]


def test_late_results_move_to_their_call_and_missing_ones_get_a_stub() -> None:
    messages, changes = story(USER, calling(call("a"), call("b")), USER, result("b"))
    assert [m.get("tool_call_id") for m in messages] == [None, None, "b", "a", None]
    assert messages[3]["content"] == STUB_RESULT
    assert changes == [(1, "result-missing"), (3, "result-late")]


def test_orphans_and_second_results_are_removed() -> None:
    messages, changes = story(USER, calling(call()), result(content="first"), result(content="second"), result("c9"))
    assert messages[2:] == [result(content="first")]
    assert changes == [(3, "result-duplicate"), (4, "result-orphan")]


def test_a_repeated_id_is_renamed_together_with_its_own_result() -> None:
    messages, _ = story(USER, calling(call("c")), result("c", "1"), calling(call("c")), result("c", "2"), USER)
    assert [(m["tool_call_id"], m["content"]) for m in messages if m["role"] == "tool"] == [("c", "1"), ("c_2", "2")]


def test_a_new_id_never_meets_one_that_comes_later() -> None:
    messages, _ = story(USER, calling(call("c"), call("c"), call(None)), calling(call("c_2"), call("call_2")))
    ids = [c["id"] for m in messages if "tool_calls" in m for c in m["tool_calls"]]
    assert ids == ["c", "c_3", "call_3", "c_2", "call_2"]


def test_a_result_without_an_id_answers_the_call_before_it() -> None:
    messages, changes = story(USER, calling(call("a"), call("b")), result(None, "for b"), result("a", "for a"))
    assert [(m["tool_call_id"], m["content"]) for m in messages[2:]] == [("a", "for a"), ("b", "for b")]
    assert changes == [(2, "result-id-missing")]


def test_a_system_message_stays_where_it_was_said() -> None:
    first, late = {"role": "system", "content": "1"}, {"role": "developer", "content": "2"}
    messages, changes = story(first, USER, ANSWER, late, late, "", USER, late)
    assert messages == [first, USER, ANSWER, late, late, USER, late]
    assert changes == [(5, "message-not-a-dict")]


def test_results_that_a_system_message_parts_from_their_calls_move_before_it() -> None:
    late = {"role": "system", "content": "1"}
    calls = calling(call("a"), call("b"), call("c"))
    nameless = {"role": "tool", "content": "done"}
    messages, changes = story(USER, calls, result("a"), late, result("b"), nameless, ANSWER)
    assert messages == [USER, calls, result("a"), result("b"), {**nameless, "tool_call_id": "c"}, late, ANSWER]
    assert changes == [(4, "result-late"), (5, "result-id-missing")]


def test_two_users_with_a_system_message_between_them_get_a_line_of_the_assistant() -> None:
    late = {"role": "system", "content": "1"}
    messages, changes = story(USER, late, USER)
    assert messages == [USER, late, {"role": "assistant", "content": NO_REPLY}, USER]
    assert changes == [(2, "repeated-role")]


def test_two_answers_with_a_system_message_between_them_are_two() -> None:
    conversation = [USER, ANSWER, {"role": "system", "content": "go on"}, ANSWER]
    assert repair(conversation).messages == conversation
    assert repair([*conversation, ANSWER]).messages[:3] == conversation[:3]


def test_arguments_that_are_no_object_stay_readable() -> None:
    broken = [
        call("a", arguments="{bad"),
        call("b", arguments=None),
        call("c", arguments={"x": {1}}),
        call("d", "", "[1]"),
    ]
    messages, _ = story(USER, calling(*broken))
    functions = [c["function"] for c in messages[1]["tool_calls"]]
    assert functions == snapshot(
        [
            {"name": "f", "arguments": '{"_raw": "{bad"}'},
            {"name": "f", "arguments": "{}"},
            {"name": "f", "arguments": '{"x": "1"}'},
            {"name": "unknown", "arguments": '{"_raw": "[1]"}'},
        ]
    )


def test_calls_written_in_another_way_are_understood() -> None:
    flat_call = {"id": "a", "name": "f", "arguments": {"x": 1}}
    custom = {"id": "b", "type": "custom", "custom": {"name": "sh", "input": "ls"}}
    messages, _ = story(USER, calling(flat_call, custom, "g()"))
    assert messages[1]["content"] == "[unreadable tool call: g()]"
    assert [c["function"] for c in messages[1]["tool_calls"]] == snapshot(
        [{"name": "f", "arguments": '{"x": 1}'}, {"name": "sh", "arguments": '{"input": "ls"}'}]
    )


def test_an_old_function_call_and_its_result_become_a_tool_call() -> None:
    old = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    messages, _ = story(USER, old, {"role": "function", "name": "f", "content": "42"})
    assert messages[2] == {
        "role": "tool",
        "name": "f",
        "content": "42",
        "tool_call_id": messages[1]["tool_calls"][0]["id"],
    }


def test_unsigned_thinking_moves_to_where_it_may_stand() -> None:
    parts = [{"type": "thinking", "thinking": "hm"}, SIGNED, {"type": "text", "text": "so"}]
    messages, _ = story(USER, {"role": "assistant", "content": parts})
    assert messages[1] == {"role": "assistant", "content": parts[1:], "reasoning_content": "hm"}


def test_a_message_of_an_unknown_role_never_speaks_for_the_user() -> None:
    messages, _ = story(USER, {"role": "critic", "content": "delete everything"})
    assert messages[1] == {"role": "assistant", "content": "[critic] delete everything"}


def test_objects_of_an_sdk_are_taken_by_their_fields() -> None:
    class Answer:
        def model_dump(self) -> dict[str, Any]:
            return {"role": "assistant", "content": "hi", "tool_calls": None, "refusal": None}

    messages, changes = story(USER, Answer())
    assert messages == [USER, ANSWER]
    assert changes == [(1, "message-not-a-dict")]


def test_words_survive_in_whatever_they_came() -> None:
    deep: Any = "bottom"
    for _ in range(5000):
        deep = [deep]
    parts = [
        "bare",
        {"text": "typeless"},
        {"type": "text", "content": "elsewhere"},
        {"type": "thinking", "thinking": "hm"},
    ]
    messages, _ = story({"role": "user", "content": [*parts, 7, {"type": "text", "text": "half \ud83d"}, deep]})
    assert [part["text"] for part in messages[0]["content"]] == snapshot(
        ["bare", "typeless", '{"content": "elsewhere"}', "hm", "7", "half \ufffd", "bottom"]
    )


def test_an_empty_message_says_so() -> None:
    messages, _ = story({"role": "user", "content": " "}, {"role": "assistant", "content": [SIGNED]})
    assert messages == [
        {"role": "user", "content": EMPTY_USER},
        {"role": "assistant", "content": [SIGNED, {"type": "text", "text": EMPTY_ASSISTANT}]},
    ]


def test_private_notes_are_left_alone() -> None:
    note = {"a set", b"and bytes"}
    messages, _ = story({"role": "user", "content": "", "_note": note})
    assert messages[0]["_note"] is note


def test_fixed_texts_are_single_lines() -> None:
    assert all(text.strip() == text and "\n" not in text for text in FIXED_TEXTS)


@pytest.mark.slow
def test_many_calls_and_many_equal_ids_are_repaired_in_one_pass() -> None:
    """A quadratic repair would take minutes here; the suite's time limit notices."""
    wide = [USER, calling(*[call(f"c{i}") for i in range(20_000)]), *[result(f"c{i}") for i in range(1, 20_000)]]
    same = [m for _ in range(7_000) for m in (calling(call("same")), result("same"))]
    chatter = [{"role": "assistant", "content": "x" * 20}] * 20_000
    repaired = repair([*wide, *same, *chatter]).messages
    assert violations(repaired, "openai") == []


class TestASummaryStaysApart:
    """A summary is never joined to an assistant message that calls tools or thinks: providers sign and order those."""

    SUMMARY: ClassVar[Message] = {
        "role": "assistant",
        "content": "[CONTEXT COMPACTION] earlier [END OF CONTEXT COMPACTION]",
    }
    USER: ClassVar[Message] = {"role": "user", "content": "Go on."}

    @staticmethod
    def signed(number: int, *, calls: bool) -> list[Message]:
        thinking = {"type": "thinking", "thinking": "hm", "signature": "sig"}
        message: Message = {"role": "assistant", "content": [thinking, {"type": "text", "text": "Here."}]}
        if not calls:
            return [message]
        call = {"id": f"c{number}", "type": "function", "function": {"name": "run", "arguments": "{}"}}
        return [{**message, "tool_calls": [call]}, tool_result(f"c{number}", "done")]

    @pytest.mark.parametrize("calls", [True, False])
    @pytest.mark.parametrize("shape", ["uS!", "u!uS!", "uauS!", "S!", "uaS!", "S!uS!", "uSS!", "u!S!"])
    def test_wherever_it_stands(self, shape: str, *, calls: bool) -> None:
        messages: list[Message] = []
        for number, letter in enumerate(shape):
            plain: dict[str, Message] = {
                "u": self.USER,
                "S": self.SUMMARY,
                "a": {"role": "assistant", "content": "Well."},
            }
            messages += [plain[letter]] if letter in plain else self.signed(number, calls=calls)
        repaired = repair(messages).messages
        assert not violations(repaired, "openai")
        assert not violations(repaired, "anthropic")
        for message in repaired:
            assert "[CONTEXT COMPACTION]" not in text_of(message) or not (
                message.get("tool_calls") or isinstance(message["content"], list)
            )
        assert str(repaired).count("'signature'") == shape.count("!")
        if "u" in shape and not shape.startswith("S"):
            newest = max(i for i, m in enumerate(repaired) if m["role"] == "user")
            assert repaired[newest] == self.USER, "a later message of the user was made up"
