"""Messages without secrets: the views that everything is derived from which leaves the conversation.

A view has the shape of its message and only what is read there: who spoke, what was said and called. Many messages pass
the redactor as one text, which is many times faster than one call for each string.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NewType

from leporello.messages.rules import MAX_FUNCTION_NAME
from leporello.messages.types import IMAGE_TYPES
from leporello.redact.redactor import redact, redact_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

RedactedMessage = NewType("RedactedMessage", dict[str, Any])
"""A message without known secrets; made by `redact_messages` alone."""

ABOUT = "about_file"
"""The key of a view of a tool result under which the file of its call stands, when the call is not there to be read."""
CALLED = "called_as"
"""The key under which its call stands as one line, when it is about no file."""
PRINTED = "printed_by_program"
"""The key that says that its call, which is not there, ran a program."""

_READ = frozenset(
    {"role", "name", "timestamp", "tool_call_id", "tool_call_ids", "content", "tool_calls", ABOUT, CALLED, PRINTED}
)
_NAMES = ("name", "timestamp", ABOUT, CALLED)
_TEXT_PART = frozenset({"type", "text"})
_MEDIA = IMAGE_TYPES | {"input_audio", "file"}
_SEPARATOR = "\n\x01\n"  # not white space to a regular expression, so no pattern runs across it
_PAGE = 1_000_000
_LONG_NAME = "a_tool_with_a_long_name"


def redact_messages(messages: Iterable[Any]) -> list[RedactedMessage]:
    """Return the messages without secrets, each at its place; one that holds none may be the same object."""
    views: list[RedactedMessage] = []
    page: list[tuple[dict[str, Any], list[str]]] = []
    length = 0
    for message in messages:
        view = _read(message)
        texts = _texts(view)
        if texts is None:
            views += _page(page)
            views.append(RedactedMessage(_redacted_parts(view)))
            page, length = [], 0
            continue
        page.append((view, texts))
        length += sum(map(len, texts))
        if length > _PAGE:
            views += _page(page)
            page, length = [], 0
    return views + _page(page)


def redact_message(message: Any) -> RedactedMessage:
    """Return a message without secrets."""
    return redact_messages([message])[0]


def _read(message: Any) -> dict[str, Any]:
    """Return a message with nothing but what is read of it."""
    if not isinstance(message, dict):
        return {}
    return message if message.keys() <= _READ else {key: message[key] for key in message if key in _READ}


def _texts(message: dict[str, Any]) -> list[str] | None:
    """Return the texts of a message in a fixed order, None when it is built in another way than most."""
    content, calls = message.get("content"), message.get("tool_calls")
    texts = [message[key] for key in _NAMES if isinstance(message.get(key), str)]
    if isinstance(content, str):
        texts.append(content)
    elif isinstance(content, list):
        if not all(isinstance(part, dict) and part.keys() == _TEXT_PART for part in content):
            return None
        texts += [part["text"] for part in content]
    elif content is not None:
        return None
    if calls is not None:
        try:
            called = [(call["function"]["name"], call["function"]["arguments"]) for call in calls]
        except (TypeError, KeyError):
            return None
        if any(_was_cut(name) for name, _ in called):
            return None
        texts += [text for pair in called for text in pair]
    return texts if all(isinstance(text, str) for text in texts) else None


def _was_cut(name: Any) -> bool:
    """Tell whether the name of a tool is as long as a repair leaves it: then it may be the half of a secret."""
    return isinstance(name, str) and len(name) >= MAX_FUNCTION_NAME


def _page(page: Sequence[tuple[dict[str, Any], list[str]]]) -> list[RedactedMessage]:
    """Redact the texts of messages together; one by one when they cannot be told apart again."""
    texts = [text for _, own in page for text in own]
    whole = _SEPARATOR.join(texts)
    found = redact(whole)
    if found == whole:
        return [RedactedMessage(message) for message, _ in page]
    clean: list[str] = found.split(_SEPARATOR)
    clean = clean if len(clean) == len(texts) else [redact(text) for text in texts]
    rest = iter(clean)
    return [RedactedMessage(_rebuilt(message, rest)) for message, _ in page]


def _rebuilt(message: dict[str, Any], clean: Iterator[str]) -> dict[str, Any]:
    """Return a message with clean texts, taken in the order in which `_texts` gives them."""
    view = dict(message)
    for key in _NAMES:
        if isinstance(message.get(key), str):
            view[key] = next(clean)
    content = message.get("content")
    if isinstance(content, str):
        view["content"] = next(clean)
    elif isinstance(content, list):
        view["content"] = [{**part, "text": next(clean)} for part in content]
    if message.get("tool_calls") is not None:
        view["tool_calls"] = [
            {**call, "function": {"name": next(clean), "arguments": next(clean)}} for call in message["tool_calls"]
        ]
    return view


def _redacted_parts(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message of any build without secrets; of media only what names them is read."""
    content = message.get("content")
    if isinstance(content, list):
        message = {**message, "content": [_without_media(part) for part in content]}
    if isinstance(message.get("tool_calls"), list):
        message = {**message, "tool_calls": [_without_cut_name(call) for call in message["tool_calls"]]}
    view = redact_value(message)
    return view if isinstance(view, dict) else {}


def _without_cut_name(call: Any) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not _was_cut(function.get("name")):
        return call
    return {**call, "function": {**function, "name": _LONG_NAME}}


def _without_media(part: Any) -> Any:
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str) or kind not in _MEDIA:
        return part
    image, file = part.get("image_url"), part.get("file")
    address = image.get("url") if isinstance(image, dict) else image
    name = file.get("filename") if isinstance(file, dict) else None
    if isinstance(address, str):
        return {"type": kind, "image_url": {"url": "data:" if address.startswith("data:") else address}}
    return {"type": kind, "file": {"filename": name}} if isinstance(name, str) else {"type": kind}
