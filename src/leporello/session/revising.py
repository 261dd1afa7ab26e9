"""The part of a turn that changes what stands already, for clients that send their whole history each time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leporello.messages import copied
from leporello.session.accounts import UNDO
from leporello.session.keeping import storing, withdrawing, writing
from leporello.session.lines import Said, line_of
from leporello.store import Request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leporello.messages import Message
    from leporello.session.conversation import Conversation
    from leporello.session.walk import Walk


def prefacing(talk: Conversation, systems: Sequence[Message]) -> Walk[None]:
    """Let the conversation begin with other system messages."""
    said = [Said(message=copied(message), prompt=True) for message in systems]
    yield from storing(talk, said)
    rest = talk.window.lines[talk.window.systems() :]
    talk.window.replace(0, [*(line_of(one.message, said=[one]) for one in said), *rest])
    talk.cut(0, "system prompt changed")


def retracting(talk: Conversation) -> Walk[None]:
    """Take back the newest answer, not what it answers; the store keeps it on the branch that is left."""
    yield from storing(talk)
    at = len(talk.window) - 1
    said = talk.window.lines[at].said
    talk.window.replace(at, [])
    talk.cut(at, UNDO)
    talk.withdrawn.append((said[0], said[-1]))
    yield from withdrawing(talk)
    yield from writing(talk, at, Request(reason=UNDO, keep=0, added=()))
