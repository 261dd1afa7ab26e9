"""Taking back what was said: the conversation goes on on a fork before it, and the branch that is left keeps it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leporello.messages import copied, is_system
from leporello.session.accounts import UNDO
from leporello.store import Request

if TYPE_CHECKING:
    from leporello.messages import Message
    from leporello.session.conversation import Conversation


def undo(conversation: Conversation) -> list[Message]:
    """Take back the newest message of the user and everything after it; returns what was taken back."""
    window, persistence = conversation.window, conversation.persistence
    at = window.newest_user()
    if at is None:
        return []
    if _may_be_folded(conversation, at):
        conversation.notice("the store is away: nothing more is taken back until it is there again")
        return []
    removed = window.entries[at:]
    said = [one for entry in removed for one in entry.sources]
    newest = persistence.newest_said()
    conversation.change(at, [], UNDO)
    conversation.sent, conversation.recovered = None, False
    persistence.withdraw(said[0], newest or said[-1])
    if persistence.withdrawn:
        window.extend(persistence.unstored_turn(window))
    else:
        conversation.follow(persistence.load(), UNDO)
    persistence.write(window, len(window), Request(reason=UNDO, keep=0, added=()))
    return [copied(entry.message) for entry in removed]


def retract_answer(conversation: Conversation) -> None:
    """Take back the newest answer, not what it answers."""
    window, persistence = conversation.window, conversation.persistence
    persistence.flush(window)
    at = len(window) - 1
    said = window.entries[at].sources
    conversation.change(at, [], UNDO)
    persistence.withdraw(said[0], said[-1])
    persistence.write(window, at, Request(reason=UNDO, keep=0, added=()))


def _may_be_folded(conversation: Conversation, at: int) -> bool:
    """Tell whether, after an undo without the store, a newer message of the user than this one may be folded."""
    persistence, entries = conversation.persistence, conversation.window.entries
    written = any(not entry.sources and not is_system(entry.message) for entry in entries)
    unstored = any(one in persistence.waiting for one in entries[at].sources)
    return bool(persistence.withdrawn) and written and not unstored
