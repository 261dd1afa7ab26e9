"""The tokens of messages, each counted once during a compaction."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from leporello.tokens import count_message, count_messages, count_text
from leporello.tokens.estimate import PER_MESSAGE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leporello.messages import Message


COUNTED = 1_000_000
"""Characters of plain messages up to which a list is counted and not estimated."""

SAMPLE, SAMPLE_OF_OTHERS = 100, 100
"""How many plain messages of a kind, and how many others, are counted for an estimate."""

PIECE = 400
"""How many characters of each plain one."""


def about(messages: Sequence[Any]) -> int:
    """Return how many tokens a list has, of a very long one an estimate, usually within a few per cent.

    What plain messages have per character, in and beyond ASCII, and other messages each, is taken from samples.
    """
    plain = [
        text
        if type(message) is dict and type(text := message.get("content")) is str and "tool_calls" not in message
        else None
        for message in messages
    ]
    others = [message for message, text in zip(messages, plain, strict=True) if text is None]
    texts = [text for text in plain if text]
    if sum(map(len, texts)) <= COUNTED:
        return count_messages(messages)
    random = Random(len(messages))  # noqa: S311 - no secret
    some = random.sample(others, min(SAMPLE_OF_OTHERS, len(others)))
    called = count_messages(some) * len(others) // max(1, len(some))
    ascii_texts = [text for text in texts if text.isascii()]
    other_texts = [text for text in texts if not text.isascii()] if len(ascii_texts) < len(texts) else []
    said = _estimated(ascii_texts, random) + _estimated(other_texts, random)
    return called + said + PER_MESSAGE * (len(messages) - len(others))


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
