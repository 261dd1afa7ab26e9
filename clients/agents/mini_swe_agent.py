"""mini-swe-agent: one task, chat completions by LiteLLM, not streamed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.client import KEY, Client, Packages, Place
from leporello.testing.model_server import Step, Use

if TYPE_CHECKING:
    from collections.abc import Sequence


class MiniSweAgent(Client):
    """`mini` without questions."""

    name = "mini-swe-agent"
    folder = "mini-swe-agent"
    packages = Packages(pip=("mini-swe-agent", "mcp"))
    dialect = "openai"
    points = "`OPENAI_API_BASE=http://127.0.0.1:8765/v1 mini -m openai/MODEL`"
    special = "It does not stream. It takes one task; what follows is another conversation."
    tool = "bash"
    one_task = True

    def run(self, place: Place, instructions: Sequence[str]) -> str:
        """Run one process for the one task."""
        own = ["--yolo", "--exit-immediately", "--output", str(place.home / "trajectory.json")]
        return place.run(
            [place.bin("mini"), "-m", f"openai/{place.model}", "-t", instructions[0], "--cost-limit", "0", *own],
            OPENAI_API_BASE=f"{place.address}/v1",
            OPENAI_API_KEY=KEY,
            MSWEA_CONFIGURED="true",
            MSWEA_COST_TRACKING="ignore_errors",
            MSWEA_SILENT_STARTUP="1",
        )

    def end(self, text: str) -> Step:
        """End by the command that hands the result in."""
        command = f"echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && echo '{text}'"
        return Step(text="This is the end.", tool_calls=[Use(name=self.tool, arguments={"command": command})])


CLIENTS = [MiniSweAgent()]
