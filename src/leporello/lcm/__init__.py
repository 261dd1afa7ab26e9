"""The lossless engine: every message is kept, the window is a view, and whatever it folds can be unfolded again."""

from leporello.lcm.engine import LCMEngine
from leporello.lcm.verify import Finding, verify

__all__ = ["Finding", "LCMEngine", "verify"]
