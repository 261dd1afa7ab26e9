"""The lossless engine, delivered as any third party would deliver one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leporello.lcm import LCMEngine

if TYPE_CHECKING:
    from leporello.plugins.context import PluginContext


def register(ctx: PluginContext) -> None:
    """Offer the engine; each conversation gets one of its own."""
    ctx.register_context_engine(LCMEngine)
