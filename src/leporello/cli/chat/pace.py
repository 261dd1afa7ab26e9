"""How long a compaction takes that asks a model: what the journals of this conversation and of the newest ones tell."""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from leporello.store import FOLD

if TYPE_CHECKING:
    from leporello.store import JournalRow, TranscriptStore

_CONVERSATIONS: Final = 5
_FOLDS: Final = 3


def known_pace(store: TranscriptStore, session_id: str) -> float:
    """Return the seconds per token of the newest compaction that asked a model; 0.0 when none is known."""
    newest = (info.key for info in islice(store.conversations(owner=""), _CONVERSATIONS))
    for key in chain([session_id], newest):
        for row in reversed(store.journal(key, reason=FOLD, last=_FOLDS)):
            if found := _pace(row):
                return found
    return 0.0


def _pace(row: JournalRow) -> float:
    seconds, tokens, calls = (row.report.get(name) for name in ("seconds", "tokens_before", "model_calls"))
    known = isinstance(seconds, (int, float)) and isinstance(tokens, int)
    return seconds / tokens if known and seconds and tokens and calls else 0.0
