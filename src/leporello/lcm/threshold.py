"""When to fold, and how much room everything has.

A window that grows costs a cached read of all its tokens in every turn; a fold costs a rewrite. With a growth of Δ
tokens per turn, a rewrite that costs as much as K tokens of fresh input, and a cached read at the share r of that
price, the cost per turn is lowest when the window grows by sqrt(2·K·Δ/r) between two folds. The window folds down to
its floor (system prompt, tools, tail, summaries), so it fires at the floor plus that excess, within bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from leporello.prices import price_of

if TYPE_CHECKING:
    from leporello.config.model import Lcm

LEAST_EXCESS, MOST_EXCESS = 30_000, 90_000
MOST_OF_WINDOW = 0.75
SOFT_SHARE = 0.70  # of the threshold: above it the leaves are prepared in the background
NOMINAL_WINDOW = 32_000  # for budgets when nobody knows the window; nothing fires then
CACHED_READ, CACHE_WRITE = 0.10, 1.25  # shares of the price of fresh input, where the price list does not say

LEAF_SHARE_OF_WINDOW, LEAST_LEAF = 0.04, 4_000
LEAF_SHARE_OF_THRESHOLD = 0.25  # at most, so that a small window has several leaves too
ASSUMED_BASE = 4_000  # system prompt and tools, before anything is reported
_GROWTH_MEMORY = 0.2  # how fast the measured growth follows


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What the automatic threshold is computed from, in tokens and shares of the price of fresh input."""

    floor: int = 0
    growth: float = 1_500.0
    summariser_tokens: int = 0
    read_price: float = CACHED_READ
    write_price: float = CACHE_WRITE

    @property
    def rewrite(self) -> float:
        """What one fold costs, in tokens of fresh input: the new prefix written to the cache, and the summaries."""
        return self.floor * self.write_price + self.summariser_tokens

    @property
    def excess(self) -> int:
        """How far the window may grow above its floor."""
        best = math.sqrt(2 * self.rewrite * self.growth / self.read_price)
        return int(min(max(best, LEAST_EXCESS), MOST_EXCESS))


@dataclass(frozen=True, kw_only=True)
class Budgets:
    """How many tokens everything may take."""

    threshold: int
    tail: int
    leaf: int
    summaries: int

    @property
    def soft(self) -> int:
        """Where preparation in the background begins."""
        return int(self.threshold * SOFT_SHARE)


def budgets(settings: Lcm, context_length: int, inputs: Inputs) -> Budgets:
    """Return the budgets for a window; without one (0) they are nominal."""
    window = context_length or NOMINAL_WINDOW
    threshold = threshold_tokens(settings, window, inputs)
    most = max(256, int(threshold * LEAF_SHARE_OF_THRESHOLD))
    leaf = settings.leaf_tokens or min(max(LEAST_LEAF, int(window * LEAF_SHARE_OF_WINDOW)), most)
    return Budgets(
        threshold=threshold,
        tail=int(threshold * settings.tail),
        leaf=leaf,
        summaries=int(threshold * settings.summary_share),
    )


def threshold_tokens(settings: Lcm, window: int, inputs: Inputs) -> int:
    """Return where the window is folded."""
    if settings.threshold != "auto":
        return max(1, int(window * settings.threshold))
    return max(1, min(int(window * MOST_OF_WINDOW), inputs.floor + inputs.excess))


def price_shares(model: str, provider: str) -> tuple[float, float]:
    """Return what a cached read and a cache write cost, as shares of the price of fresh input."""
    price = price_of(model, provider) if model else None
    if price is None or not price.input:
        return CACHED_READ, CACHE_WRITE
    read = price.input if price.cache_read is None else price.cache_read
    write = price.input if price.cache_write_5m is None else price.cache_write_5m
    return max(0.01, read / price.input), write / price.input


class Meter:
    """Measure from reported usage what the automatic threshold needs.

    The floor is what the provider counts in the first request after a fold. Before the first fold it is estimated:
    the smallest request so far, and the shares of tail and summaries.
    """

    def __init__(self) -> None:
        self._base = 0
        self._floor = 0
        self._last = 0
        self._growth = Inputs.growth
        self._just_folded = False
        self._summariser_tokens = 0

    def observe(self, prompt_tokens: int) -> None:
        """Take the size of a request that the provider reported."""
        if self._just_folded:
            self._floor, self._just_folded = prompt_tokens, False
        elif prompt_tokens > self._last > 0:
            self._growth += _GROWTH_MEMORY * (prompt_tokens - self._last - self._growth)
        self._base = min(self._base or prompt_tokens, prompt_tokens)
        self._last = prompt_tokens

    def folded(self, summariser_tokens: int) -> None:
        """Take note of a fold and of what its summariser read."""
        self._just_folded = True
        self._summariser_tokens = summariser_tokens

    def inputs(self, settings: Lcm, prices: tuple[float, float]) -> Inputs:
        """Return what the threshold is computed from."""
        read, write = prices
        known = Inputs(
            floor=self._floor,
            growth=max(1.0, self._growth),
            summariser_tokens=self._summariser_tokens,
            read_price=read,
            write_price=write,
        )
        if self._floor:
            return known
        base, shares = self._base or ASSUMED_BASE, min(0.8, settings.tail + settings.summary_share)
        for _ in range(3):
            threshold = (base + known.excess) / (1 - shares)
            known = replace(known, floor=int(base + shares * threshold))
        return known
