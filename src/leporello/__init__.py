"""Leporello: the context layer for LLM agents.

It folds a conversation so that it always fits the model's window, and it can unfold every word again.
Importing this package loads no third-party module; each public name is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leporello.compressor import ContextCompressor
    from leporello.config import Config
    from leporello.engine import CompactionReport, ContextEngine
    from leporello.lcm import LCMEngine
    from leporello.plugins import load_engine

__version__ = "0.1.0"

_HOMES = {
    "CompactionReport": "leporello.engine",
    "Config": "leporello.config",
    "ContextCompressor": "leporello.compressor",
    "ContextEngine": "leporello.engine",
    "LCMEngine": "leporello.lcm",
    "load_engine": "leporello.plugins",
}

__all__ = [
    "CompactionReport",
    "Config",
    "ContextCompressor",
    "ContextEngine",
    "LCMEngine",
    "__version__",
    "load_engine",
]


def __getattr__(name: str) -> object:
    """Import a public name from its room when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module 'leporello' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Offer the lazy names to completion too."""
    return sorted({*globals(), *_HOMES})
