"""Session hygiene for the gateway's agents: a conversation at 85 % of the context length is folded before a turn.

It is for conversations that grow between two turns, as in a chat room overnight, and works with any engine; 85 % lies
above the engines' own thresholds. A conversation that cannot be brought below it is tried again when it has grown;
its size is kept in the store, for a restart.
"""

from __future__ import annotations

from itertools import takewhile
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
    spoken = len(conversation.window) - conversation.window.systems()
    if not conversation.automatic or spoken < FEWEST_MESSAGES:
        return None
    tokens = _measured(conversation)
    if not above_safety_limit(conversation, tokens) or _is_stuck(conversation, tokens):
        return None
    conversation.persistence.flush(conversation.window)
    conversation.repair()
    report = fold(conversation, tokens, trigger=REASON, force=True)
    left = conversation.size().tokens
    if not report.folded or above_safety_limit(conversation, left):
        _remember(conversation, left if report.folded else max(tokens, left))
    return report


def _measured(conversation: Conversation) -> int:
    """Return the tokens of a conversation: the provider's count of the last request, and an estimate of newer messages.

    Without such a count all of it is estimated.
    """
    size, branch = conversation.size(), conversation.branch
    rows = branch.store.journal(branch.conversation, owner=branch.owner, last=1) if size.reported else []
    reported = rows[-1].usage.get("prompt_tokens") if rows and rows[-1].reason == REQUEST else None
    return reported + _said_since(conversation) if reported else size.tokens


def _said_since(conversation: Conversation) -> int:
    """Estimate the tokens of the messages after the newest answer."""
    later = takewhile(lambda entry: entry.role != "assistant", reversed(conversation.window.entries))
    tokens = sum(entry.tokens for entry in later)
    return round(tokens * conversation.meter.calibration.factor(conversation.meter.model))


def _is_stuck(conversation: Conversation, tokens: int) -> bool:
    """Tell whether a conversation that could not be brought below the limit has grown too little since."""
    branch, window = conversation.branch, conversation.route.context_length
    info = branch.store.info(branch.conversation, owner=branch.owner)
    noted: Any = info.meta.get(_MEMORY) if info else None
    if not isinstance(noted, dict) or noted.get("window") != window:
        return False
    return bool(tokens < noted.get("tokens", 0) + GROWTH * window)


def _remember(conversation: Conversation, tokens: int) -> None:
    branch, window = conversation.branch, conversation.route.context_length
    meta = {_MEMORY: {"tokens": tokens, "window": window}}
    branch.store.ensure(branch.conversation, owner=branch.owner, meta=meta)
