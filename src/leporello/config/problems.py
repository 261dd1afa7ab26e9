"""What is wrong with a value or a key, in words: what, where, what is allowed, and the nearest right one."""

from __future__ import annotations

import difflib
import json
import re
from typing import TYPE_CHECKING, Any

from leporello.config.fields import Kind, allowed, dotted, is_block, keys, kind_at, names_at
from leporello.config.keys import looks_like_key, names_a_key, where_keys_belong
from leporello.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

# Keys of Hermes Agent that have another place, or none, here.
_ELSEWHERE = {
    "compression.protect_first_n": "The system prompt and the first exchange are always kept; remove this line.",
    "compression.summary_model": "Use auxiliary.compression.model.",
    "compression.summary_provider": "Use auxiliary.compression.provider.",
    "compression.summary_base_url": "Use auxiliary.compression.base_url.",
}


def together(problems: list[ConfigError], *, file: Path | str | None) -> ConfigError:
    """Return the one problem, or one error that lists them all."""
    if len(problems) == 1:
        return problems[0]
    listed = "".join(f"\n  {one_line(problem)}" for problem in problems)
    return ConfigError(f"{len(problems)} problems:{listed}", file=file)


def one_line(problem: ConfigError) -> str:
    """Write a problem without its file: line 3, compression.threshold: must be …."""
    line = None if problem.line is None else f"line {problem.line}"
    place = ", ".join(part for part in (line, problem.key) if part)
    text = problem.problem + (f" {problem.hint}" if problem.hint else "")
    return f"{place}: {text}" if place else text


def unknown_key(location: tuple[Any, ...], *, engines: Iterable[str] = ()) -> tuple[str, str]:
    """Say that nothing is known by this name, and what is near; `engines` may have blocks of their own."""
    *parent, name = location
    key = dotted(location)
    if names_a_key(str(name)):
        return "keys do not belong into this file.", where_keys_belong(key)
    if not isinstance(name, str):
        return "a key must be text.", f'Put it into quotes: "{name}".'
    hint = _ELSEWHERE.get(key) or _nearest(tuple(parent), name, engines)
    if parent:
        known = ", ".join(names_at(tuple(parent)))
        return "this key is unknown.", hint or (f"Known here: {known}." if known else f"{parent[-1]} has no keys.")
    blocks = ", ".join(names_at(()))
    return (
        "there is no block and no engine of this name.",
        hint or f"The blocks are {blocks}; an engine's own block is read when the engine is installed or chosen.",
    )


def _nearest(parent: tuple[Any, ...], name: str, engines: Iterable[str]) -> str | None:
    here = names_at(parent) + ([] if parent else list(engines))
    near = _closest(name, here, cutoff=0.6)
    if near:
        return f"Did you mean {dotted((*parent, near))}?"
    leaves = {key.name.rpartition(".")[2]: key.name for key in reversed(keys())}
    far = _closest(name, leaves, cutoff=0.8)
    return f"Did you mean {leaves[far]}?" if far else None


def _closest(name: str, names: Iterable[str], *, cutoff: float) -> str | None:
    by_lower = {known.lower(): known for known in names}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[close[0]] if close else None


def wrong_value(location: tuple[Any, ...], value: Any) -> tuple[str, str | None]:
    """Say what must stand at a known place, what stands there, and how to write what was probably meant."""
    kind = kind_at(location) or Kind(bare=str)
    return f"must be {allowed(kind)}, not {shown(value)}.", _rewritten(kind, value)


def shown(value: Any) -> str:
    """Write a value for a message: short, and never a key."""
    if value is None:
        return "empty"
    if looks_like_key(value):
        return "something that looks like a key"
    if isinstance(value, dict | list):
        return "a block" if isinstance(value, dict) else "a list"
    if isinstance(value, bool | str):
        text = json.dumps(value, ensure_ascii=False)
        return text if len(text) <= 60 else text[:59] + '…"'  # noqa: PLR2004 - what fits a line
    return str(value)


def _rewritten(kind: Kind, value: Any) -> str | None:
    """Guess what was meant."""
    if isinstance(value, str):
        return _from_text(kind, value.strip())
    if kind.bare is str and isinstance(value, int | float):
        return f'Put it into quotes: "{value}".' if not isinstance(value, bool) else None
    if kind.bare is float and type(value) in {int, float} and 1 < value <= 100:  # noqa: PLR2004 - a percentage
        return f"For {value:g} % write {value / 100:g}."
    return None


def _from_text(kind: Kind, text: str) -> str | None:
    if kind.bare is bool:
        meant = {"true": "true", "yes": "true", "on": "true", "false": "false", "no": "false", "off": "false"}
        return f"Write {meant[text.lower()]}." if text.lower() in meant else None
    if kind.bare in {int, float}:
        return _number_from_text(kind, text)
    if kind.bare is list and text:
        return f"Write it as a list: [{text}]."
    if is_block(kind) and "default" in kind.bare.model_fields:
        return f"Write it as {{default: {text}}}."
    return None


def _number_from_text(kind: Kind, text: str) -> str | None:
    scaled = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kKmM])", text)
    if scaled and kind.bare is int:
        power = 1 if scaled[2] in "kK" else 2
        binary, decimal = (round(float(scaled[1]) * base**power) for base in (1024, 1000))
        return f"Write the number of tokens: {binary}, or {decimal}, as the provider documents it."
    if percent := re.fullmatch(r"(\d+(?:\.\d+)?) ?%", text):
        return f"Write {float(percent[1]) / 100:g}." if kind.bare is float else None
    digits = text.replace(",", "").replace(" ", "").replace("_", "")
    return f"Write {digits}, without quotes." if re.fullmatch(r"\d+(\.\d+)?", digits) else None
