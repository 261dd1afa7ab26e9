"""The tools that the model gets: search, describe, unfold, answer, artifacts, status."""

from leporello.lcm.tools.schemas import SCHEMAS
from leporello.lcm.tools.toolbox import LCMTools

__all__ = ["SCHEMAS", "LCMTools"]
