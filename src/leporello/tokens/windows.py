"""The windows of models, by route: the same model may have another window on another provider.

The table is data (`windows.json`), each row with its date and source. A model's name is matched by the longest row that
is the whole name or its beginning, so that dates and variants ("-20250929", ":free", "@001") find their family; a
route's own rows come before those that hold everywhere. Models that are not listed have no window here: a host then
uses `DEFAULT_WINDOW` and says so.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from leporello.model_names import plain_name

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_WINDOW = 128_000
"""The context length that is assumed of an unknown model."""

_ROUTES = {
    "codex": "openai-codex",
    "chatgpt": "openai-codex",
    "github-copilot": "copilot",
    "github_copilot": "copilot",
    "gemini": "google",
    "grok": "xai",
}
_LOCAL_ROUTES = frozenset({"ollama", "lmstudio", "llamacpp", "llama.cpp", "vllm", "sglang"})
_REGION_AND_VENDOR = re.compile(
    r"^(?:[a-z]{2,6}\.)?(?:anthropic|meta|mistral|amazon|cohere|ai21|deepseek|qwen|openai)\."
)
_END_OF_NAME = frozenset("-:@/_ ")


@dataclass(frozen=True, kw_only=True)
class ContextLengthRow:
    """One row of the table: a model's window on a route ("" = every route without a row of its own).

    `input` is set where a provider allows less input than the window holds.
    """

    model: str
    provider: str = ""
    window: int
    input: int | None = None
    as_of: str
    source: str


def window_of(model: str, provider: str = "", *, overrides: Mapping[str, int] | None = None) -> int | None:
    """Return the window of a model on a provider, or None when it is not listed.

    `overrides` maps "provider/model" or "model" to a window and comes first. Servers on one's own machine decide the
    window themselves, so for them only overrides count.
    """
    own = _override(model, provider, overrides or {})
    if own is not None:
        return own
    row = find_window(model, provider)
    return row.window if row else None


def find_window(model: str, provider: str = "") -> ContextLengthRow | None:
    """Return the row of the table that fits a model on a provider best."""
    route, name = _route_and_name(model, provider)
    if route in _LOCAL_ROUTES:
        return None
    for rows in (_rows().get(route, ()), _rows()[""]):
        for row in rows:
            if _begins(name, row.model):
                return row
    return None


def _override(model: str, provider: str, overrides: Mapping[str, int]) -> int | None:
    route, name = _route_and_name(model, provider)
    wanted = {plain_name(key): window for key, window in overrides.items()}
    keys = (f"{provider}/{model}", f"{route}/{name}", model, name)
    return next((wanted[plain] for key in keys if (plain := plain_name(key)) in wanted), None)


def _route_and_name(model: str, provider: str) -> tuple[str, str]:
    """Split prefixes from a model's name; the first prefix names the route when the caller does not."""
    prefix, _, rest = plain_name(model).partition("/")
    route = provider.strip().lower() or (prefix if rest else "")
    name = _REGION_AND_VENDOR.sub("", (rest or prefix).rpartition("/")[2])
    return _ROUTES.get(route, route), name


def _begins(name: str, beginning: str) -> bool:
    return name.startswith(beginning) and (len(name) == len(beginning) or name[len(beginning)] in _END_OF_NAME)


@cache
def _rows() -> dict[str, list[ContextLengthRow]]:
    """Return the table by route, longest names first."""
    text = Path(__file__).with_name("windows.json").read_text("utf-8")
    routes: dict[str, list[ContextLengthRow]] = {"": []}
    for row in sorted((ContextLengthRow(**row) for row in json.loads(text)), key=lambda row: -len(row.model)):
        routes.setdefault(row.provider, []).append(row)
    return routes
