"""Session hygiene for the gateway's agents: a conversation at 85 % of the context length is folded before a turn.

It is for conversations that grow between two turns, as in a chat room overnight, and works with any engine; 85 % lies
above the engines' own thresholds. A conversation that cannot be brought below it is tried again when it has grown;
its size is kept in the store, for a restart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from leporello.session.accounts import REQUEST
from leporello.session.folding import above_safety_limit, fold

if TYPE_CHECKING:
    from leporello.engine import CompactionReport
    from leporello.session.conversation import Conversation
    from leporello.session.session import Session

FEWEST_MESSAGES: Final = 4
GROWTH: Final = 0.05
"""The share of the context length by which a conversation must grow before it is tried again."""

REASON: Final = "session hygiene: the conversation has reached 85 % of the window"
_MEMORY: Final = "hygiene"


def compact_if_full(session: Session) -> CompactionReport | None:
    """Fold a conversation that has reached 85 % of the context length; None when it is smaller, or tried already.

    Call it before the user's message is added.
    """
    conversation = session._conversation  # noqa: SLF001 - the same package
    window = conversation.route.context_length
    spoken = len(conversation.window) - conversation.window.systems()
    if not conversation.automatic or spoken < FEWEST_MESSAGES:
        return None
    tokens = measured(session)
    if not above_safety_limit(conversation, tokens) or _is_stuck(session, tokens, window):
        return None
    conversation.persistence.flush(conversation.window)
    conversation.repair()
    report = fold(conversation, tokens, trigger=REASON, force=True)
    left = conversation.size().tokens
    if not report.folded or above_safety_limit(conversation, left):
        _remember(session, max(tokens, left) if not report.folded else left, window)
    return report


def measured(session: Session) -> int:
    """Return the tokens of a conversation: the provider's count of the last request, and an estimate of newer messages.

    Without such a count all of it is estimated.
    """
    conversation = session._conversation  # noqa: SLF001 - the same package
    size = conversation.size()
    reported = _last_report(session) if size.reported else None
    if reported is None:
        return size.tokens
    return reported + _said_since(conversation)


def _last_report(session: Session) -> int | None:
    rows = session.store.journal(session.id, owner=_owner(session), last=1)
    if not rows or rows[-1].reason != REQUEST:
        return None
    return rows[-1].usage.get("prompt_tokens") or None


def _said_since(conversation: Conversation) -> int:
    """Estimate the tokens of the messages after the newest answer."""
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
    return session._conversation.branch.owner  # noqa: SLF001 - the same package
