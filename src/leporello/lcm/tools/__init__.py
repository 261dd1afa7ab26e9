"""The tools that the model gets: search, describe, unfold, answer, artifacts, status."""

from leporello.lcm.tools.schemas import SCHEMAS
from leporello.lcm.tools.toolbox import Toolbox

__all__ = ["SCHEMAS", "Toolbox"]
