"""Recognises a client that compacts its history itself: it asks the model for a summary, and continues from that.

The summary is the newest answer of the conversation. The next history of the client begins with user messages that
repeat the text of the summary, perhaps behind earlier ones; the last answer before the summary may follow. It shares
hardly any message with the stored ones, but is no new conversation: it replaces the branch that it summarises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leporello.messages import role_of, text_of
from leporello.store.reconcile.same_conversation import DISTINCT

if TYPE_CHECKING:
    from leporello.gateway.history import History
    from leporello.store import TranscriptStore

_SHARE: Final = 3  # a client may leave out what the model only thought aloud, two thirds of its words at most


def replaced_branch(
    store: TranscriptStore, conversation: str, history: History, count: int, *, owner: str
) -> int | None:
    """Return the branch that a history summarises, of which `count` messages are known; None when it does not."""
    head = store.head(conversation, owner=owner)
    newest = store.newest(conversation, owner=owner, branch=head)
    row = store.get([newest], owner=owner).get(newest) if newest else None
    if row is None or row.role != "assistant":
        return None
    new = history.before(history.answers[0]) if history.answers else history.after(count)
    said = [text_of(message) for message in new if role_of(message) == "user"]
    return head if _repeats("\n".join(said), text_of(row.message)) else None


def _repeats(text: str, summary: str) -> bool:
    """Tell whether a text has too many lines of a summary to be a coincidence."""
    lines = [line.strip() for line in summary.splitlines()]
    again = sum(len(line) for line in lines if line in text)
    return again >= max(DISTINCT, sum(map(len, lines)) / _SHARE)
