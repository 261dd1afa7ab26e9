"""The tokens of messages, each counted once during a compaction."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from leporello.tokens import count_message, count_messages, count_text
from leporello.tokens.estimate import PER_MESSAGE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leporello.messages import Message


SAMPLE, SAMPLE_OF_CALLS = 100, 200
"""How many plain messages of a kind, and how many calls, are counted for an estimate."""

PIECE = 400
"""How many characters of each plain one."""


def about(messages: Sequence[Any]) -> int:
    """Return about how many tokens a very long list has, usually within a few per cent.

    What plain messages have per character, in and beyond ASCII, and calls each, is taken from samples; messages in
    parts, where an image may outweigh all words, are counted.
    """
    plain = [
        text
        if type(message) is dict and type(text := message.get("content")) is str and "tool_calls" not in message
        else None
        for message in messages
    ]
    others = [message for message, text in zip(messages, plain, strict=True) if text is None]
    texts = [text for text in plain if text]
    random = Random(len(messages))  # noqa: S311 - no secret
    ascii_texts = [text for text in texts if text.isascii()]
    other_texts = [text for text in texts if not text.isascii()] if len(ascii_texts) < len(texts) else []
    said = _estimated(ascii_texts, random) + _estimated(other_texts, random)
    calls = [message for message in others if type(message) is dict and type(message.get("content")) is not list]
    some = random.sample(calls, min(SAMPLE_OF_CALLS, len(calls)))
    called = count_messages(some) * len(calls) // max(1, len(some))
    in_parts = [message for message in others if type(message) is not dict or type(message.get("content")) is list]
    return said + called + count_messages(in_parts) + PER_MESSAGE * (len(messages) - len(others))


def _estimated(texts: list[str], random: Random) -> int:
    """Return about how many tokens texts of one kind have: a piece of each in a sample stands for the whole of it."""
    some = random.sample(texts, min(SAMPLE, len(texts)))
    pieces = [text if len(text) <= PIECE else text[len(text) // 2 :][:PIECE] for text in some]
    counted = sum([count_text(piece) * len(text) / len(piece) for text, piece in zip(some, pieces, strict=True)])
    return int(sum(map(len, texts)) * counted / max(1, sum(map(len, some))))


class Sizes:
    """Count messages and remember them; equal to `count_message`, whoever asks."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, Message]] = {}  # the message is held, so that its id stays its own

    def of(self, message: Message) -> int:
        """Return the tokens of one message."""
        known = self._known.get(id(message))
        if known is None:
            known = self._known[id(message)] = (count_message(message), message)
        return known[0]

    def total(self, messages: Iterable[Message]) -> int:
        """Return the tokens of several messages."""
        return sum(map(self.of, messages))
