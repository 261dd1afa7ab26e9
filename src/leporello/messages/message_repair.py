"""Bring one message into a shape that both dialects take, and keep everything it says.

Only the message by itself is looked at; what depends on its neighbours is the work of `repair`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

from leporello.messages import codes
from leporello.messages.custom_calls import function_of
from leporello.messages.fixed import EMPTY_ASSISTANT, EMPTY_USER, RAW_ARGUMENTS, UNKNOWN_FUNCTION
from leporello.messages.rules import (
    MAX_FUNCTION_NAME,
    TEXT_TYPES,
    call_faults,
    ends_thinking,
    image_url,
    is_thinking,
    message_faults,
    part_faults,
    says_something,
)
from leporello.messages.types import IMAGE_TYPES, ROLES, SYSTEM_ROLES, Message, Part, parts_of, role_of
from leporello.messages.values import arguments_fault, as_text, cleaned, is_private, parse_arguments, value_faults

Note: TypeAlias = Callable[[str, str], None]
"""Takes the code of what was wrong and what was done about it."""

_ALIASES = {"human": "user", "ai": "assistant", "model": "assistant", "bot": "assistant", "function": "tool"}
_ILLEGAL_IN_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_OF_ASSISTANTS = ("tool_calls", "thinking_blocks", "reasoning_content", "refusal")
_NO_WORDS = frozenset({"type", "cache_control"})


def repaired_message(message: Any, note: Note) -> Message | None:
    """Return the message with nothing wrong in itself, the same object if nothing was; None if it holds nothing."""
    if isinstance(message, dict) and not message_faults(message, role_of(message)):
        return cast("Message", message)
    repaired = _as_message(message, note)
    if repaired is None:
        return None
    _repair_values(repaired, note)
    _repair_role(repaired, note)
    if repaired["role"] == "assistant":
        _repair_assistant(repaired, note)
    else:
        _repair_other(repaired, note)
    if not isinstance(repaired.get("name", ""), (str, type(None))):
        note(codes.NAME_NOT_TEXT, "made the name text")
        repaired["name"] = as_text(repaired["name"])
    if repaired["role"] in SYSTEM_ROLES and not repaired["content"]:
        note(codes.CONTENT_EMPTY, "removed an empty system message")
        return None
    return cast("Message", repaired)


def _as_message(message: Any, note: Note) -> dict[str, Any] | None:
    if isinstance(message, dict):
        return dict(message)
    dump = getattr(message, "model_dump", None)
    fields = dump() if callable(dump) else message
    if isinstance(fields, Mapping):
        note(codes.NOT_A_DICT, "took the fields of an object")
        return {key: value for key, value in fields.items() if value is not None}
    text = "" if message is None else as_text(message)
    if not text.strip():
        note(codes.NOT_A_DICT, "removed a message that holds nothing")
        return None
    note(codes.NOT_A_DICT, "made it a user message")
    return {"role": "user", "content": text}


def _repair_values(message: dict[str, Any], note: Note) -> None:
    """Make every value JSON, in place."""
    faults = value_faults(message)
    if not faults:
        return
    for key, value in list(message.items()):
        if not is_private(key) and value_faults({key: value}):
            del message[key]
            message[as_text(key)] = cleaned(value)
    for code in sorted(faults):
        note(code, "replaced values that cannot be sent by their text")


def _repair_role(message: dict[str, Any], note: Note) -> None:
    role = role_of(message)
    if role in ROLES:
        return
    if not role:
        message["role"] = _likely_role(message)
        note(codes.ROLE_MISSING, f"made it a message of role {message['role']}")
        return
    known = role.strip().lower()
    known = _ALIASES.get(known, known)
    if known in ROLES:
        message["role"] = known
    else:
        # It is unknown who spoke. As a user's message it could give orders, so it becomes something the assistant said.
        message["role"] = "assistant"
        message["content"] = _with_text_in_front(f"[{role}]", message.get("content"))
    note(codes.ROLE_UNKNOWN, f"made it a message of role {message['role']}")


def _likely_role(message: dict[str, Any]) -> str:
    """Return who could have written a message without a role: only some have results, calls or thinking."""
    if "tool_call_id" in message:
        return "tool"
    thought = any(is_thinking(part) for part in parts_of(message))
    return "assistant" if thought or any(message.get(key) for key in _OF_ASSISTANTS) else "user"


def _with_text_in_front(text: str, content: Any) -> Any:
    if isinstance(content, list):
        return [{"type": "text", "text": text}, *content]
    return text if content is None else f"{text} {as_text(content)}"


def _repair_other(message: dict[str, Any], note: Note) -> None:
    """Repair a system, user or tool message, in place."""
    role = message["role"]
    if message.pop("tool_calls", _ABSENT) is not _ABSENT:
        note(codes.CALLS_MISPLACED, "removed the tool calls")
    if role == "tool" and isinstance(message.get("tool_call_id"), int):
        note(codes.RESULT_ID_MISSING, "made the id text")
        message["tool_call_id"] = str(message["tool_call_id"])
    content = _repaired_content(message.get("content"), role, note)
    if role == "tool":
        message["content"] = content or ""
    elif not content or (isinstance(content, str) and content.isspace()):
        note(codes.CONTENT_EMPTY, "nothing was said")
        message["content"] = EMPTY_USER if role == "user" else ""
    else:
        message["content"] = content


_ABSENT = object()


def _repaired_content(content: Any, role: str, note: Note) -> Any:
    """Return the content as text or a list of parts with nothing wrong in them; the same object if nothing was."""
    if content is None or isinstance(content, str):
        if content is None and role == "tool":
            note(codes.CONTENT_MISSING, "made the result empty text")
        return content
    if isinstance(content, dict) and "type" in content:
        note(codes.CONTENT_WRONG_TYPE, "made a list of the part")
        content = [content]
    if not isinstance(content, list):
        note(codes.CONTENT_WRONG_TYPE, "made the content text")
        return as_text(content)
    if not content and role == "tool":
        note(codes.CONTENT_EMPTY, "made the result empty text")
    parts = [repaired for part in content for repaired in _repaired_part(part, role, note)]
    same = len(parts) == len(content) and all(new is old for new, old in zip(parts, content, strict=True))
    return content if same else parts


def _repaired_part(part: Any, role: str, note: Note) -> list[Part]:
    """Return a part with nothing wrong in it: the same object, another one, or none if it holds nothing."""
    faults = [code for code, _ in part_faults(part, role)]
    if not faults:
        return [part]
    if not isinstance(part, dict):
        note(codes.PART_NOT_A_DICT, "made it a text part")
        return _text_parts("" if part is None else as_text(part))
    kind = part.get("type")
    if codes.PART_TYPE_MISSING in faults:
        note(codes.PART_TYPE_MISSING, "found its type")
        return _typed_part(part, role, note)
    if kind in TEXT_TYPES:
        note(faults[0], "kept the words of the part, if there were any")
        return _text_parts(_words(part, TEXT_TYPES[kind]))
    if kind in IMAGE_TYPES:
        return _repaired_image(part, role, faults[0], note)
    note(codes.THINKING_MISPLACED, "made it a text part")
    return _text_parts(_words(part, "thinking") if kind == "thinking" else "")


def _text_parts(text: str) -> list[Part]:
    return [{"type": "text", "text": text}] if text.strip() else []


def _words(part: Part, field: str) -> str:
    """Return the text of a part; without one, whatever else it holds."""
    if part.get(field) is not None:
        return as_text(part[field])
    rest = {key: value for key, value in part.items() if key not in _NO_WORDS and not is_private(key) and value}
    return as_text(rest) if rest else ""


def _typed_part(part: Part, role: str, note: Note) -> list[Part]:
    kind = next((key for key in ("text", "image_url", "refusal", "thinking") if key in part), None)
    if kind is None:
        return _text_parts(_words(part, "text"))
    return _repaired_part({**part, "type": kind}, role, note)


def _repaired_image(part: Part, role: str, code: str, note: Note) -> list[Part]:
    if isinstance(part.get("image_url"), str) and part["type"] == "image_url":
        note(code, "wrapped the address of the image")
        return _repaired_part({**part, "image_url": {"url": part["image_url"]}}, role, note)
    note(code, "put a line of text in place of the image")
    address = image_url(part).partition(",")[0][:200]
    return _text_parts(f"[image: {address}]" if address.strip() else "[image]")


def _repair_assistant(message: dict[str, Any], note: Note) -> None:
    """Repair an assistant message, in place."""
    _repair_calls(message, note)
    _repair_thinking(message, note)
    content = _repaired_content(message.get("content"), "assistant", note)
    if "tool_calls" in message:
        if content == []:
            note(codes.CONTENT_EMPTY, "made the content None")
            content = None
        message["content"] = content
        return
    message["content"] = None if isinstance(content, str) and not content.strip() else content
    if not says_something(message):
        note(codes.ASSISTANT_EMPTY, "said so in the message")
        message["content"] = _appended(message["content"], EMPTY_ASSISTANT)
    elif ends_thinking(message):
        note(codes.THINKING_LAST, "put a line of text behind the thinking")
        message["content"] = _appended(message["content"], EMPTY_ASSISTANT)


def _appended(content: Any, text: str) -> Any:
    if isinstance(content, list) and content:
        return [*content, {"type": "text", "text": text}]
    return f"{content}\n\n{text}" if isinstance(content, str) and content.strip() else text


def _repair_thinking(message: dict[str, Any], note: Note) -> None:
    """Keep signed blocks as they are; unsigned thinking goes to `reasoning_content`, where it may stand."""
    unsigned: list[str] = []
    for key in ("thinking_blocks", "content"):
        blocks = message.get(key)
        if not isinstance(blocks, list):
            if key == "thinking_blocks" and message.pop(key, None) is not None:
                note(codes.THINKING_MALFORMED, "removed thinking_blocks")
                unsigned.append(as_text(blocks))
            continue
        stays = [_may_stay(block, must_think=key == "thinking_blocks") for block in blocks]
        if all(stays):
            continue
        note(codes.THINKING_UNSIGNED, "moved unsigned thinking to reasoning_content")
        unsigned += [_thought(block) for block, may in zip(blocks, stays, strict=True) if not may]
        message[key] = [block for block, may in zip(blocks, stays, strict=True) if may]
    thoughts = [text for text in unsigned if text.strip()]
    if thoughts:
        known = message.get("reasoning_content")
        message["reasoning_content"] = "\n".join([*([as_text(known)] if known else []), *thoughts])


def _may_stay(block: Any, *, must_think: bool) -> bool:
    if not is_thinking(block):
        return not must_think
    return not any(part_faults(block, "assistant"))


def _thought(block: Any) -> str:
    return _words(block, "thinking") if is_thinking(block) else as_text(block)


def _repair_calls(message: dict[str, Any], note: Note) -> None:
    """Repair the tool calls, in place; what is not a call at all becomes text, so that nothing is lost."""
    calls = message.pop("tool_calls", _ABSENT)
    if calls is _ABSENT:
        calls = _legacy_call(message, note)
    elif isinstance(calls, dict):
        note(codes.CALLS_NOT_A_LIST, "made a list of the call")
        calls = [calls]
    elif not isinstance(calls, list):
        note(codes.CALLS_NOT_A_LIST, "removed the tool calls")
        calls = [] if calls is None else [calls]
    elif not calls:
        note(codes.CALLS_EMPTY, "removed the empty list")
    if readable := [_repaired_call(call, note) for call in calls if isinstance(call, dict)]:
        message["tool_calls"] = readable
    unreadable = [f"[unreadable tool call: {as_text(call)}]" for call in calls if not isinstance(call, dict)]
    for _ in unreadable:
        note(codes.CALL_NOT_A_DICT, "made it text")
    if unreadable:
        message["content"] = _appended(message.get("content"), "\n\n".join(unreadable))


def _legacy_call(message: dict[str, Any], note: Note) -> list[Any]:
    """Return the call of an old-style `function_call`, if that is all the message holds."""
    call = message.get("function_call")
    if not isinstance(call, dict) or message.get("content"):
        return []
    note(codes.ASSISTANT_EMPTY, "made a tool call of function_call")
    del message["function_call"]
    return [{"type": "function", "function": call}]


def _repaired_call(call: dict[str, Any], note: Note) -> dict[str, Any]:
    """Return a call with nothing wrong in itself; a missing id stays missing until `repair` knows all others."""
    faults = [code for code, _ in call_faults(call)]
    if not faults:
        return call
    for code in faults:
        note(code, "repaired the call")
    call = function_of(call) or call
    function, kind = call.get("function"), call.get("type")
    if not isinstance(function, dict):
        function, kind = _function_of(call), "function"
    return {
        **{key: value for key, value in call.items() if key not in ("name", "arguments", "input", "custom")},
        "id": _call_id(call.get("id")),
        "type": kind if isinstance(kind, str) and kind else "function",
        "function": {
            **function,
            "name": _function_name(function.get("name")),
            "arguments": _repaired_arguments(function.get("arguments")),
        },
    }


def _call_id(call_id: Any) -> str:
    if isinstance(call_id, int):
        return str(call_id)
    return call_id if isinstance(call_id, str) else ""


def _function_of(call: dict[str, Any]) -> dict[str, Any]:
    """Return the function of a call that is written in another way: flat, or as a custom tool."""
    custom = call.get("custom")
    source = custom if isinstance(custom, dict) else call
    arguments = next((source[key] for key in ("arguments", "input") if key in source), None)
    name = call["function"] if isinstance(call.get("function"), str) else source.get("name")
    return {"name": name, "arguments": arguments}


def _function_name(name: Any) -> str:
    legal = _ILLEGAL_IN_NAME.sub("_", as_text(name)) if name else ""
    return legal[:MAX_FUNCTION_NAME] or UNKNOWN_FUNCTION


def _repaired_arguments(raw: Any) -> str:
    fault = arguments_fault(raw)
    if fault is None:
        return str(raw)
    if raw is None or (isinstance(raw, str) and not raw.strip()):
        return "{}"
    if isinstance(raw, dict):
        return json.dumps(cleaned(raw), ensure_ascii=False)
    if fault == codes.LONE_SURROGATE:
        return as_text(cleaned(parse_arguments(raw)))
    return json.dumps({RAW_ARGUMENTS: as_text(raw)}, ensure_ascii=False)
