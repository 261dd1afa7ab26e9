"""Reading messages for what they leave behind: the text of every turn, its calls, and the results of calls.

JSON outputs become plain lines ("key: value"), so that an error line or a number inside them is found like any other.
Content that a host already cleared, and what an earlier compaction wrote, is no part of the conversation.
"""

from __future__ import annotations

import json
import re
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from leporello.messages.fixed import is_cleared
from leporello.messages.types import ToolCall, is_system, parts_of, role_of, tool_calls_of
from leporello.redact import ABOUT, CALLED, PRINTED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from leporello.redact import RedactedMessage

# User turns that a program wrote: they are read for what is exact, but they ask for nothing.
_NOTICES = (
    "This session is being continued from a previous conversation",
    "[Request interrupted by user",
    "<task-notification>",
    "Caveat: The messages below were generated",
    "Base directory for this skill:",
    "[CONTEXT COMPACTION",
    "[CONTEXT SUMMARY]",
)
NOTICE = "notice"
MARKED = ("[", "</", "\x1b", *_NOTICES)
"""What a turn holds if anything in it was not said by the one whose turn it is."""
_NOTE = re.compile(r"\[Note: Some earlier conversation turns have been compacted[^\]]*\]?")
_HOST_TAGS = re.compile(r"<(system-reminder|local-command-\w+|command-\w+)>.*?</\1>", re.DOTALL)
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_LONG_NUMBER = 4_000
_LONG_TEXT_KEYS = frozenset({"output", "stdout", "stderr", "content", "text", "result", "message", "data", "body"})


class Result(NamedTuple):
    """What a tool answered, as plain lines.

    When its call is not there, `about` is the call's file, or else `called` the call as one line, and `is_printed` says
    that it ran a program.
    """

    call_id: str
    text: str
    about: str = ""
    called: str = ""
    is_printed: bool = False


class ReadTurn(NamedTuple):
    """The message at an index, ready to be searched; `role` is "notice" for a user turn that a program wrote."""

    at: int
    role: str
    text: str
    calls: tuple[ToolCall, ...] = ()
    results: tuple[Result, ...] = ()


def read_turns(messages: Iterable[RedactedMessage], start: int = 0) -> Iterator[ReadTurn]:
    """Read messages one after the other, from an index on; what cannot be read is passed over."""
    for index, message in enumerate(islice(messages, start, None), start):
        role = "system" if is_system(message) else role_of(message)
        if role in {"system", "user", "assistant", "tool"}:
            yield _turn(index, role, message)


def plain(text: str) -> str:
    """Bring an output into plain lines: JSON is unfolded, terminal colours and placeholders are taken out."""
    if is_cleared(text):
        return ""
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    if text[:1] in {"{", "["} or text[:2] in {'"{', '"['}:
        return unfold(text)
    return text


LONGEST_JSON = 1024 * 1024
"""Longer JSON is read as the text that it is: as values it may take a hundred times the memory."""


def unfold(text: str) -> str:
    """Turn JSON text into lines; text that only begins like JSON keeps its words, with its line breaks made real."""
    if len(text) > LONGEST_JSON:
        return text
    try:
        return lines_of(json.loads(text))
    except (ValueError, RecursionError):
        return text.replace("\\n", "\n").replace('\\"', '"') if "\\" in text else text


def lines_of(value: Any) -> str:
    """Write a JSON value as lines, "key: value" where there is a key, in order."""
    lines: list[str] = []
    stack: list[tuple[str, Any]] = [("", value)]
    while stack:
        key, item = stack.pop()
        if isinstance(item, dict):
            stack.extend((str(name), item[name]) for name in reversed(item))
        elif isinstance(item, (list, tuple)):
            stack.extend((key, element) for element in reversed(item))
        elif item is not None:
            text = _scalar(item)
            lines.append(text if not key or "\n" in text or key in _LONG_TEXT_KEYS else f"{key}: {text}")
    return "\n".join(lines)


def _scalar(item: Any) -> str:
    if isinstance(item, str):
        return item
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, int) and item.bit_length() > _LONG_NUMBER:
        return "a very long number"
    return str(item)


def _text(message: dict[str, Any]) -> str:
    """Return the text of a message, whatever else its parts hold."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in parts_of(message) if isinstance(part.get("text"), str))


def _turn(index: int, role: str, message: dict[str, Any]) -> ReadTurn:
    text = _text(message)
    if role == "tool":
        result = Result(
            call_id=_call_id(message),
            text=plain(text),
            about=message.get(ABOUT, ""),
            called=message.get(CALLED, ""),
            is_printed=bool(message.get(PRINTED)),
        )
        return ReadTurn(at=index, role=role, text="", results=(result,))
    calls, results = tool_calls_of(message), []
    if isinstance(message.get("content"), list):
        calls += [_block_call(part) for part in parts_of(message) if part.get("type") == "tool_use"]
        results = [_block_result(part) for part in parts_of(message) if part.get("type") == "tool_result"]
    role, words = spoken(role, text)
    return ReadTurn(at=index, role=role, text=words, calls=tuple(calls), results=tuple(results))


def spoken(role: str, text: str) -> tuple[str, str]:
    """Return who said what: without what hosts and earlier compactions put into a turn; a program is "notice"."""
    words = _spoken(text)
    return NOTICE if role == "user" and words.lstrip().startswith(_NOTICES) else role, words


def _spoken(text: str) -> str:
    """Take out what hosts and earlier compactions put into a turn, and terminal colours."""
    if is_cleared(text):
        return ""
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    if "[Note: Some earlier" in text:
        text = _NOTE.sub("", text)
    if "</" in text:
        text = _HOST_TAGS.sub("", text)
    return text


def _call_id(message: dict[str, Any]) -> str:
    call_id = message.get("tool_call_id")
    several = message.get("tool_call_ids")
    if not isinstance(call_id, str) and isinstance(several, list) and several:
        call_id = several[0]
    return call_id if isinstance(call_id, str) else ""


def _block_call(part: dict[str, Any]) -> ToolCall:
    arguments = part.get("input")
    call_id, name = part.get("id"), part.get("name")
    return ToolCall(
        id=call_id if isinstance(call_id, str) else "",
        name=name if isinstance(name, str) else "",
        arguments=arguments if isinstance(arguments, dict) else {},
        raw="",
    )


def _block_result(part: dict[str, Any]) -> Result:
    call_id = part.get("tool_use_id")
    return Result(call_id=call_id if isinstance(call_id, str) else "", text=plain(_text(part)))
