"""When to fold, and how much room everything has.

A window that grows costs a cached read of all its tokens in every turn; a fold costs a rewrite. With a growth of Δ
tokens per turn, a rewrite that costs as much as K tokens of fresh input, and a price of r for every token that is held
and read from the cache, a turn costs least when the window grows by sqrt(2·K·Δ/r) between two folds. The window folds
down to its floor (system prompt, tools, tail, masked zone, summaries, names), so it fires at the floor plus that
excess, within bounds.

Two things are easily counted wrong. Tail, zone, summaries, names and the leaf that is not full yet are shares of the
threshold, so every token of excess brings more of them along: that makes r larger. And whatever is in proportion to the
excess (what the summariser reads and writes, the floor that the excess brings along) costs the same per turn however
rarely the window is folded: it is no part of K. Nor are system prompt and tools, which stay in the cache.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leporello.prices import price_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from leporello.config.model import Lcm

LEAST_IN_VIEW = 30_000  # excess and masked zone: with less a turn is cheaper still, but there is little to work with
MOST_EXCESS = 90_000
MOST_OF_WINDOW = 0.75
SOFT_SHARE = 0.70  # of the threshold: above it the leaves are prepared in the background
NOMINAL_WINDOW = 32_000  # for budgets when the window is unknown; nothing fires then
CACHED_READ, CACHE_WRITE = 0.10, 1.25  # shares of the price of fresh input, where the price list does not say

LEAF_SHARE_OF_WINDOW, LEAST_LEAF = 0.04, 4_000
LEAF_SHARE_OF_THRESHOLD = 0.25  # at most, so that a small window has several leaves too
OPEN_LEAF_SHARE = 0.10  # of the threshold, on average, for the leaf that is not full yet when the window is folded
NAMES_SHARE = 0.03  # of the threshold, on average, for the list of names behind the blocks
ASSUMED_BASE = 4_000  # system prompt and tools, before anything is reported
_MEMORY = 0.2  # how fast what is measured follows
_MOST_SHARE = 0.8


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What the automatic threshold is computed from, in tokens and shares of the price of fresh input.

    `base` is what no fold rewrites (system prompt, tools); `share` is what the rest of the floor takes of the
    threshold, `zone` of it for the masked zone; `beyond` is what the floor was measured to have beyond all that, or
    less.
    """

    base: int = ASSUMED_BASE
    share: float = 0.45
    zone: float = 0.0
    beyond: int = 0
    growth: float = 1_500.0
    read_price: float = CACHED_READ
    write_price: float = CACHE_WRITE

    @property
    def rewrite(self) -> float:
        """K: what one fold costs, in tokens of fresh input, beside what is in proportion to the excess."""
        tokens = self.beyond + self.share / (1 - self.share) * self._fixed
        return max(0.0, tokens) * max(0.0, self.write_price - self.read_price)

    @property
    def held_price(self) -> float:
        """r: the price of two tokens of excess, of which one is held on average, with the floor they bring along."""
        return self.read_price * (1 + self.share) / (1 - self.share)

    @property
    def excess(self) -> int:
        """How far the window may grow above its floor."""
        best = math.sqrt(2 * self.rewrite * self.growth / self.held_price)
        return int(min(max(best, self._least_excess), MOST_EXCESS))

    @property
    def _least_excess(self) -> float:
        """So little that `LEAST_IN_VIEW` are in view with the masked zone, but half of that in any case.

        The zone is a share of the threshold, which depends on the excess.
        """
        ratio = self.zone / (1 - self.share)
        return max(LEAST_IN_VIEW / 2, (LEAST_IN_VIEW - ratio * self._fixed) / (1 + ratio))

    @property
    def threshold(self) -> int:
        """Where the window is folded: the floor plus the excess."""
        return int((self._fixed + self.excess) / (1 - self.share))

    @property
    def floor(self) -> int:
        """What a fold leaves."""
        return self.threshold - self.excess

    @property
    def _fixed(self) -> int:
        return max(0, self.base + self.beyond)


@dataclass(frozen=True, kw_only=True)
class LCMBudgets:
    """How many tokens everything may take."""

    threshold: int
    tail: int
    leaf: int
    summaries: int
    zone: int

    @property
    def soft(self) -> int:
        """Where preparation in the background begins."""
        return int(self.threshold * SOFT_SHARE)


def budgets(settings: Lcm, context_length: int, inputs: Inputs) -> LCMBudgets:
    """Return the budgets for a window; without one (0) they are nominal."""
    window = context_length or NOMINAL_WINDOW
    if settings.threshold == "auto":
        threshold = max(1, min(int(window * MOST_OF_WINDOW), inputs.threshold))
    else:
        threshold = max(1, int(window * settings.threshold))
    most = max(256, int(threshold * LEAF_SHARE_OF_THRESHOLD))
    leaf = settings.leaf_tokens or min(max(LEAST_LEAF, int(window * LEAF_SHARE_OF_WINDOW)), most)
    return LCMBudgets(
        threshold=threshold,
        tail=int(threshold * settings.tail),
        leaf=leaf,
        summaries=int(threshold * settings.summary_share),
        zone=int(threshold * settings.masked_zone),
    )


def price_shares(model: str, provider: str, own: Mapping[str, Mapping[str, Any]] | None = None) -> tuple[float, float]:
    """Return what a cached read and a cache write cost, as shares of the price of fresh input; own prices first."""
    price = price_of(model, provider, overrides=own) if model else None
    if price is None or not price.input:
        return CACHED_READ, CACHE_WRITE
    read = price.input if price.cache_read is None else price.cache_read
    write = price.input if price.cache_write_5m is None else price.cache_write_5m
    return max(0.01, read / price.input), write / price.input


def floor_share(settings: Lcm) -> float:
    """Return what tail, masked zone, summaries, names and the open leaf take of the threshold."""
    zones = settings.tail + settings.masked_zone + settings.summary_share
    return min(_MOST_SHARE, zones + NAMES_SHARE + OPEN_LEAF_SHARE)


class UsageMeter:
    """Measure from reported usage what the automatic threshold needs.

    The base is the smallest request so far; the first request after a fold tells what the floor has beyond its shares.
    """

    def __init__(self, share: float, zone: float = 0.0) -> None:
        self._share, self._zone = share, zone
        self._base = 0
        self._beyond: float | None = None
        self._last = 0
        self._growth = Inputs.growth
        self._folded_for = 0

    def observe(self, prompt_tokens: int) -> None:
        """Take the size of a request that the provider reported."""
        self._base = min(self._base or prompt_tokens, prompt_tokens)
        if self._folded_for:
            self._measure(prompt_tokens - self._base - self._share * self._folded_for)
            self._folded_for = 0
        elif prompt_tokens > self._last > 0:
            self._growth += _MEMORY * (prompt_tokens - self._last - self._growth)
        self._last = prompt_tokens

    def folded(self, threshold: int) -> None:
        """Take note of a fold, and of the threshold it was made for."""
        self._folded_for = threshold

    def inputs(self, prices: tuple[float, float]) -> Inputs:
        """Return what the threshold is computed from."""
        read, write = prices
        return Inputs(
            base=self._base or ASSUMED_BASE,
            share=self._share,
            zone=self._zone,
            beyond=int(self._beyond or 0),
            growth=max(1.0, self._growth),
            read_price=read,
            write_price=write,
        )

    def _measure(self, beyond: float) -> None:
        """Follow a measurement; one that is far off, after a fold of something unusual, counts as a bound."""
        bounded = min(max(beyond, -self._base / 2), self._folded_for / 4)
        self._beyond = bounded if self._beyond is None else self._beyond + _MEMORY * (bounded - self._beyond)
