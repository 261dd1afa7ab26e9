"""What a conversation used and cost: per turn, and altogether."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from leporello.store import Request


@dataclass(frozen=True, kw_only=True)
class Spent:
    """Tokens and US dollars; `unpriced` requests, of models whose price is not known, are not in the cost.

    `cost_usd` is None as long as no price is known. Compactions count in the cost alone.
    """

    requests: int = 0
    prompt_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float | None = None
    unpriced: int = 0

    @property
    def cache_share(self) -> float:
        """The share of what the model read that came from the provider's cache, 0 to 1."""
        return self.cache_read_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    def plus(self, usage: Mapping[str, Any], cost_usd: float | None, *, requests: int = 1) -> Spent:
        """Return this with one more call."""
        return Spent(
            requests=self.requests + requests,
            prompt_tokens=self.prompt_tokens + _count(usage, "prompt_tokens"),
            cache_read_tokens=self.cache_read_tokens + _count(usage, "cache_read_tokens"),
            cache_write_tokens=self.cache_write_tokens + _count(usage, "cache_write_tokens"),
            completion_tokens=self.completion_tokens + _count(usage, "completion_tokens"),
            cost_usd=self.cost_usd if cost_usd is None else (self.cost_usd or 0.0) + cost_usd,
            unpriced=self.unpriced + (requests if cost_usd is None else 0),
        )


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The tokens of the window by what they are, estimated and corrected by the provider's counts."""

    system: int = 0
    tools: int = 0
    summaries: int = 0
    tail: int = 0


@dataclass(frozen=True, kw_only=True)
class SessionUsage:
    """Where a conversation stands.

    `tokens` is the size of the next request, of a window of `context_length`; `reported` tells whether it rests on the
    provider's count. `turn` is what was spent since the newest message of the user, `conversation` since the beginning.
    """

    session_id: str
    engine: str
    model: str
    context_length: int
    threshold_tokens: int
    tokens: int
    reported: bool
    percent: float
    parts: Parts
    messages: int
    compactions: int
    turn: Spent
    conversation: Spent
    prefix_moves: int
    caching: str


class Accounts:
    """Adds up what is spent."""

    def __init__(self) -> None:
        self.turn = Spent()
        self.conversation = Spent()
        self.compactions = 0
        self.prefix_moves = 0

    def answered(self, usage: Mapping[str, Any], cost_usd: float | None) -> None:
        """Add a model call."""
        self.turn = self.turn.plus(usage, cost_usd)
        self.conversation = self.conversation.plus(usage, cost_usd)

    def compacted(self, cost_usd: float | None) -> None:
        """Add a compaction."""
        self.compactions += 1
        self.turn = self.turn.plus({}, cost_usd, requests=0)
        self.conversation = self.conversation.plus({}, cost_usd, requests=0)

    def next_turn(self) -> None:
        """Begin another turn."""
        self.turn = Spent()

    def resume(self, rows: Iterable[Request]) -> None:
        """Add up what the journal knows."""
        for row in rows:
            if row.usage or row.reason == REQUEST:
                self.conversation = self.conversation.plus(row.usage, row.cost_usd)
            else:
                self.conversation = self.conversation.plus({}, row.cost_usd or None, requests=0)
                self.compactions += row.reason != UNDO


REQUEST = "request"
UNDO = "undo"


def _count(usage: Mapping[str, Any], key: str) -> int:
    value = usage.get(key)
    return value if isinstance(value, int) else 0
