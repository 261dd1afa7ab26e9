"""Leporello: the context layer for LLM agents.

It folds a conversation so that it always fits the model's window, and it can unfold every word again.
Importing this package loads no third-party module; each public name is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leporello.caching import apply_anthropic_cache_control
    from leporello.compressor import ContextCompressor
    from leporello.config import Config
    from leporello.engine import CompactionReport, ContextEngine
    from leporello.lcm import LCMEngine
    from leporello.messages import Message, ToolCall, tool_result
    from leporello.plugins import load_engine
    from leporello.session import AsyncSession, Session
    from leporello.store import Store, open_store

__version__ = "0.1.0"

_HOMES = {
    "AsyncSession": "leporello.session",
    "CompactionReport": "leporello.engine",
    "Config": "leporello.config",
    "ContextCompressor": "leporello.compressor",
    "ContextEngine": "leporello.engine",
    "LCMEngine": "leporello.lcm",
    "Message": "leporello.messages",
    "Session": "leporello.session",
    "Store": "leporello.store",
    "ToolCall": "leporello.messages",
    "apply_anthropic_cache_control": "leporello.caching",
    "load_engine": "leporello.plugins",
    "open_store": "leporello.store",
    "tool_result": "leporello.messages",
}

__all__ = [
    "AsyncSession",
    "CompactionReport",
    "Config",
    "ContextCompressor",
    "ContextEngine",
    "LCMEngine",
    "Message",
    "Session",
    "Store",
    "ToolCall",
    "__version__",
    "apply_anthropic_cache_control",
    "load_engine",
    "open_store",
    "tool_result",
]


def __getattr__(name: str) -> object:
    """Import a public name from its package when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module 'leporello' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Offer the lazy names to completion too."""
    return sorted({*globals(), *_HOMES})
