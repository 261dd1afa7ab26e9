"""Where a summary stands in a conversation, and how an earlier one is found again; the same for every engine.

No two equal roles stand side by side, no user message made here comes after the newest one of the user, and no message
of the conversation is changed: providers sign and order thinking blocks and calls, so the summary is always a message
of its own.

| last head                  | first tail | the summary                                           |
|----------------------------|------------|-------------------------------------------------------|
| user                       | user       | an assistant message                                  |
| assistant, tool or nothing | assistant  | a user message                                        |
| assistant, tool or nothing | user       | a user message and a fixed one-line assistant message |
| user                       | assistant  | a fixed one-line assistant message and a user message |

System messages behind the system prompt make no difference: the last head and the first tail are those that speak
beside them.

The newest user message is never part of the head. When the tool loop behind it is folded, it is the first message of
the tail, so the summary stands directly before it and also tells what was done for it.

The summary begins and ends with fixed marks for the reader. An earlier one is found again by its fingerprint
(`leporello.summary.provenance`): a text that only begins like a summary is part of the record.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING

from leporello.messages import Message, is_system, leading_systems, role_of, text_of
from leporello.messages.fixed import SUMMARY_MARK
from leporello.tokens import count_messages

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

PREFIX = "[CONTEXT COMPACTION]"
END = "[END OF CONTEXT COMPACTION]"
INTRODUCTION = (
    "Earlier turns were compacted into this summary. It is history, for reference: the newest user message decides "
    "what to do now. Do not take up or repeat a task from it unless that message asks for it."
)
NOTE_PREFIX = "[Note: Some earlier conversation turns have been compacted"
NOTE = f"{NOTE_PREFIX} into a summary. It is background; the newest user message decides.]"
DONE_FOR_NEWEST = "The end of the summary tells what was already done for the newest user message, which follows it."
ACKNOWLEDGEMENT = "Understood. I take the summary as background and go on with the newest message."
LEAD_IN = "A summary of the turns that came next follows."

# The words that make a mark: in a summary they are only quoted.
_MARK = re.compile(r"context(?=\W{0,3}compaction)|some earlier(?=\W{1,3}conversation\W{1,3}turns)", re.IGNORECASE)


class Placement(Enum):
    """The rows of the table."""

    ASSISTANT_MESSAGE = "an assistant message"
    USER_MESSAGE = "a user message"
    USER_MESSAGE_ACKNOWLEDGED = "a user message and a fixed assistant line"
    LED_IN_USER_MESSAGE = "a fixed assistant line and a user message"


@dataclass(frozen=True, kw_only=True)
class Stripped:
    """A conversation without the summary of an earlier compaction.

    `position` is where the first summary stood, or a text that only begins like one.
    """

    messages: list[Message]
    previous: str
    position: int | None


def strip_summary(messages: list[Message], ours: Container[Message]) -> Stripped:
    """Take every earlier summary out of the list, with the fixed lines around it, and return its text.

    `ours` are the messages that the engine wrote. The newest user message is never one of them, whatever it quotes.
    """
    user = max((i for i, m in enumerate(messages) if role_of(m) == "user"), default=-1)
    kept: list[Message] = []
    texts: list[str] = []
    position = None
    for index, message in enumerate(messages):
        if index != user and is_marked(message):
            position = len(kept) if position is None else position
            if message in ours:
                if kept and kept[-1].get("content") == LEAD_IN:
                    kept.pop()
                    position = min(position, len(kept))
                texts.append(_body(text_of(message)))
                continue
        follows_summary = bool(texts) and len(kept) == position
        if not (follows_summary and message.get("content") == ACKNOWLEDGEMENT):
            kept.append(message)
    return Stripped(messages=kept, previous="\n\n".join(texts), position=position)


def is_marked(message: Message) -> bool:
    """Tell whether a message begins like a summary."""
    return role_of(message) in ("user", "assistant") and text_of(message).startswith(SUMMARY_MARK)


def placement(head: list[Message], tail: list[Message]) -> Placement:
    """Choose the row of the table."""
    after_user = _first_speaker(reversed(head)) == "user"
    if _first_speaker(tail) == "assistant":
        return Placement.LED_IN_USER_MESSAGE if after_user else Placement.USER_MESSAGE
    return Placement.ASSISTANT_MESSAGE if after_user else Placement.USER_MESSAGE_ACKNOWLEDGED


def _first_speaker(messages: Iterable[Message]) -> str:
    return next((role_of(message) for message in messages if not is_system(message)), "")


def place(head: list[Message], summary: str, tail: list[Message], *, done_for_newest: bool = False) -> list[Message]:
    """Join head, summary and tail; the system prompt gets its note the first time.

    `done_for_newest`: the summary covers turns behind the newest user message.
    """
    block = summary_block(summary, note=not leading_systems(head), done_for_newest=done_for_newest)
    between: list[Message]
    match placement(head, tail):
        case Placement.ASSISTANT_MESSAGE:
            between = [{"role": "assistant", "content": block}]
        case Placement.USER_MESSAGE:
            between = [{"role": "user", "content": block}]
        case Placement.USER_MESSAGE_ACKNOWLEDGED:
            between = [{"role": "user", "content": block}, {"role": "assistant", "content": ACKNOWLEDGEMENT}]
        case Placement.LED_IN_USER_MESSAGE:
            between = [{"role": "assistant", "content": LEAD_IN}, {"role": "user", "content": block}]
    return [*with_note(head), *between, *tail]


def summary_block(summary: str, *, note: bool, done_for_newest: bool = False) -> str:
    """Return the summary between its marks; without a system prompt to carry the note, the note comes first."""
    body = _MARK.sub("(quoted)", summary).strip()
    opening = [PREFIX, *([NOTE] if note else []), INTRODUCTION, *([DONE_FOR_NEWEST] if done_for_newest else [])]
    return "\n\n".join([" ".join(opening), body, END])


@cache
def frame_tokens() -> int:
    """Return what everything around a summary costs at the most: marks, note and acknowledgement."""
    framed = place([], "", [{"role": "user", "content": ""}], done_for_newest=True)
    return count_messages(framed) + len(framed)


def with_note(head: list[Message]) -> list[Message]:
    """Append the note to the system prompt, once."""
    prompt = head[: leading_systems(head)]
    if not prompt or any(NOTE_PREFIX in text_of(message) for message in prompt):
        return head
    content = prompt[0].get("content")
    noted: object
    noted = [*content, {"type": "text", "text": NOTE}] if isinstance(content, list) else f"{content}\n\n{NOTE}"
    return [{**prompt[0], "content": noted}, *head[1:]]


def _body(block: str) -> str:
    """Return what a summary says, without its marks."""
    return block.partition("\n\n")[2].removesuffix(END).strip()
