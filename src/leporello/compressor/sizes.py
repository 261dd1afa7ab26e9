"""The tokens of messages, each counted once during a compaction."""

from leporello.summary.sizes import Sizes, about

__all__ = ["Sizes", "about"]
