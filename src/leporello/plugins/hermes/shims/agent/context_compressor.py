"""The built-in engine, under the name that plugins for Hermes Agent import."""

from leporello.compressor import ContextCompressor

__all__ = ["ContextCompressor"]
