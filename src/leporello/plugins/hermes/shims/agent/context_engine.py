"""The contract, under the name that plugins for Hermes Agent import."""

from leporello.engine import ContextEngine

__all__ = ["ContextEngine"]
