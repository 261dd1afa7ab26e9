"""What goes wrong in real conversations, by name: each defect breaks a fresh list of messages in place."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any, TypeAlias

from leporello.testing.conversations import conversation

Defect: TypeAlias = Callable[[Random, list[Any]], None]


def broken_conversation(seed: int, *, turns: int = 4, defects: int = 3) -> list[Any]:
    """Return a conversation with one or more defects; the same number gives the same list."""
    random = Random(seed)  # noqa: S311 - reproducible examples, no cryptography
    messages: list[Any] = conversation(seed, turns=turns)
    for name in random.choices(sorted(DEFECTS), k=random.randrange(1, defects + 1)):
        DEFECTS[name](random, messages)
    return messages


def _dicts(messages: list[Any], role: str | None = None) -> list[dict[str, Any]]:
    return [m for m in messages if isinstance(m, dict) and (role is None or m.get("role") == role)]


def _some(random: Random, messages: list[Any], role: str | None = None) -> dict[str, Any]:
    """Return one message, of a role if there is one; a throw-away when the list has none at all."""
    found = _dicts(messages, role) or _dicts(messages)
    return random.choice(found) if found else {}


def _call(random: Random, messages: list[Any]) -> dict[str, Any]:
    calls = [c for m in _dicts(messages) if isinstance(m.get("tool_calls"), list) for c in m["tool_calls"]]
    found = [call for call in calls if isinstance(call, dict)]
    return random.choice(found) if found else {}


def _place(random: Random, messages: list[Any]) -> int:
    return random.randrange(len(messages) + 1)


def _sets(role: str | None, field: str, *values: Any) -> Defect:
    def defect(random: Random, messages: list[Any]) -> None:
        _some(random, messages, role)[field] = deepcopy(random.choice(values))

    return defect


def _sets_on_call(field: str, *values: Any) -> Defect:
    def defect(random: Random, messages: list[Any]) -> None:
        _call(random, messages)[field] = deepcopy(random.choice(values))

    return defect


def _sets_on_function(field: str, *values: Any) -> Defect:
    def defect(random: Random, messages: list[Any]) -> None:
        function = _call(random, messages).get("function")
        if isinstance(function, dict):
            function[field] = deepcopy(random.choice(values))

    return defect


def _lacks(role: str | None, field: str) -> Defect:
    def defect(random: Random, messages: list[Any]) -> None:
        _some(random, messages, role).pop(field, None)

    return defect


def _drops(role: str) -> Defect:
    def defect(random: Random, messages: list[Any]) -> None:
        places = [i for i, m in enumerate(messages) if isinstance(m, dict) and m.get("role") == role]
        if places:
            del messages[random.choice(places)]

    return defect


def _inserts(*values: Any) -> Defect:
    def defect(random: Random, messages: list[Any]) -> None:
        messages.insert(_place(random, messages), deepcopy(random.choice(values)))

    return defect


def _repeats(random: Random, messages: list[Any]) -> None:
    if messages:
        messages.insert(_place(random, messages), random.choice(messages))


def _moves(random: Random, messages: list[Any]) -> None:
    if messages:
        message = messages.pop(random.randrange(len(messages)))
        messages.insert(_place(random, messages), message)


def _cuts_head(random: Random, messages: list[Any]) -> None:
    del messages[: random.randrange(1, 1 + max(1, len(messages) // 2))]


def _cuts_tail(random: Random, messages: list[Any]) -> None:
    del messages[-random.randrange(1, 1 + max(1, len(messages) // 2)) :]


def _shares_an_id(random: Random, messages: list[Any]) -> None:
    _call(random, messages)["id"] = _call(random, messages).get("id")


def _answers_another(random: Random, messages: list[Any]) -> None:
    _some(random, messages, "tool")["tool_call_id"] = _call(random, messages).get("id")


def _nests(random: Random, messages: list[Any]) -> None:
    deep: Any = "the bottom"
    for _ in range(random.choice((150, 3000))):
        deep = [deep] if random.random() < 0.5 else {"a": deep}
    _some(random, messages)[random.choice(("content", "metadata"))] = deep


def _holds_itself(random: Random, messages: list[Any]) -> None:
    loop: list[Any] = ["round and round"]
    loop += [loop, loop]
    _some(random, messages)[random.choice(("content", "metadata"))] = loop


_UNSIGNED = {"type": "thinking", "thinking": "hm"}
_SIGNED = {"type": "thinking", "thinking": "hm", "signature": "s"}
_REDACTED = {"type": "redacted_thinking", "data": "d"}
_TEXT = {"type": "text", "text": "words"}
_NOT_JSON = (b"bytes", {1, 2}, float("nan"), float("inf"), object(), ("a", "tuple"), {1: "a"}, 10**5000)
_PARTS: tuple[Any, ...] = (
    {"type": "text"},
    {"type": "text", "text": ""},
    {"type": "text", "text": None},
    {"type": "text", "text": "  "},
    {"type": "text", "text": 5},
    {"type": "text", "content": "said otherwise"},
    {"text": "typeless"},
    {},
    "bare",
    None,
    7,
    ["nested"],
    {"type": 3},
    {"type": "image_url"},
    {"type": "image_url", "image_url": {"url": ""}},
    {"type": "image_url", "image_url": {"url": "file:///a.png"}},
    {"type": "image_url", "image_url": "https://e.com/a.png"},
    {"type": "image_url", "image_url": {"url": "https://e.com/a.png"}},
    {"type": "image", "source": {}},
    {"type": "image", "source": {"type": "url", "url": "https://e.com/a.png"}},
    {"type": "input_image", "image_url": "data:"},
    {"image_url": {"url": "https://e.com/a.png"}},
    _UNSIGNED,
    _SIGNED,
    _REDACTED,
    {"type": "redacted_thinking"},
    {"type": "thinking", "thinking": None, "signature": "s"},
    {"type": "refusal", "refusal": None},
    {"type": "input_audio"},
    {"type": "file", "file": {"file_id": "f"}},
    {"type": "brand_new", "x": 1},
    {"type": "text", "text": "half \ud83d"},
)


def _adds_a_part(random: Random, messages: list[Any]) -> None:
    message = _some(random, messages)
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
    parts.insert(random.randrange(len(parts) + 1), deepcopy(random.choice(_PARTS)))
    message["content"] = parts


DEFECTS: dict[str, Defect] = {
    "the message is not a dict": _inserts(None, "words", 5, ["list"], b"bytes", object()),
    "an empty message": _inserts({}, {"role": "user"}, {"role": "assistant"}, {"role": "tool"}, {"role": "system"}),
    "a role is missing": _lacks(None, "role"),
    "a role is unknown": _sets(None, "role", "function", "User", "critic", "", 5, None, ["user"], "ai", "half \ud83d"),
    "a role is another": _sets(None, "role", "user", "assistant", "tool", "system", "developer"),
    "a system message stands late": _inserts(
        {"role": "system", "content": "late"}, {"role": "developer", "content": "x"}
    ),
    "the user says it twice": _inserts({"role": "user", "content": "again"}),
    "the assistant says it twice": _inserts({"role": "assistant", "content": "again"}),
    "a user message is gone": _drops("user"),
    "an assistant message is gone": _drops("assistant"),
    "a result is gone": _drops("tool"),
    "a message is repeated": _repeats,
    "a message is moved": _moves,
    "the head is cut off": _cuts_head,
    "the tail is cut off": _cuts_tail,
    "content is missing": _lacks(None, "content"),
    "content is of a wrong type": _sets(None, "content", 5, 1.5, {"a": 1}, {"type": "text", "text": "x"}, b"b", ()),
    "content is empty": _sets(None, "content", "", [], None, " ", "\n\t", "\u3000"),
    "the newest words are blank": _sets("user", "content", "", " ", None),
    "a part is broken": _adds_a_part,
    "a value is not JSON": _sets(None, "metadata", *_NOT_JSON),
    "content is not JSON": _sets(None, "content", *_NOT_JSON),
    "half a surrogate pair": _sets(None, "content", "half \ud83d", "\udc00\ud800", "ok \ud83d\ude42"),
    "half a pair in a key": _sets(None, "x\ud800", "y"),
    "nested too deeply": _nests,
    "a value holds itself": _holds_itself,
    "a name is not text": _sets(None, "name", 5, ["a"], {}),
    "calls in a wrong place": _sets(None, "tool_calls", None, [], [{"id": "z"}], {"id": "y"}),
    "calls are not calls": _sets(
        "assistant", "tool_calls", None, [], "call", 5, {}, [None], ["f()"], [{}], {"id": "q"}
    ),
    "an old function call": _inserts(
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    ),
    "a call without an id": _sets_on_call("id", None, "", 5, [], {}),
    "two calls with one id": _shares_an_id,
    "a call without a type": _sets_on_call("type", None, "", 5, "custom"),
    "a call without a function": _sets_on_call("function", None, "f", [], {}),
    "a function without a name": _sets_on_function("name", None, "", 5, [], "a b", "x" * 65, "x" * 200, "ünï", "a\n"),
    "arguments are broken": _sets_on_function(
        "arguments",
        None,
        "",
        "{",
        "[1]",
        "null",
        "NaN",
        '{"a": NaN}',
        '{"a": 1e999}',
        {"a": 1},
        {"_id": {1}},
        [1],
        5,
        '{"a": "\\ud83d"}',
        '{"_a": "\\ud83d"}',
        "[" * 200 + "]" * 200,
        "[" * 100_000,
        "{" * 3000,
        '"\ud83d"',
    ),
    "a result without an id": _sets("tool", "tool_call_id", None, "", 5, [], "nobody"),
    "a result for another call": _answers_another,
    "broken thinking blocks": _sets(
        "assistant",
        "thinking_blocks",
        "hm",
        {},
        [None],
        [_UNSIGNED],
        [_SIGNED, _UNSIGNED],
        [_TEXT],
        [_SIGNED],
        [_REDACTED],
    ),
    "nothing but thinking": _sets(
        "assistant", "content", [_SIGNED], [_REDACTED, _SIGNED], [_TEXT, _SIGNED], [_UNSIGNED]
    ),
}
"""Every defect by its name."""
