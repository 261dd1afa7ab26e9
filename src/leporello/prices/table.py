"""The price list: how a model's name finds its price.

Prices come from the package genai-prices; `prices.json` has what it lacks or has otherwise, each row with its date and
source. A price belongs to the provider that charges it. OpenRouter passes the list prices of closed models on; where
no price is listed, it is not guessed. Subscriptions and servers of one's own have no price per token. Overrides
come first and may name any provider.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from functools import cache, lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leporello.model_names import plain_name

if TYPE_CHECKING:
    from decimal import Decimal

    from genai_prices.types import ModelPrice, TieredPrices

_ROUTES = {
    "gemini": "google",
    "moonshot": "moonshotai",
    "z-ai": "zai",
    "xai": "x-ai",
    "mistralai": "mistral",
    "qwen": "alibaba",
}
_VENDORS = ("anthropic", "openai", "google", "x-ai", "deepseek", "mistral", "moonshotai", "zai", "minimax", "alibaba")
_PASSED_ON = {"openrouter": ("anthropic", "openai", "google", "x-ai")}
_SUBSCRIPTIONS = frozenset({"github-copilot", "cursor"})
_SAME_PRICE = re.compile(r"(?:[-@](?:latest|preview|\d{4}-\d{2}-\d{2}|\d{2}-\d{4}|\d{4,8}))*")
_DATED_END = re.compile(rf"{_SAME_PRICE.pattern}$")
_KINDS = {
    "input": "input_mtok",
    "output": "output_mtok",
    "cache_read": "cache_read_mtok",
    "cache_write_5m": "cache_write_mtok",
    "cache_write_1h": "cache_write_1h_mtok",
}


@dataclass(frozen=True, kw_only=True)
class Price:
    """US dollars per million tokens; a kind of token without a price of its own costs as much as input.

    Above `long_above` tokens of prompt the whole request is charged by `long`.
    """

    input: float
    output: float
    cache_read: float | None = None
    cache_write_5m: float | None = None
    cache_write_1h: float | None = None
    long_above: int | None = None
    long: Price | None = None
    as_of: str = ""
    source: str = ""

    def at(self, prompt_tokens: int) -> Price:
        """Return the price that holds for a prompt of this length."""
        if self.long is None or self.long_above is None or prompt_tokens <= self.long_above:
            return self
        return self.long.at(prompt_tokens)


def price_of(
    model: str, provider: str = "", *, overrides: Mapping[str, Price | Mapping[str, Any]] | None = None
) -> Price | None:
    """Return what a model costs at a provider, or None when it is not on the list.

    `overrides` maps "provider/model" or "model" to a price (or to its fields as a mapping) and comes first.
    """
    return (own_price(model, provider, overrides) if overrides else None) or _listed(model, provider)


def own_price(model: str, provider: str, overrides: Mapping[str, Price | Mapping[str, Any]]) -> Price | None:
    """Return what a model costs by the user's own prices, or None when they do not have it."""
    own = {plain_name(key): price for key, price in overrides.items()}
    name, route = _named(model, provider)
    for key in (f"{provider}/{model}", f"{route}/{name}", model, name):
        if (found := own.get(plain_name(key))) is not None:
            return found if isinstance(found, Price) else _price(found)
    return None


def report_of(price: Price) -> dict[str, Any]:
    """Return a user's own price as a journal row notes it; `price_in` reads it."""
    return {kind: rate for kind, rate in asdict(price).items() if rate not in (None, "")}


def price_in(report: Mapping[str, Any]) -> Price | None:
    """Return the user's own price that a journal row notes, else the listed one of its model; None: not known.

    A row may come from a file of somebody else: what is no price in it is passed over.
    """
    noted = report.get("price")
    rates = {kind: noted[kind] for kind in _KINDS if _is_rate(noted.get(kind))} if isinstance(noted, Mapping) else {}
    if {"input", "output"} <= rates.keys():
        return Price(**rates)
    model = str(report.get("model") or "")
    return price_of(model, str(report.get("provider") or "")) if model else None


def _is_rate(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf


@lru_cache(maxsize=256)
def _listed(model: str, provider: str) -> Price | None:
    """Look a model up by its name, or its name without a date, wherever its price is listed."""
    name, route = _named(model, provider)
    places = _places(model, _ROUTES.get(route, route))
    return _own_row(name, places) or _packaged(model.strip().lower(), name, places)


def _places(model: str, route: str) -> tuple[str, ...]:
    """Return whose prices hold on a route; without a route, those of the companies that make models."""
    if not route:
        return _VENDORS
    *prefixes, _ = model.strip().lower().split("/")
    maker = _ROUTES.get(prefixes[-1], prefixes[-1]) if prefixes else ""
    passed_on = _PASSED_ON.get(route, ())
    if maker in passed_on:
        return (maker,)
    return (route,) if maker else (route, *passed_on)


def _own_row(name: str, places: tuple[str, ...]) -> Price | None:
    """Find a name in our own list: the longest beginning that only a date or "latest" follows."""
    for listed, vendor, price in _rows():
        if vendor in places and name.startswith(listed) and _SAME_PRICE.fullmatch(name, len(listed)):
            return price
    return None


def _packaged(written: str, name: str, places: tuple[str, ...]) -> Price | None:
    """Find a model in the list of the package, by its name as it is written first."""
    if not name or _SUBSCRIPTIONS.intersection(places):
        return None
    from genai_prices.data_snapshot import get_snapshot

    providers = get_snapshot().providers
    plain = _DATED_END.sub("", name)
    names = dict.fromkeys(
        (written, written.rpartition("/")[2], name, plain, plain.replace(".", "-"), f"{plain}-latest")
    )
    for provider in sorted((one for one in providers if one.id in places), key=lambda one: places.index(one.id)):
        for each in names:
            if (found := provider.find_model(each, all_providers=providers)) is not None:
                return _converted(found.get_prices(datetime.now(UTC)))
    return None


def _converted(prices: ModelPrice) -> Price | None:
    """Return a price of the package as ours, with a step for every length of prompt that it charges differently."""
    given = {ours: price for ours, name in _KINDS.items() if (price := getattr(prices, name)) is not None}
    if not {"input", "output"} <= given.keys():
        return None
    if "cache_write_5m" in given:
        given.setdefault("cache_write_1h", given["cache_write_5m"])
    starts = {tier.start for price in given.values() for tier in getattr(price, "tiers", ())}
    made: Price | None = None
    above = None
    for start in sorted({0, *starts}, reverse=True):
        rates = {kind: _rate(price, start) for kind, price in given.items()}
        made = _price({**rates, "long_above": above, "long": made, "source": f"genai-prices {version('genai-prices')}"})
        above = start
    return made


def _rate(price: Decimal | TieredPrices, start: int) -> float:
    """Return what tokens of one kind cost in prompts longer than `start`."""
    steps = [(0, getattr(price, "base", price)), *((tier.start, tier.price) for tier in getattr(price, "tiers", ()))]
    return float([rate for above, rate in steps if above <= start][-1])


def _named(model: str, provider: str) -> tuple[str, str]:
    """Return a model's plain name, and who serves it as far as that is said."""
    *prefixes, name = plain_name(model).split("/")
    return name, provider.strip().lower() or (prefixes[0] if prefixes else "")


@cache
def _rows() -> list[tuple[str, str, Price]]:
    """Return the list, longest names first."""
    rows = json.loads(Path(__file__).with_name("prices.json").read_text("utf-8"))
    table = [(row["model"], row["provider"], _price(row)) for row in rows]
    return sorted(table, key=lambda row: -len(row[0]))


def _price(row: Mapping[str, Any]) -> Price:
    known = {field.name: row[field.name] for field in fields(Price) if field.name in row}
    long = row.get("long")
    if isinstance(long, Mapping):
        dated = {"as_of": known.get("as_of", ""), "source": known.get("source", "")}
        known |= {"long": _price({**dated, **long}), "long_above": long["above"]}
    return Price(**known)
