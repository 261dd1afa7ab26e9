"""The tools that the model gets: search, describe, unfold, answer, artifacts, status."""

from leporello.lcm.tools.arguments import TOOLS
from leporello.lcm.tools.toolbox import Toolbox

SCHEMAS = tuple(tool.schema() for tool in TOOLS)

__all__ = ["SCHEMAS", "TOOLS", "Toolbox"]
