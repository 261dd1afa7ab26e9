"""Whether a model at a provider takes cache breakpoints, and which strategy sets them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from leporello.caching import system_and_3
from leporello.caching.markers import (
    BREAKPOINT,
    CACHE_CONTROL,
    MOST_MARKERS,
    ToolPlace,
    count_markers,
    lifetime,
    marker,
    placed,
    without_markers,
)
from leporello.caching.planner import plan
from leporello.caching.providers import route_of, rules_of
from leporello.messages import is_system

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leporello.config.model import PromptCaching

Kind: TypeAlias = Literal["cache_control", "prompt_cache_breakpoint", "none"]

_LABELS = {"anthropic": "Anthropic", "openrouter": "OpenRouter"}
_OPENAI_TTL = "30m"


@dataclass(frozen=True, kw_only=True)
class CachePolicy:
    """What is done for the prompt cache of one model at one provider.

    enabled    whether messages are marked at all
    strategy   "system_and_3" or "planner"
    ttl        how long the provider keeps a marked prefix
    native     whether the marks go to Anthropic's own wire
    kind       the name of the mark
    source     whose cache it is, for the status line
    automatic  who caches without being asked ("" when none is known)
    """

    enabled: bool = False
    strategy: Literal["system_and_3", "planner"] = "system_and_3"
    ttl: str = "5m"
    native: bool = False
    kind: Kind = "none"
    source: str = ""
    automatic: str = ""

    def line(self) -> str:
        """Return the status line; "" when there is nothing to say."""
        if self.enabled:
            return f"💾 Prompt caching: ENABLED ({self.source}, {self.ttl} TTL)"
        return f"💾 Prompt caching: automatic ({self.automatic} caches by itself)" if self.automatic else ""

    def mark(self, messages: Sequence[Any], *, tools: Sequence[Any] | None = None, clean: bool = False) -> list[Any]:
        """Return the messages, in OpenAI's format, with their breakpoints; only marked messages are copied.

        Marks on `tools` count: there are never more than four together. `clean` is the caller's word that no message
        carries a mark yet, which saves looking at every one of them.
        """
        marked = without_markers(messages) if self.kind == CACHE_CONTROL and not clean else list(messages)
        for at, message in self.marked(marked, tools=tools).items():
            marked[at] = message
        return marked

    def marked(self, messages: Sequence[Any], *, tools: Sequence[Any] | None = None) -> dict[int, Any]:
        """Return the messages that get a breakpoint, marked, by their place; none may carry one yet."""
        if not self.enabled:
            return {}
        if self.kind == BREAKPOINT:  # OpenAI marks the newest message itself
            opening = messages[:1] if messages and is_system(messages[0]) else ()
            return {
                at: placed(one, {"mode": "explicit"}, tools="none", key=BREAKPOINT) for at, one in enumerate(opening)
            }
        most = max(0, MOST_MARKERS - count_markers(tools or ()))
        places = plan(messages, native=self.native, most=most) if self._plans else system_and_3.places(messages, most)
        mark = marker(self.ttl)
        return {at: placed(messages[at], mark, tools=self._tool_place, key=CACHE_CONTROL) for at in places}

    def with_marks_of(self, sent: Iterable[Any], *, dialect: str) -> CachePolicy:
        """Return a policy that marks messages too, if it marks none, as their client does in what it sent."""
        ttl = "" if self.enabled else lifetime(sent)
        if not ttl:
            return self
        return replace(
            self,
            enabled=True,
            ttl=ttl,
            native=dialect == "anthropic",
            kind="cache_control",
            source="marks of the client",
        )

    @property
    def _plans(self) -> bool:
        return self.strategy == "planner"

    @property
    def _tool_place(self) -> ToolPlace:
        if self.native:
            return "message"
        return "part" if self._plans else "none"


def choose(
    *, model: str, provider: str, base_url: str | None, settings: PromptCaching, dialect: str = ""
) -> CachePolicy:
    """Return the policy for a model: Claude is marked at Anthropic and OpenRouter; others cache by themselves, or not.

    With the planner, OpenAI's models that take breakpoints get one on the system prompt, so that a compaction does not
    cost it. `dialect` is the format that the marked messages are sent in, "openai" or "anthropic"; without it the
    provider's own.
    """
    route = route_of(model, provider, base_url)
    off = CachePolicy(strategy=settings.strategy, ttl=settings.cache_ttl)
    if route in _LABELS and "claude" in model.lower():
        return CachePolicy(
            enabled=True,
            strategy=settings.strategy,
            ttl=settings.cache_ttl,
            native=(dialect or route) == "anthropic",
            kind="cache_control",
            source=f"Claude via {_LABELS[route]}",
        )
    rules = rules_of(model, route)
    if rules.manner == "managed" and route == "openai" and settings.strategy == "planner":
        return CachePolicy(
            enabled=True, strategy="planner", ttl=_OPENAI_TTL, kind="prompt_cache_breakpoint", source=rules.label
        )
    if rules.manner in ("managed", "stepped", "whole") and route != "custom":
        return CachePolicy(strategy=off.strategy, ttl=off.ttl, automatic=rules.label)
    return off
