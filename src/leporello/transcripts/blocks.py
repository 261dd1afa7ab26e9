"""Messages from records that hold a part of one: blocks of one answer stand together, results follow their call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leporello.errors import MessageError
from leporello.messages import Message, from_anthropic, role_of
from leporello.transcripts.model import as_text

if TYPE_CHECKING:
    from collections.abc import Iterable

_BLOCKS = frozenset({"tool_use", "tool_result"})


class Joined:
    """A conversation that grows record by record.

    An answer may come as several records with one id, with results of its first calls between them: they become one
    message, and the results stand behind it.
    """

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._answer = ""
        self._blocks: list[Any] = []
        self._at = -1
        self._fields: Message = {}

    def __len__(self) -> int:
        return len(self.messages)

    def add(self, message: Message, answer: str = "") -> None:
        """Add a message in Anthropic's or OpenAI's format; `answer` is the id of the answer that it is a part of."""
        role = role_of(message)
        if role == "assistant" and answer and answer == self._answer:
            self._blocks += _listed(message.get("content"))
            self.messages[self._at] = _assistant(self._fields, self._blocks)
            return
        if role == "assistant":
            self._answer, self._blocks, self._fields = answer, _listed(message.get("content")), message
            self._at = len(self.messages)
            self.messages.append(_assistant(message, self._blocks) if _is_blocks(message) else message)
            return
        converted = _converted(message)
        if any(role_of(one) != "tool" for one in converted):
            self._answer = ""
        self.messages += converted

    def finished(self) -> list[Message]:
        """Return the messages that say anything."""
        return [message for message in self.messages if _says_something(message)]


def has_blocks(messages: Iterable[Any]) -> bool:
    """Tell whether messages are in Anthropic's format where the two differ."""
    return any(_is_blocks(message) for message in messages)


def _is_blocks(message: Any) -> bool:
    content = message.get("content") if isinstance(message, dict) else None
    parts = content if isinstance(content, list) else []
    return any(isinstance(part, dict) and as_text(part.get("type")) in _BLOCKS for part in parts)


def _assistant(fields: Message, blocks: list[Any]) -> Message:
    (message,) = from_anthropic({"messages": [{**fields, "content": _telling(blocks)}]})
    return message


def _converted(message: Message) -> list[Message]:
    if not _is_blocks(message):
        return [message]
    try:
        return from_anthropic({"messages": [message]})
    except MessageError:
        return [message]


def _telling(blocks: list[Any]) -> list[Any]:
    """Return the blocks without texts that hold no word, unless there is nothing else."""
    telling = [
        block
        for block in blocks
        if not (isinstance(block, dict) and block.get("type") == "text" and not str(block.get("text") or "").strip())
    ]
    return telling or blocks


def _listed(content: Any) -> list[Any]:
    if isinstance(content, list):
        return list(content)
    return [{"type": "text", "text": content}] if isinstance(content, str) and content else []


def _says_something(message: Message) -> bool:
    content = message.get("content")
    words = content.strip() if isinstance(content, str) else content
    return bool(words) or bool(message.get("tool_calls")) or role_of(message) == "tool"
