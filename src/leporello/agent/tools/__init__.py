"""What the agent can do: a terminal, files and search, all of them bounded to a workspace folder."""

from leporello.agent.tools.bounds import can_bound
from leporello.agent.tools.tool import Action, Tool, simple_tool
from leporello.agent.tools.toolbox import Toolbox, ToolOutcome, default_tools
from leporello.agent.tools.workspace import Workspace

__all__ = ["Action", "Tool", "ToolOutcome", "Toolbox", "Workspace", "can_bound", "default_tools", "simple_tool"]
