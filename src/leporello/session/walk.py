"""How a turn walks: one step after the other, with failures that are told and do not end the conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from leporello.errors import EngineError, StoreError
from leporello.events import Notice
from leporello.session import steps

if TYPE_CHECKING:
    from collections.abc import Generator

    from leporello.events import Event
    from leporello.session.conversation import Conversation

T = TypeVar("T")
Walk: TypeAlias = "Generator[steps.Step, Any, T]"


def trying(talk: Conversation, step: steps.Step, default: Any = None) -> Walk[Any]:
    """Do a step whose failure is reported but does not end the conversation."""
    try:
        return (yield step)
    except (EngineError, StoreError) as error:
        yield from telling(talk, str(error))
        return default


def telling(talk: Conversation, text: str) -> Walk[None]:
    """Tell the user something, once."""
    if text not in talk.told:
        talk.told.add(text)
        yield tell(talk, Notice, text=text)


def tell(talk: Conversation, kind: type[Event], **fields: Any) -> steps.Tell:
    """Return the step that reports what happened."""
    return steps.Tell(event=kind(session_id=talk.session_id, **fields))
