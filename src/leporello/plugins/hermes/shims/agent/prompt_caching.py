"""Cache breakpoints, under the name that plugins for Hermes Agent import."""

from leporello.caching import apply_anthropic_cache_control

__all__ = ["apply_anthropic_cache_control"]
