"""The default engine: prune, find boundaries, summarise, assemble."""

from leporello.compressor.engine import ContextCompressor

__all__ = ["ContextCompressor"]
