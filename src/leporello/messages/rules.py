"""What is valid: the rules of OpenAI's chat format, and of the Anthropic request that it converts to.

The rules are strict, so that what passes is accepted everywhere: behind the system prompt the user speaks first, user
and assistant take turns, all results of a call follow it at once, ids are unique, nothing is empty. A system message
may stand anywhere but between a call and its results; two answers with one between them are two turns. `codes.RULES`
lists every rule. Parts of a type that is not known here belong to some provider and are not judged.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leporello.messages import codes
from leporello.messages.types import IMAGE_TYPES, ROLES, SYSTEM_ROLES, THINKING_TYPES
from leporello.messages.values import arguments_fault, encodable, is_clean, value_faults

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from leporello.messages.types import Dialect

FUNCTION_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}\Z")
MAX_FUNCTION_NAME = 64
USABLE_IMAGE = re.compile(r"https?://\S|data:image/(?:png|jpe?g|gif|webp)(?:;[^;,]+)*;base64,.", re.IGNORECASE)
TEXT_TYPES = {"text": "text", "refusal": "refusal"}
_NEXT_ROLE = {"user": "assistant", "assistant": "user"}
_TEXT_KEYS = {"role", "content"}


@dataclass(frozen=True, kw_only=True)
class Violation:
    """One thing that is wrong; `index` is the message's place, -1 for the list itself."""

    index: int
    code: str
    message: str


def violations(messages: Any, dialect: Dialect) -> list[Violation]:
    """Return what makes a list of messages illegal, in order of place.

    `messages` is always in OpenAI's format; with "anthropic" or "responses" the answer is what would make the converted
    request illegal.
    """
    if dialect not in codes.DIALECTS:
        raise ValueError(f"unknown dialect {dialect!r}: use 'openai', 'anthropic' or 'responses'")
    return [v for v in all_violations(messages) if dialect in codes.RULES[v.code].dialects]


def all_violations(messages: Any) -> list[Violation]:
    """Return what at least one dialect refuses, in order of place."""
    if not isinstance(messages, list):
        return [_violation(-1, codes.NOT_A_LIST, type(messages).__name__)]
    if not messages:
        return [_violation(-1, codes.NO_MESSAGES)]
    found: list[Violation] = []
    order = _Order(found)
    for index, message in enumerate(messages):
        if isinstance(message, dict):
            role = message.get("role")
            role = role if isinstance(role, str) else ""
            if faults := message_faults(message, role):
                found.extend(_violation(index, code, detail) for code, detail in faults)
            order.take(index, message, role)
        else:
            found.append(_violation(index, codes.NOT_A_DICT, type(message).__name__))
    order.finish()
    found.sort(key=lambda violation: violation.index)
    return found


def takes_turns(messages: Sequence[Any], start: int) -> bool:
    """Tell, fast, whether a list that is valid up to a place is so to its end: behind a text, texts in turns.

    Only texts of the user and of the assistant are looked at; False sends everything else to the thorough check.
    """
    if not 0 < start <= len(messages):
        return False
    before, *new = messages[start - 1 :]
    role = before.get("role")
    if role not in _NEXT_ROLE or "tool_calls" in before:
        return False
    for message in new:
        role = _NEXT_ROLE[role]
        text = message.get("content")
        if message.keys() != _TEXT_KEYS or message["role"] != role or not isinstance(text, str):
            return False
        if not text or text.isspace() or not (text.isascii() or encodable(text)):
            return False
    return True


def _violation(index: int, code: str, detail: str = "") -> Violation:
    meaning = codes.RULES[code].meaning
    detail = detail[:80].encode(errors="replace").decode()
    return Violation(index=index, code=code, message=f"{meaning} ({detail})" if detail else meaning)


class _Order:
    """Follow the list from message to message: whose turn it is, and which calls wait for a result."""

    def __init__(self, found: list[Violation]) -> None:
        self.found = found
        self.previous = ""  # "user", "assistant", "calls" for one that called tools, "system" for one behind an answer
        self.ids: set[str] = set()
        self.open: dict[str, list[int]] = {}  # calls whose results may follow now: id -> places
        self.waiting: dict[str, list[int]] = {}  # calls whose results should have been there
        self.answered: set[str] = set()

    def take(self, index: int, message: dict[str, Any], role: str) -> None:
        """Look at the next message."""
        if role == "tool":
            self._result(index, message.get("tool_call_id"))
            return
        if self.open:
            self._close()
        if role in SYSTEM_ROLES:
            self.previous = "system" if self.previous == "assistant" else self.previous
        elif role in ROLES:
            self._turn(index, role)
            if role == "assistant":
                self._calls(index, message.get("tool_calls"))

    def finish(self) -> None:
        """Report what is still missing at the end."""
        self._close()
        for call_id, places in self.waiting.items():
            for index in places:
                self._report(index, codes.RESULT_MISSING, call_id)
        if not self.previous:
            self._report(-1, codes.NO_USER)

    def _turn(self, index: int, role: str) -> None:
        if not self.previous and role != "user":
            self._report(index, codes.FIRST_NOT_USER)
        if self.previous == role:
            self._report(index, codes.REPEATED_ROLE, role)
        self.previous = role

    def _calls(self, index: int, calls: Any) -> None:
        if not isinstance(calls, list) or not calls:
            return
        self.previous = "calls"
        for call in calls:
            call_id = call.get("id") if isinstance(call, dict) else None
            if not isinstance(call_id, str) or not call_id:
                continue
            if call_id in self.ids:
                self._report(index, codes.CALL_ID_DUPLICATE, call_id)
            self.ids.add(call_id)
            self.open.setdefault(call_id, []).append(index)

    def _result(self, index: int, call_id: Any) -> None:
        if not isinstance(call_id, str) or not call_id:
            self._report(index, codes.RESULT_ID_MISSING)
        elif self.open.get(call_id):
            self.open[call_id].pop()
            self.answered.add(call_id)
        elif self.waiting.get(call_id):
            self.waiting[call_id].pop()
            self.answered.add(call_id)
            self._report(index, codes.RESULT_LATE, call_id)
        else:
            self._report(index, codes.RESULT_DUPLICATE if call_id in self.answered else codes.RESULT_ORPHAN, call_id)

    def _close(self) -> None:
        for call_id, places in self.open.items():
            if places:
                self.waiting.setdefault(call_id, []).extend(places)
        self.open = {}

    def _report(self, index: int, code: str, detail: str = "") -> None:
        self.found.append(_violation(index, code, detail))


def message_faults(message: dict[str, Any], role: str) -> list[tuple[str, str]]:
    """Return what is wrong with one message by itself: codes, each with a detail."""
    faults: list[tuple[str, str]] = []
    if not is_clean(message):
        faults.extend((code, "") for code in sorted(value_faults(message)))
    if not role:
        faults.append((codes.ROLE_MISSING, ""))
    elif role not in ROLES:
        faults.append((codes.ROLE_UNKNOWN, role))
    elif role == "assistant" or not _is_plain(message.get("content")):
        faults.extend(_content_faults(message, role))
    if "name" in message and not isinstance(message["name"], (str, type(None))):
        faults.append((codes.NAME_NOT_TEXT, ""))
    if "tool_calls" in message:
        faults.extend(_calls_faults(message["tool_calls"], role))
    return faults


def _is_plain(content: Any) -> bool:
    """Tell whether content is text with something in it: most messages need no closer look."""
    return isinstance(content, str) and bool(content) and not content.isspace()


def _content_faults(message: dict[str, Any], role: str) -> Iterator[tuple[str, str]]:
    content = message.get("content")
    if isinstance(content, list):
        for part in content:
            yield from part_faults(part, role)
    elif content is not None and not isinstance(content, str):
        yield codes.CONTENT_WRONG_TYPE, type(content).__name__
        return
    if role == "assistant":
        yield from _assistant_faults(message, content)
    elif content is None:
        yield codes.CONTENT_MISSING, role
    elif content == [] or (content == "" and role != "tool"):
        yield codes.CONTENT_EMPTY, role
    elif role != "tool" and isinstance(content, str) and content.isspace():
        yield codes.TEXT_BLANK, role


def _assistant_faults(message: dict[str, Any], content: Any) -> Iterator[tuple[str, str]]:
    blocks = message.get("thinking_blocks")
    if blocks is not None:
        yield from _thinking_blocks_faults(blocks)
    if message.get("tool_calls"):
        if content == []:
            yield codes.CONTENT_EMPTY, "assistant"
        return
    if not says_something(message):
        yield codes.ASSISTANT_EMPTY, ""
    elif isinstance(content, str) and content.isspace():
        yield codes.TEXT_BLANK, "assistant"
    if ends_thinking(message):
        yield codes.THINKING_LAST, ""


def says_something(message: Mapping[str, Any]) -> bool:
    """Tell whether an assistant message holds anything but thinking: text, an image, a refusal."""
    return _has_answer(message.get("content")) or bool(refusal_of(message))


def ends_thinking(message: Mapping[str, Any]) -> bool:
    """Tell whether an assistant message without calls would end with a thinking block."""
    content = message.get("content")
    if _has_answer(content):
        return isinstance(content, list) and is_thinking(content[-1])
    return not refusal_of(message) and bool(content or message.get("thinking_blocks"))


def _has_answer(content: Any) -> bool:
    return not all(is_thinking(part) for part in content) if isinstance(content, list) else bool(content)


def refusal_of(message: Mapping[str, Any]) -> str:
    """Return the refusal that stands beside the content, "" when there is none."""
    refusal = message.get("refusal")
    return refusal if isinstance(refusal, str) and refusal.strip() else ""


def is_thinking(part: Any) -> bool:
    """Tell whether a part is a thinking block, redacted or not."""
    return isinstance(part, dict) and part.get("type") in ("thinking", "redacted_thinking")


def _thinking_blocks_faults(blocks: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(blocks, list) or not all(is_thinking(block) for block in blocks):
        yield codes.THINKING_MALFORMED, "thinking_blocks"
        return
    for block in blocks:
        yield from _thinking_faults(block)


def part_faults(part: Any, role: str) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with one part of a message's content."""
    if not isinstance(part, dict):
        yield codes.PART_NOT_A_DICT, type(part).__name__
        return
    kind = part.get("type")
    if not isinstance(kind, str) or not kind:
        yield codes.PART_TYPE_MISSING, ""
    elif kind in TEXT_TYPES:
        yield from _text_faults(part.get(TEXT_TYPES[kind]))
    elif kind in IMAGE_TYPES:
        if role not in ("user", "tool"):
            yield codes.IMAGE_MISPLACED, role
        yield from _image_faults(part)
    elif kind in THINKING_TYPES:
        if role == "assistant":
            yield from _thinking_faults(part)
        else:
            yield codes.THINKING_MISPLACED, role


def _text_faults(text: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(text, str):
        yield codes.TEXT_MISSING, ""
    elif not text:
        yield codes.TEXT_EMPTY, ""
    elif text.isspace():
        yield codes.TEXT_BLANK, ""


def _image_faults(part: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if part["type"] == "image":
        if not _is_source(part.get("source")):
            yield codes.IMAGE_WITHOUT_URL, ""
        return
    url = image_url(part)
    if not url:
        yield codes.IMAGE_WITHOUT_URL, ""
    elif not USABLE_IMAGE.match(url):
        yield codes.IMAGE_URL_UNUSABLE, url[:40]


def _is_source(source: Any) -> bool:
    """Tell whether this is the source of an Anthropic image block."""
    return isinstance(source, dict) and any(
        isinstance(source.get(key), str) and source[key] for key in ("data", "url", "file_id")
    )


def image_url(part: dict[str, Any]) -> str:
    """Return the address of an image part, "" when there is none."""
    image = part.get("image_url")
    if part.get("type") == "image_url":
        image = image.get("url") if isinstance(image, dict) else None
    return image if isinstance(image, str) else ""


def _thinking_faults(block: dict[str, Any]) -> Iterator[tuple[str, str]]:
    field = "data" if block["type"] == "redacted_thinking" else "thinking"
    if not isinstance(block.get(field), str):
        yield codes.THINKING_MALFORMED, field
    elif field == "thinking" and not (isinstance(block.get("signature"), str) and block["signature"]):
        yield codes.THINKING_UNSIGNED, ""


def _calls_faults(calls: Any, role: str) -> Iterator[tuple[str, str]]:
    if role != "assistant":
        yield codes.CALLS_MISPLACED, role
    elif not isinstance(calls, list):
        yield codes.CALLS_NOT_A_LIST, type(calls).__name__
    elif not calls:
        yield codes.CALLS_EMPTY, ""
    else:
        for call in calls:
            yield from call_faults(call)


def call_faults(call: Any) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with one tool call by itself."""
    if not isinstance(call, dict):
        yield codes.CALL_NOT_A_DICT, type(call).__name__
        return
    if not isinstance(call.get("id"), str) or not call["id"]:
        yield codes.CALL_ID_MISSING, ""
    if not isinstance(call.get("type"), str) or not call["type"]:
        yield codes.CALL_TYPE_MISSING, ""
    function = call.get("function")
    if not isinstance(function, dict):
        yield codes.FUNCTION_MISSING, ""
        return
    name = function.get("name")
    if not isinstance(name, str) or not name:
        yield codes.FUNCTION_NAME_MISSING, ""
    elif not FUNCTION_NAME.match(name):
        yield codes.FUNCTION_NAME_ILLEGAL, name[:40]
    elif len(name) > MAX_FUNCTION_NAME:
        yield codes.FUNCTION_NAME_TOO_LONG, name
    if fault := arguments_fault(function.get("arguments")):
        yield fault, name if isinstance(name, str) else ""
