"""Prompt-cache plans: where the breakpoints go, what a provider's cache makes of them, and whether the prefix moved."""

from leporello.caching.markers import tools_within_limit, without_markers
from leporello.caching.planner import plan
from leporello.caching.policy import CachePolicy, choose
from leporello.caching.prefix import PrefixChange, PrefixTracker
from leporello.caching.providers import CacheRules, rules_of
from leporello.caching.simulate import CacheUse, ProviderCache
from leporello.caching.system_and_3 import apply_anthropic_cache_control

__all__ = [
    "CachePolicy",
    "CacheRules",
    "CacheUse",
    "PrefixChange",
    "PrefixTracker",
    "ProviderCache",
    "apply_anthropic_cache_control",
    "choose",
    "plan",
    "rules_of",
    "tools_within_limit",
    "without_markers",
]
