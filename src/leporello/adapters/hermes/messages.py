"""Messages without what Hermes Agent notes beside them, and its own messages back again.

The notes (times, reasons, whether a message is in its database) are other ones when a session is loaded again, and an
engine would take every message for a changed one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from leporello.messages import align

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leporello.messages import Message

_NOTES: Final = frozenset(
    {
        "api_content",
        "effect_disposition",
        "finish_reason",
        "message_id",
        "observed",
        "timestamp",
        "tool_name",
    }
)
_SENT_CONTENT: Final = "api_content"  # of the content as it was before it was changed
_PERSISTED: Final = "_db_persisted"  # a list that was folded is written to its database as a whole


def said(messages: Sequence[Any]) -> list[Message]:
    """Return what was said: each message without notes, and without fields that hold nothing."""
    return [_said(message) if isinstance(message, dict) else message for message in messages]


def given_back(messages: Sequence[Any], bare: Sequence[Message], result: Sequence[Message]) -> list[Message]:
    """Return the result for `bare`, which `said` made of `messages`, with the messages of the host in it."""
    if len(result) == len(bare) and all(map(_is, result, bare)):
        return list(messages)
    places = align(bare, result)
    return [
        _noted(messages[sources[0]], bare[sources[0]], made) if len(sources) == 1 else made
        for made, sources in zip(result, places, strict=True)
    ]


def _said(message: dict[str, Any]) -> Message:
    kept = {
        key: value
        for key, value in message.items()
        if key not in _NOTES and not key.startswith("_") and (key == "content" or value not in (None, ""))
    }
    if message.get("role") == "tool" and message.get("tool_name"):
        kept["name"] = message["tool_name"]
    return cast("Message", kept)


def _noted(original: Any, bare: Message, made: Message) -> Message:
    """Return a message with the notes of the host's; one that was changed lacks those that are about its content."""
    if not isinstance(original, dict):
        return made
    kept = {key: value for key, value in original.items() if key != _PERSISTED}
    if made is not bare:
        kept = {key: value for key, value in kept.items() if key not in bare and key != _SENT_CONTENT} | made
    return cast("Message", kept)


def _is(one: object, other: object) -> bool:
    return one is other
