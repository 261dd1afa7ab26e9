"""The price list: dated data, and how a model's name finds its row.

A price belongs to the provider that charges it. OpenRouter passes the list prices of closed models on; everywhere else
another provider means another price, which nobody guesses here. Subscriptions and servers of one's own have no price
per token. Overrides come first and may name any provider.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from leporello.model_names import plain_name

_VENDORS = {
    "gemini": "google",
    "moonshotai": "moonshot",
    "z-ai": "zai",
    "x-ai": "xai",
    "mistralai": "mistral",
    "qwen": "alibaba",
}
_PASSED_ON = {"openrouter": frozenset({"anthropic", "openai", "google", "xai"})}
_SAME_PRICE = re.compile(r"(?:[-@](?:latest|preview|\d{4}-\d{2}-\d{2}|\d{2}-\d{4}|\d{4,8}))*")


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
        return self.long if self.long and self.long_above is not None and prompt_tokens > self.long_above else self


def price_of(
    model: str, provider: str = "", *, overrides: Mapping[str, Price | Mapping[str, Any]] | None = None
) -> Price | None:
    """Return what a model costs at a provider, or None when it is not on the list.

    `overrides` maps "provider/model" or "model" to a price (or to its fields as a mapping) and comes first.
    """
    return (_own(model, provider, overrides) if overrides else None) or _listed(model, provider)


def _own(model: str, provider: str, overrides: Mapping[str, Price | Mapping[str, Any]]) -> Price | None:
    own = {plain_name(key): price for key, price in overrides.items()}
    name, route = _named(model, provider)
    for key in (f"{provider}/{model}", f"{route}/{name}", model, name):
        if (found := own.get(plain_name(key))) is not None:
            return found if isinstance(found, Price) else _price(found)
    return None


@lru_cache(maxsize=256)
def _listed(model: str, provider: str) -> Price | None:
    """Look a model up: by its whole name, or the longest beginning that only a date or "latest" follows."""
    name, route = _named(model, provider)
    route = _VENDORS.get(route, route)
    for listed, vendor, price in _rows():
        if name.startswith(listed) and _SAME_PRICE.fullmatch(name, len(listed)):
            return price if not route or route == vendor or vendor in _PASSED_ON.get(route, ()) else None
    return None


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
