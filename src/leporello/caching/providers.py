"""The rules of providers' prompt caches, read from `providers.toml`."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import urlsplit

from leporello.model_names import plain_name

if TYPE_CHECKING:
    from collections.abc import Mapping

Manner: TypeAlias = Literal["marked", "managed", "stepped", "whole", "none"]

_VENDORS = (
    ("anthropic", re.compile("claude")),
    ("openai", re.compile(r"(?:gpt|chatgpt|codex|o\d)[-.\d]")),
    ("google", re.compile(r"gemini[-.\d]")),
    ("deepseek", re.compile(r"deepseek[-.\d]")),
)
_END_OF_NAME = frozenset("-:@_ ")
_ALIASES = {"gemini": "google"}


@dataclass(frozen=True, kw_only=True)
class CacheRules:
    """How one model's prompt cache works at its provider; `providers.toml` explains the fields."""

    label: str = ""
    manner: Manner = "none"
    minimum: int = 0
    marks: int = 0
    lookback: int = 0
    candidates: int = 0
    step: int = 1
    lifetimes: Mapping[str, float] = field(default_factory=dict)
    as_of: str = ""
    source: str = ""

    def lifetime(self, mark: str) -> float:
        """Return the seconds that a prefix lives after its last use."""
        return self.lifetimes.get(mark, max(self.lifetimes.values(), default=0.0))


NO_CACHE = CacheRules()


def rules_of(model: str, provider: str = "") -> CacheRules:
    """Return the rules for a model at a provider; rules that cache nothing for an unknown model.

    A router passes the rules of the model's maker on. Without a provider the model's name decides.
    """
    name = plain_name(model)
    route = _ALIASES.get(provider.strip().lower(), provider.strip().lower())
    table = _tables().get(route if route in _tables() else maker_of(model))
    return _rules(table, name.rpartition("/")[2]) if table else NO_CACHE


def maker_of(model: str) -> str:
    """Return who makes a model, as far as its name tells; "" otherwise."""
    prefix, _, name = plain_name(model).rpartition("/")
    vendor = next((vendor for vendor, pattern in _VENDORS if pattern.match(name)), "")
    return vendor or (prefix if prefix in _tables() else "")


def route_of(model: str, provider: str = "", base_url: str | None = None) -> str:
    """Return who is asked: the owner of a known address, the named provider, or who the model's name points to."""
    host = _host(base_url or "")
    for route in ("openrouter.ai", "anthropic.com", "openai.com"):
        if host == route or host.endswith(f".{route}"):
            return route.partition(".")[0]
    named = provider.strip().lower()
    if named not in ("", "auto"):
        return named
    if base_url:
        return "custom"
    return "openrouter" if "/" in model else maker_of(model)


def _host(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:  # a bracket that is not closed, say: the host is unknown
        return ""


def _rules(table: dict[str, Any], name: str) -> CacheRules:
    rows: dict[str, Any] = table.get("models", {})
    beginnings = sorted((row for row in rows if _begins(name, row)), key=len)
    known = {row.name for row in fields(CacheRules)}
    own = rows[beginnings[-1]] if beginnings else {}
    return CacheRules(**{key: value for key, value in {**table, **own}.items() if key in known})


def _begins(name: str, beginning: str) -> bool:
    return name.startswith(beginning) and (len(name) == len(beginning) or name[len(beginning)] in _END_OF_NAME)


@cache
def _tables() -> dict[str, dict[str, Any]]:
    return tomllib.loads(Path(__file__).with_name("providers.toml").read_text("utf-8"))
