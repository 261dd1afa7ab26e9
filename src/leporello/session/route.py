"""Where a conversation is sent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leporello.prices import Price


@dataclass(frozen=True, kw_only=True)
class Route:
    """The model that the conversation is sent to, and where."""

    model: str = ""
    provider: str = ""
    base_url: str = ""
    context_length: int = 0
    own_price: Price | None = None
    """Its price by the user's configuration, which comes before the listed one."""

    def with_window(self, context_length: int) -> Route:
        """Return the same model with another window."""
        return replace(self, context_length=context_length)
