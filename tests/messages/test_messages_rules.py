"""violations(): every kind of broken conversation is found, at its place, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from leporello.messages import RULES, Dialect, Violation, violations
from leporello.messages.codes import DIALECTS
from leporello.messages.rules import takes_turns

Validator = Callable[[Any, Dialect], list[Violation]]

USER = {"role": "user", "content": "hello"}
ANSWER = {"role": "assistant", "content": "hi"}
SIGNED = {"type": "thinking", "thinking": "hm", "signature": "sig"}
TEXT = {"type": "text", "text": "words"}


def call(call_id: Any = "c1", name: Any = "f", arguments: Any = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(*calls: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def result(call_id: Any = "c1", content: Any = "done") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(parts)}


def assistant(*parts: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(parts)}


def image(url: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


LOOP: list[Any] = []
LOOP += [LOOP, LOOP]

# code, a conversation in which nothing else is wrong, and the place of what is
EXAMPLES: list[tuple[str, Any, int]] = [
    ("not-a-list", {"role": "user", "content": "hello"}, -1),
    ("not-a-list", (USER,), -1),
    ("no-messages", [], -1),
    ("no-user", [{"role": "system", "content": "be brief"}], -1),
    ("message-not-a-dict", [USER, "hi"], 1),
    ("not-json", [{**USER, "seen": {1, 2}}], 0),
    ("not-json", [USER, {**ANSWER, "raw": b"bytes"}], 1),
    ("not-json", [{**USER, "score": float("nan")}], 0),
    ("not-json", [{**USER, "pair": (1, 2)}], 0),
    ("not-json", [{**USER, "by_number": {1: "one"}}], 0),
    ("not-json", [{**USER, "number": 10**5000}], 0),
    ("lone-surrogate", [{"role": "user", "content": "half \ud83d"}], 0),
    ("lone-surrogate", [{**USER, "metadata": {"\udc00": 1}}], 0),
    ("lone-surrogate", [USER, calling(call(arguments='{"a": "\\ud83d"}')), result()], 1),
    ("too-deep", [{**USER, "metadata": nested(101)}], 0),
    ("too-deep", [{**USER, "metadata": nested(100_000)}], 0),
    ("too-deep", [{**USER, "metadata": LOOP}], 0),
    ("role-missing", [USER, {"content": "hi"}], 1),
    ("role-missing", [USER, {"role": None, "content": "hi"}], 1),
    ("role-unknown", [USER, {"role": "function", "content": "hi"}], 1),
    ("first-not-user", [ANSWER, USER], 0),
    ("first-not-user", [{"role": "system", "content": "x"}, ANSWER], 1),
    ("repeated-role", [USER, USER], 1),
    ("repeated-role", [USER, ANSWER, ANSWER], 2),
    ("name-not-text", [{**USER, "name": 7}], 0),
    ("content-missing", [{"role": "user"}], 0),
    ("content-missing", [{"role": "system", "content": None}, USER], 0),
    ("content-missing", [USER, calling(call()), result(content=None)], 2),
    ("content-wrong-type", [{"role": "user", "content": 5}], 0),
    ("content-wrong-type", [USER, {"role": "assistant", "content": {"text": "x"}}], 1),
    ("content-wrong-type", [USER, calling(call()), result(content={"a": 1})], 2),
    ("content-empty", [{"role": "user", "content": ""}], 0),
    ("content-empty", [{"role": "system", "content": []}, USER], 0),
    ("content-empty", [USER, calling(call()), result(content=[])], 2),
    ("content-empty", [USER, {**calling(call()), "content": []}, result()], 1),
    ("assistant-empty", [USER, {"role": "assistant", "content": None}], 1),
    ("assistant-empty", [USER, {"role": "assistant", "content": ""}], 1),
    ("assistant-empty", [USER, {"role": "assistant"}], 1),
    ("part-not-a-dict", [user("hello")], 0),
    ("part-type-missing", [user({"text": "hello"})], 0),
    ("text-missing", [user(TEXT, {"type": "text"})], 0),
    ("text-missing", [USER, assistant({"type": "refusal", "refusal": None})], 1),
    ("text-empty", [user(TEXT, {"type": "text", "text": ""})], 0),
    ("text-empty", [USER, calling(call()), result(content=[{"type": "text", "text": ""}])], 2),
    ("text-blank", [{"role": "user", "content": " \n"}], 0),
    ("text-blank", [{"role": "system", "content": "\t"}, USER], 0),
    ("text-blank", [USER, {"role": "assistant", "content": " "}], 1),
    ("text-blank", [user(TEXT, {"type": "text", "text": "\u3000"})], 0),
    ("image-without-url", [user(image(""))], 0),
    ("image-without-url", [user({"type": "image_url", "image_url": "https://example.com/a.png"})], 0),
    ("image-without-url", [user({"type": "image", "source": {"type": "base64"}})], 0),
    ("image-url-unusable", [user(image("file:///a.png"))], 0),
    ("image-url-unusable", [user(image("data:image/svg+xml;base64,PHN2Zz4="))], 0),
    ("image-url-unusable", [user(image("data:image/png,raw"))], 0),
    ("image-misplaced", [USER, assistant(TEXT, image("https://example.com/a.png"))], 1),
    ("image-misplaced", [{"role": "system", "content": [image("https://example.com/a.png")]}, USER], 0),
    ("thinking-misplaced", [user(TEXT, SIGNED)], 0),
    ("thinking-malformed", [USER, assistant({"type": "thinking", "thinking": None, "signature": "s"}, TEXT)], 1),
    ("thinking-malformed", [USER, assistant({"type": "redacted_thinking"}, TEXT)], 1),
    ("thinking-malformed", [USER, {**ANSWER, "thinking_blocks": "hm"}], 1),
    ("thinking-unsigned", [USER, assistant({"type": "thinking", "thinking": "hm"}, TEXT)], 1),
    ("thinking-unsigned", [USER, {**ANSWER, "thinking_blocks": [{"type": "thinking", "thinking": "hm"}]}], 1),
    ("thinking-last", [USER, assistant(TEXT, SIGNED)], 1),
    ("calls-misplaced", [{**USER, "tool_calls": [call()]}], 0),
    ("calls-not-a-list", [USER, {**ANSWER, "tool_calls": None}], 1),
    ("calls-empty", [USER, {**ANSWER, "tool_calls": []}], 1),
    ("call-not-a-dict", [USER, calling("f()")], 1),
    ("call-id-missing", [USER, calling(call(None))], 1),
    ("call-id-duplicate", [USER, calling(call()), result(), calling(call()), result()], 3),
    ("call-id-duplicate", [USER, calling(call(), call()), result(), result()], 1),
    ("call-type-missing", [USER, calling({"id": "c1", "function": {"name": "f", "arguments": "{}"}}), result()], 1),
    ("function-missing", [USER, calling({"id": "c1", "type": "function", "function": None}), result()], 1),
    ("function-name-missing", [USER, calling(call(name="")), result()], 1),
    ("function-name-illegal", [USER, calling(call(name="my tool")), result()], 1),
    ("function-name-illegal", [USER, calling(call(name="f\n")), result()], 1),
    ("function-name-illegal", [USER, calling(call(name="x" * 129)), result()], 1),
    ("function-name-too-long", [USER, calling(call(name="x" * 65)), result()], 1),
    ("arguments-not-text", [USER, calling(call(arguments={"a": 1})), result()], 1),
    ("arguments-not-json", [USER, calling(call(arguments="")), result()], 1),
    ("arguments-not-json", [USER, calling(call(arguments='{"a": NaN}')), result()], 1),
    ("arguments-not-json", [USER, calling(call(arguments='{"a": 1e999}')), result()], 1),
    ("arguments-not-json", [USER, calling(call(arguments="[" * 100_000)), result()], 1),
    ("arguments-not-object", [USER, calling(call(arguments="[1]")), result()], 1),
    ("result-id-missing", [USER, calling(call()), result(), result(None)], 3),
    ("result-orphan", [USER, result("c9"), ANSWER], 1),
    ("result-orphan", [USER, ANSWER, result("c9")], 2),
    ("result-late", [USER, calling(call()), USER, result()], 3),
    ("result-late", [USER, calling(call("a"), call("b")), result("a"), ANSWER, result("b")], 4),
    ("result-duplicate", [USER, calling(call()), result(), result()], 3),
    ("result-missing", [USER, calling(call())], 1),
    ("result-missing", [USER, calling(call("a"), call("b")), result("a"), ANSWER], 1),
]

VALID: list[list[dict[str, Any]]] = [
    [USER],
    [USER, ANSWER, USER],
    [{"role": "system", "content": "a"}, {"role": "developer", "content": "b"}, USER, ANSWER],
    [USER, calling(call("a"), call("b")), result("b"), result("a"), calling(call("c")), result("c"), ANSWER],
    [USER, calling(call()), result(), USER],
    [USER, calling(call()), result(content="")],
    [USER, {**calling(call()), "content": ""}, result()],
    [USER, {**calling(call()), "content": "\n\n"}, result()],
    [USER, calling(call("functions.f:0")), result("functions.f:0")],
    [USER, {"role": "assistant", "content": None, "refusal": "I cannot"}],
    [USER, assistant(SIGNED, TEXT, SIGNED, TEXT)],
    [USER, {**calling(call()), "content": [SIGNED]}, result()],
    [USER, {**ANSWER, "thinking_blocks": [SIGNED, {"type": "redacted_thinking", "data": "d"}]}],
    [
        user(TEXT, image("data:image/png;base64,AAAA")),
        calling(call()),
        result(content=[TEXT, image("https://e.com/a")]),
    ],
    [user({"type": "some_new_block", "payload": 1})],
    [{**USER, "_note": {"anything", b"goes"}, "metadata": nested(99), "name": None}],
    [USER, calling(call(arguments='{"a": "\\ud83d\\ude42"}')), result()],
]


def finds(validator: Validator, code: str, messages: Any, index: int) -> None:
    """Require that exactly this code is reported at this place, by the dialects that the table names."""
    for dialect in DIALECTS:
        found = {(v.code, v.index) for v in validator(messages, dialect)}
        assert found == ({(code, index)} if dialect in RULES[code].dialects else set())


def finds_all(validator: Validator) -> None:
    for code, messages, index in EXAMPLES:
        finds(validator, code, messages, index)


@pytest.mark.parametrize(("code", "messages", "index"), EXAMPLES, ids=lambda value: value if type(value) is str else "")
def test_each_kind_of_broken_sequence_is_found_at_its_place(code: str, messages: Any, index: int) -> None:
    finds(violations, code, messages, index)


def test_nothing_but_thinking_is_empty_and_ends_with_thinking() -> None:
    found = violations([USER, assistant(SIGNED)], "anthropic")
    assert {v.code for v in found} == {"assistant-empty", "thinking-last"}


def test_every_code_of_the_table_has_an_example() -> None:
    assert {code for code, _, _ in EXAMPLES} == set(RULES)
    assert len(RULES) >= 25


@pytest.mark.parametrize("missing", sorted(RULES))
def test_a_validator_without_one_rule_is_noticed(missing: str) -> None:
    def forgetful(messages: Any, dialect: Dialect) -> list[Violation]:
        return [v for v in violations(messages, dialect) if v.code != missing]

    with pytest.raises(AssertionError):
        finds_all(forgetful)


@pytest.mark.parametrize("messages", VALID)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_is_valid_is_left_in_peace(messages: list[dict[str, Any]], dialect: Dialect) -> None:
    assert violations(messages, dialect) == []


def test_an_unknown_dialect_is_refused_by_naming_the_others() -> None:
    with pytest.raises(ValueError, match="'openai', 'anthropic' or 'responses'"):
        violations([USER], "gemini")  # type: ignore[arg-type]


def test_a_violation_says_what_is_wrong_in_words_that_can_be_printed() -> None:
    found = violations([USER, calling(call("half \ud83d"))], "openai")
    assert [v.code for v in found] == ["lone-surrogate", "result-missing"]
    assert found[1].message.encode() == b"a tool call has no result (half ?)"


def test_violations_come_in_order_of_place() -> None:
    found = violations([USER, calling(call()), USER, USER, 5], "openai")
    assert [(v.index, v.code) for v in found] == [
        (1, "result-missing"),
        (3, "repeated-role"),
        (4, "message-not-a-dict"),
    ]


# the fast check of what goes on behind a valid list

PIECES: list[Any] = [
    USER, ANSWER, {"role": "system", "content": "be brief"}, {"role": "user", "content": ""}, calling(call()), result(),
    {"role": "user", "content": " \n"}, {"role": "assistant", "content": None}, {"role": "user", "content": "\ud800"},
    {"role": "user", "content": "größer"}, {**USER, "name": 7}, {**ANSWER, "refusal": "no"}, user(TEXT),
    assistant(SIGNED), {**ANSWER, "tool_calls": []}, {"content": "who?"}, {"role": "robot", "content": "beep"},
]  # fmt: skip


def check_fast(fast: Callable[[list[Any], int], bool]) -> int:
    """Compare with the whole check on all short lists, and return how many were accepted."""
    accepted = 0
    for length in range(1, 4):
        for messages in product(PIECES, repeat=length):
            listed = list(messages)
            for start, dialect in product(range(length + 1), DIALECTS):
                if not violations(listed[:start], dialect) and fast(listed, start):
                    accepted += 1
                    assert violations(listed, dialect) == []
    return accepted


def test_a_list_that_the_fast_check_accepts_is_valid() -> None:
    assert check_fast(takes_turns) > 0
    assert takes_turns([USER, ANSWER, USER], 1)
    assert not takes_turns([USER, ANSWER, ANSWER], 1)
    assert not takes_turns([USER], 0), "what stands at the front is always looked at"


def test_a_fast_check_that_looks_at_roles_alone_is_caught() -> None:
    """Planted: whatever is said in turns counts as valid."""

    def roles_alone(messages: list[Any], start: int) -> bool:
        roles = [message.get("role") for message in messages[max(0, start - 1) :]]
        return start > 0 and roles in (["user", "assistant"], ["assistant", "user"])

    with pytest.raises(AssertionError):
        check_fast(roles_alone)
