"""What a run of requests costs: tokens by how they are charged, dollars, and the arithmetic between them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from leporello.prices import cost_at, price_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leporello.caching import CacheUse
    from leporello.prices import Price

_MILLION = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Charge:
    """Tokens of one kind at one price; `dollars` is their product."""

    kind: str
    tokens: int
    per_million: float

    @property
    def dollars(self) -> float:
        """What they cost."""
        return self.tokens * self.per_million / _MILLION

    def __str__(self) -> str:
        return f"{self.kind}: {self.tokens:,} × ${self.per_million:g} / 1M = ${self.dollars:.4f}"


@dataclass(kw_only=True)
class Costs:
    """Adds up requests to one model; dollars are None when its price is not known."""

    model: str
    provider: str = ""
    own_prices: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    requests: int = 0
    compactions_usd: float = 0.0
    tokens: Counter[tuple[str, float]] = field(default_factory=Counter)

    def add(self, use: CacheUse, output: int) -> None:
        """Add one request: what it read and wrote in the cache, and how long the answer was."""
        self.requests += 1
        self.input += use.input
        self.cache_read += use.read
        self.cache_write += use.written
        self.output += output
        price = self.price
        if price is None:
            return
        price = price.at(use.prompt)
        for kind, tokens, rate in (
            ("input", use.input, price.input),
            ("cache read", use.read, _or(price.cache_read, price)),
            ("cache write, 5 minutes", use.write_5m, _or(price.cache_write_5m, price)),
            ("cache write, 1 hour", use.write_1h, _or(price.cache_write_1h, price)),
            ("output", output, price.output),
        ):
            if tokens:
                self.tokens[kind, rate] += tokens

    @property
    def price(self) -> Price | None:
        """The price list of the model."""
        return price_of(self.model, self.provider, overrides=self.own_prices)

    @property
    def charges(self) -> list[Charge]:
        """The arithmetic, line by line."""
        return [Charge(kind=kind, tokens=n, per_million=rate) for (kind, rate), n in sorted(self.tokens.items())]

    @property
    def prompt(self) -> int:
        """All tokens that the model read."""
        return self.input + self.cache_read + self.cache_write

    @property
    def usd(self) -> float | None:
        """The dollars of all requests and compactions; None when the price is not known."""
        if self.price is None:
            return None
        return sum(charge.dollars for charge in self.charges) + self.compactions_usd


def request_cost(use: CacheUse, output: int, price: Price | None) -> float | None:
    """Return the dollars of one request; None when the price is not known."""
    if price is None:
        return None
    usage = {
        "input_tokens": use.input,
        "cache_read_tokens": use.read,
        "cache_write_tokens": use.written,
        "cache_write_1h_tokens": use.write_1h,
        "output_tokens": output,
    }
    return cost_at(usage, price)


def _or(rate: float | None, price: Price) -> float:
    return price.input if rate is None else rate
