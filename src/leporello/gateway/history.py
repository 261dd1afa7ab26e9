"""Recognises a history that a client sends again and again, longer each time.

A client sends back what it got, but not always letter for letter: its package leaves fields out, writes content as text
or as parts, puts cache markers somewhere. So a message is known by what was said: who spoke, the words, the calls and
which call is answered. Each message's mark holds all messages before it; equal marks are equal histories.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from leporello.messages import fingerprint, is_system, parts_of, role_of, text_of, tool_calls_of
from leporello.messages.types import ROLES, THINKING_TYPES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leporello.messages import Message

BEGINNING: Final = b""
"""The mark of a history that holds nothing yet."""

_ALONE: Final = b"alone"
_MARK_BYTES: Final = 16
_NO_PART: Final = THINKING_TYPES | {"text"}


@dataclass(frozen=True, kw_only=True)
class Heard:
    """What a client sent: its system prompt, the messages, and the mark of the history up to each spoken one.

    System messages carry no mark: they change between requests, and the conversation is the same.
    """

    systems: list[Message]
    messages: list[Message]
    marks: list[bytes]
    places: list[int] = field(repr=False)
    """Where in `messages` each marked one stands."""
    first_reply: int
    """How many marked messages there are up to the first answer, that included; 0 when there is none."""
    last_reply: int
    """The same, up to the last answer."""

    @property
    def is_known(self) -> bool:
        """Whether all who speak are known; a conversation with others in it can be passed on, but not kept."""
        return all(role_of(message) in ROLES for message in self.messages)

    def at(self, count: int) -> Message:
        """Return the marked message that is the last of so many."""
        return self.messages[self.places[count - 1]]

    def after(self, count: int, until: int | None = None) -> list[Message]:
        """Return what stands behind so many marked messages, up to another one or to the end."""
        first = self.places[count - 1] + 1 if count else 0
        end = None if until is None or until >= len(self.places) else self.places[until - 1] + 1
        return self.messages[first:end]


def hear(messages: Sequence[Message]) -> Heard:
    """Read the messages of a request."""
    start = next((at for at, message in enumerate(messages) if not is_system(message)), len(messages))
    rest = list(messages[start:])
    places = [at for at, message in enumerate(rest) if not is_system(message)]
    replies = [count for count, at in enumerate(places, 1) if role_of(rest[at]) == "assistant"]
    return Heard(
        systems=list(messages[:start]),
        messages=rest,
        marks=marks(rest[at] for at in places),
        places=places,
        first_reply=replies[0] if replies else 0,
        last_reply=replies[-1] if replies else 0,
    )


def marks(messages: Iterable[Message], mark: bytes = BEGINNING) -> list[bytes]:
    """Return the mark of a history after each of its messages; `mark` is that of what came before."""
    found = []
    for message in messages:
        mark = extended(mark, message)
        found.append(mark)
    return found


def extended(mark: bytes, message: Message) -> bytes:
    """Return the mark of a history that goes on with this message."""
    return blake2b(mark + _said(message).encode("utf-8", "surrogatepass"), digest_size=_MARK_BYTES).digest()


def alone(message: Message) -> bytes:
    """Return the mark of a message by itself, whatever came before it."""
    return extended(_ALONE, message)


def _said(message: Message) -> str:
    """Return what a message says, the same for all the ways in which clients write it."""
    role = role_of(message)
    text = text_of(message)
    spoken = f"{role}\0{text.strip() if role == 'assistant' else text}"
    content = message.get("content")
    if isinstance(content, str) and "tool_calls" not in message and role != "tool":
        return spoken
    calls = [[call.id, call.name, call.arguments or call.raw] for call in tool_calls_of(message)]
    parts = [fingerprint(part) for part in parts_of(message) if str(part.get("type")) not in _NO_PART]
    answers = message.get("tool_call_id") if role == "tool" else None
    more = [calls, parts, answers]
    return f"{spoken}\0{_json(more)}" if any(more) else spoken


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=str)
