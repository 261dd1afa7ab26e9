"""Undo: the conversation goes on from a fork before the newest message of the user; the old branch is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leporello.messages import copied, is_system
from leporello.session.accounts import UNDO
from leporello.session.resumption import learn_anew
from leporello.store import JournalRow

if TYPE_CHECKING:
    from leporello.messages import Message
    from leporello.session.conversation import Conversation


def undo(conversation: Conversation) -> list[Message]:
    """Remove the newest message of the user and all that follows from the window; returns them as they were said."""
    window, persistence = conversation.window, conversation.persistence
    at = window.newest_user()
    if at is None:
        return []
    if _may_be_folded(conversation, at):
        conversation.notice("the store cannot be used: nothing more is undone until it can")
        return []
    removed = window.entries[at:]
    conversation.change(at, [], UNDO)
    conversation.pending, conversation.recovered = None, False
    persistence.undo(removed[0].sources[0])
    if persistence.undone:
        window.extend(persistence.unstored_turn(window))
    else:
        conversation.reload(persistence.load(), UNDO)
        learn_anew(conversation.meter, conversation.branch)
    persistence.write(window, len(window), JournalRow(reason=UNDO, keep=0, added=()))
    return [copied(one.message) for entry in removed for one in entry.sources]


def _may_be_folded(conversation: Conversation, at: int) -> bool:
    """Tell whether a newer message of the user may be folded, after an undo that the store does not have yet."""
    persistence, entries = conversation.persistence, conversation.window.entries
    written = any(not entry.sources and not is_system(entry.message) for entry in entries)
    unstored = any(one in persistence.unstored for one in entries[at].sources)
    return persistence.undone and written and not unstored
