"""The net under long-lived conversations: before a turn, one that has grown to 85 % of the window is folded first.

It catches what grew between two turns, overnight in a chat room, and lies above the engines' own thresholds on purpose.
It works with any engine, through the same turn as everything else, and what it did is in the journal. A conversation
that it cannot bring below the mark is left alone until it has grown: the store remembers that, across restarts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from leporello.session.accounts import FOLDED, REQUEST
from leporello.session.folding import fold, in_net

if TYPE_CHECKING:
    from leporello.engine import CompactionReport
    from leporello.session.conversation import Conversation
    from leporello.session.session import Session

FEWEST_MESSAGES: Final = 4
GROWTH: Final = 0.05
"""Of the window: what a conversation that could not be shrunk grows by before it is tried again."""

REASON: Final = "session hygiene: the conversation has reached 85 % of the window"
_MEMORY: Final = "hygiene"


def tidy(session: Session) -> CompactionReport | None:
    """Fold a conversation that has reached 85 % of the window; None when there was nothing to do.

    Call it before the user's message is added.
    """
    conversation = session._conversation  # noqa: SLF001 - the same room
    window = conversation.route.context_length
    spoken = len(conversation.window) - conversation.window.systems()
    if not conversation.automatic or spoken < FEWEST_MESSAGES:
        return None
    tokens = measured(session)
    if not in_net(conversation, tokens) or _is_stuck(session, tokens, window):
        return None
    conversation.persistence.flush(conversation.window)
    conversation.mend()
    report = fold(conversation, tokens, trigger=REASON, force=True)
    left = conversation.size().tokens
    if report.status not in FOLDED or in_net(conversation, left):
        _remember(session, max(tokens, left) if report.status not in FOLDED else left, window)
    return report


def measured(session: Session) -> int:
    """Return how long a conversation is: what the provider counted for the last turn, and what was said since.

    Without a count that still holds, an estimate from the characters.
    """
    conversation = session._conversation  # noqa: SLF001 - the same room
    size = conversation.size()
    reported = _last_report(session) if size.reported else None
    if reported is None:
        return size.tokens
    return reported + _said_since(conversation)


def _last_report(session: Session) -> int | None:
    rows = session.store.requests(session.id, owner=_owner(session), last=1)
    if not rows or rows[-1].reason != REQUEST:
        return None
    return rows[-1].usage.get("prompt_tokens") or None


def _said_since(conversation: Conversation) -> int:
    """Weigh what came after the newest answer."""
    tokens = 0
    for entry in reversed(conversation.window.entries):
        if entry.role == "assistant":
            break
        tokens += entry.tokens
    return round(tokens * conversation.meter.calibration.factor(conversation.meter.model))


def _is_stuck(session: Session, tokens: int, window: int) -> bool:
    info = session.store.info(session.id, owner=_owner(session))
    noted: Any = info.meta.get(_MEMORY) if info else None
    if not isinstance(noted, dict) or noted.get("window") != window:
        return False
    return bool(tokens < noted.get("tokens", 0) + GROWTH * window)


def _remember(session: Session, tokens: int, window: int) -> None:
    session.store.ensure(session.id, owner=_owner(session), meta={_MEMORY: {"tokens": tokens, "window": window}})


def _owner(session: Session) -> str:
    return session._conversation.branch.owner  # noqa: SLF001 - the same room
