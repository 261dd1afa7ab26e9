"""What a stored conversation cost, and what folding and caching saved, from its journal.

Beside the real cost stand two others: that of the same requests without the provider's cache, and that of requests with
the whole history unfolded, cached where the real ones were. The second is an estimate: it counts what is stored.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from leporello.prices import cost_at
from leporello.prices.table import price_in
from leporello.session.accounts import totals
from leporello.tokens import window_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from leporello.prices import Price
    from leporello.store import ConversationInfo, JournalRow, TranscriptStore


@dataclass(frozen=True, kw_only=True)
class Savings:
    """Tokens, dollars, and what they would have been; dollars are of the requests whose price is known."""

    requests: int = 0
    unpriced: int = 0
    compactions: int = 0
    prompt_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    completion_tokens: int = 0
    unfolded_tokens: int = 0
    too_long: int = 0
    """Requests that would not have fit unfolded: beside the window that the session had for its model then."""
    cost_usd: float = 0.0
    uncached_usd: float = 0.0
    unfolded_usd: float = 0.0

    def __add__(self, other: Savings) -> Savings:
        return Savings(**{one.name: getattr(self, one.name) + getattr(other, one.name) for one in fields(self)})

    @property
    def caching_saved_usd(self) -> float:
        """What the provider's cache saved."""
        return self.uncached_usd - self.cost_usd

    @property
    def folding_saved_usd(self) -> float:
        """What folding saved beside an unfolded history; less than 0 where it cost more than it saved."""
        return self.unfolded_usd - self.cost_usd

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON."""
        told = {one.name: getattr(self, one.name) for one in fields(self)}
        told |= {"caching_saved_usd": self.caching_saved_usd, "folding_saved_usd": self.folding_saved_usd}
        return {name: round(value, 6) if isinstance(value, float) else value for name, value in told.items()}


def savings_of(store: TranscriptStore, info: ConversationInfo, *, since: float = 0.0, model: str = "") -> Savings:
    """Add up a conversation's journal from a time on; `model` prices rows that do not name theirs."""
    return sum((one for row, one in savings_by_row(store, info, model=model) if row.time >= since), Savings())


def savings_by_row(
    store: TranscriptStore, info: ConversationInfo, *, model: str = ""
) -> Iterator[tuple[JournalRow, Savings]]:
    """Yield the rows of the journal, each with its own tokens and dollars, and what they would have been."""
    before = 0
    for row, history in _unfolded(store, info):
        if row.usage:
            one = _request(row, history, before, model)
            before = one.unfolded_tokens
        else:
            paid = row.cost_usd or 0.0
            one = Savings(compactions=totals([row]).compactions, cost_usd=paid, uncached_usd=paid)
        yield row, one


def _unfolded(store: TranscriptStore, info: ConversationInfo) -> Iterator[tuple[JournalRow, int]]:
    """Yield the rows of the journal, each with the tokens of all that was stored up to it."""
    stored = list(store.messages(info.key, owner=info.owner, system=True))
    tokens = {row.id: row.tokens for row in stored}
    order = sorted(tokens, key=_number)
    counted, at = 0, 0
    for row in store.journal(info.key, owner=info.owner):
        newest = max((_number(item["m"]) for item in row.added if "m" in item), default=0)
        while at < len(order) and _number(order[at]) <= newest:
            counted += tokens[order[at]]
            at += 1
        yield row, counted


def _number(id_: str) -> int:
    return int(id_[1:])


def _request(row: JournalRow, history: int, before: int, model: str) -> Savings:
    usage = row.usage
    prompt, output = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
    read, written = _count(usage, "cache_read_tokens"), _count(usage, "cache_write_tokens")
    whole = max(prompt, history + _count(row.report, "tools"))
    named, provider = str(row.report.get("model") or model), str(row.report.get("provider") or "")
    price = price_in({**row.report, "model": named})
    window = _count(row.report, "context_length") or (window_of(named, provider) if named else None)
    counted = Savings(
        requests=1,
        prompt_tokens=prompt,
        cache_read_tokens=read,
        cache_write_tokens=written,
        completion_tokens=output,
        unfolded_tokens=whole,
        too_long=int(bool(window) and whole > (window or 0)),
    )
    if row.cost_usd is None or price is None:
        return counted + Savings(unpriced=1)
    plain = {"prompt_tokens": prompt, "completion_tokens": output}
    return counted + Savings(
        cost_usd=row.cost_usd,
        uncached_usd=cost_at(plain, price),
        unfolded_usd=_unfolded_cost(whole, before, output, price, read=read, written=written),
    )


def _unfolded_cost(whole: int, before: int, output: int, price: Price, *, read: int, written: int) -> float:
    """Return what the request costs unfolded: cached where the real one was, and cold where it was cold."""
    if not read and not written:
        return cost_at({"prompt_tokens": whole, "completion_tokens": output}, price)
    known = min(before, whole) if read else 0
    usage = {"cache_read_tokens": known, "cache_write_tokens": whole - known, "completion_tokens": output}
    return cost_at({**usage, "prompt_tokens": whole}, price)


def total_of(parts: Iterable[Savings]) -> Savings:
    """Add up conversations."""
    return sum(parts, Savings())


def _count(counts: Mapping[str, Any], key: str) -> int:
    value = counts.get(key)
    return int(value) if isinstance(value, (int, float)) else 0
