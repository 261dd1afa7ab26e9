"""Adds up the tokens and the cost of a conversation, per turn and in total."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Final

from leporello.caching.prefix import NOT_MOVED
from leporello.events import FOLDED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from leporello.store import JournalRow

REQUEST: Final = "request"
UNDO: Final = "undo"


@dataclass(frozen=True, kw_only=True)
class Spent:
    """Answered requests with their tokens, the calls that the engine made beside them, and US dollars for both.

    Tokens are those of the requests alone, as the provider counted them: system prompt, tools and messages read, and
    the answer written. `engine_calls` are calls of a model for summaries, also in the background, and for engine tools.
    `cost_usd` is None as long as no price is known; `unpriced` calls of either kind are not in it.
    """

    requests: int = 0
    engine_calls: int = 0
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

    def plus_request(self, usage: Mapping[str, Any], cost_usd: float | None) -> Spent:
        """Return this with one more answered request."""
        return replace(
            self._plus_cost(1, cost_usd),
            requests=self.requests + 1,
            prompt_tokens=self.prompt_tokens + _count(usage, "prompt_tokens"),
            cache_read_tokens=self.cache_read_tokens + _count(usage, "cache_read_tokens"),
            cache_write_tokens=self.cache_write_tokens + _count(usage, "cache_write_tokens"),
            completion_tokens=self.completion_tokens + _count(usage, "completion_tokens"),
        )

    def plus_engine_calls(self, calls: int, cost_usd: float | None) -> Spent:
        """Return this with calls that the engine made, and what they cost together."""
        paid = self._plus_cost(calls, cost_usd) if calls or cost_usd else self
        return replace(paid, engine_calls=self.engine_calls + calls)

    def _plus_cost(self, calls: int, cost_usd: float | None) -> Spent:
        if cost_usd is None:
            return replace(self, unpriced=self.unpriced + calls)
        return replace(self, cost_usd=(self.cost_usd or 0.0) + cost_usd)


def apportioned(total: int, weights: Sequence[int]) -> list[int]:
    """Divide a number in proportion to weights; the parts add up to it, and a weight of 0 gets nothing."""
    whole = sum(weights)
    if not whole:
        return [0] * len(weights)
    ends = [total * end // whole for end in accumulate(weights)]
    return [end - start for start, end in pairwise([0, *ends])]


@dataclass(frozen=True)
class Parts:
    """The tokens of the window by what they are: estimates, in proportion, that add up to the tokens of the whole.

    `masked` is the zone of turns whose long tool outputs are one entry each, `tail` what is there word for word.
    """

    system: int = 0
    tools: int = 0
    summaries: int = 0
    masked: int = 0
    tail: int = 0


@dataclass(frozen=True, kw_only=True)
class SessionUsage:
    """Where a conversation stands.

    `tokens` is the size of the next request, of a window of `context_length`; `reported` tells whether it rests on the
    provider's count. `messages` are those of the window. `turn` is what was spent since the newest message of the user,
    in this process; `conversation` since the beginning, as the store's journal has it. `folds_at` is the size at which
    it is folded next: the threshold, or more after a fold that left little room; 0 when nothing is known about it.
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
    folds_at: int = 0


@dataclass(frozen=True, kw_only=True)
class Totals:
    """What a conversation used and cost since its beginning, row by row of its journal."""

    spent: Spent = field(default_factory=Spent)
    compactions: int = 0
    prefix_moves: int = 0

    def plus(self, row: JournalRow) -> Totals:
        """Return this with one more row; a request that failed counts only if the prefix moved."""
        if row.reason == UNDO:
            return self
        if row.reason == REQUEST:
            moved = row.report.get("prefix", NOT_MOVED[0]) not in NOT_MOVED
            answered = self.spent if "error" in row.report else self.spent.plus_request(row.usage, row.cost_usd)
            return replace(self, spent=answered, prefix_moves=self.prefix_moves + moved)
        folded = _is_compaction(row) and row.report.get("status", FOLDED[0]) in FOLDED
        spent = self.spent.plus_engine_calls(_engine_calls(row), row.cost_usd)
        return replace(self, spent=spent, compactions=self.compactions + folded)


def totals(rows: Iterable[JournalRow]) -> Totals:
    """Add up a journal."""
    return reduce(Totals.plus, rows, Totals())


class Accounts:
    """Sums of the journal rows of a conversation: those of this process at once, those of others when it is read."""

    def __init__(self) -> None:
        self.turn_rows: list[JournalRow] = []
        """The rows since the newest message of the user, in this process."""
        self.uncounted: list[JournalRow] = []
        """The rows that are not in the total yet."""
        self.number: int = 0
        """The number of the newest journal row in the total."""
        self._journal = Totals()
        self._conversation = Totals()

    @property
    def turn(self) -> Spent:
        """What was spent since the newest message of the user, in this process."""
        return totals(self.turn_rows).spent

    @property
    def conversation(self) -> Totals:
        """What was spent since the beginning."""
        self._conversation = reduce(Totals.plus, self.uncounted, self._conversation)
        self.uncounted.clear()
        return self._conversation

    def compacted(self, row: JournalRow) -> None:
        """Add a compaction, also a refused one for its cost."""
        self.turn_rows.append(row)
        self._conversation = self.conversation.plus(row)

    def resume(self, rows: Iterable[JournalRow]) -> None:
        """Add up the journal of a resumed conversation."""
        self.catch_up(rows, ())
        self.turn_rows.clear()

    def catch_up(self, rows: Iterable[JournalRow], unwritten_rows: Iterable[JournalRow]) -> None:
        """Set the total to the journal with its new rows, and the rows that are not written yet.

        Rows that the engine wrote for its own model calls count for the turn too.
        """
        for row in rows:
            self.number = row.number
            self._journal = self._journal.plus(row)
            if row.reason not in (REQUEST, UNDO) and not _is_compaction(row):
                self.turn_rows.append(row)
        self._conversation = reduce(Totals.plus, unwritten_rows, self._journal)
        self.uncounted.clear()


def _is_compaction(row: JournalRow) -> bool:
    return "tokens_before" in row.report


def _engine_calls(row: JournalRow) -> int:
    """Return the model calls of a row that is no request: those of a compaction, else one."""
    return _count(row.report, "model_calls") if _is_compaction(row) else 1


def _count(usage: Mapping[str, Any], key: str) -> int:
    value = usage.get(key)
    return value if isinstance(value, int) else 0
