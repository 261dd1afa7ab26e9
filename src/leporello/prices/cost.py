"""What a model call costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from leporello.prices.table import Price, price_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_MILLION = 1_000_000


def cost(
    usage: Mapping[str, Any],
    model: str,
    provider: str = "",
    *,
    cache_ttl: Literal["5m", "1h"] = "5m",
    overrides: Mapping[str, Price | Mapping[str, Any]] | None = None,
) -> float | None:
    """Return the US dollars of one model call, or None when the model's price is not known.

    `usage` counts `input_tokens` (from no cache), `cache_read_tokens`, `cache_write_tokens` and `output_tokens`. Where
    it only has `prompt_tokens` (everything read) and `completion_tokens`, the rest follows from them. Cache writes are
    taken as written for `cache_ttl`; tokens in `cache_write_1h_tokens` are known to be for one hour.
    """
    price = price_of(model, provider, overrides=overrides)
    return None if price is None else cost_at(usage, price, cache_ttl=cache_ttl)


def cost_at(usage: Mapping[str, Any], price: Price, *, cache_ttl: Literal["5m", "1h"] = "5m") -> float:
    """Return the US dollars of one model call at a known price."""
    read, written = _count(usage, "cache_read_tokens"), _count(usage, "cache_write_tokens")
    fresh = _count(usage, "input_tokens") or max(0, _count(usage, "prompt_tokens") - read - written)
    output = _count(usage, "output_tokens") or _count(usage, "completion_tokens")
    hour = written if cache_ttl == "1h" else min(written, _count(usage, "cache_write_1h_tokens"))
    price = price.at(fresh + read + written)
    dollars = (
        fresh * price.input
        + read * _or_input(price.cache_read, price)
        + (written - hour) * _or_input(price.cache_write_5m, price)
        + hour * _or_input(price.cache_write_1h, price)
        + output * price.output
    )
    return dollars / _MILLION


def _or_input(price: float | None, fallback: Price) -> float:
    return fallback.input if price is None else price


def _count(usage: Mapping[str, Any], key: str) -> int:
    value = usage.get(key)
    return max(0, int(value)) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0
