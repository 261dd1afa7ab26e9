"""The tokens of messages, each counted once during a compaction."""

from leporello.summary.sizes import Sizes

__all__ = ["Sizes"]
