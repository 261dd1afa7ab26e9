"""A pydantic-ai agent, streamed; the model is named as pydantic-ai names it."""

import os
import subprocess
import sys

from pydantic_ai import Agent
from pydantic_ai.usage import UsageLimits
from tool import INSTRUCTIONS

agent = Agent(os.environ["MODEL"], system_prompt="You look after a harbour.")


@agent.tool_plain
def run_command(command: str) -> str:
    """Run a shell command and return what it prints."""
    return subprocess.run(command, shell=True, capture_output=True, text=True, check=False).stdout


async def main() -> None:
    """Give the agent its instructions."""
    history, answer = None, ""
    for instruction in INSTRUCTIONS:
        async with agent.iter(instruction, message_history=history, usage_limits=UsageLimits(request_limit=100)) as run:
            async for node in run:
                if Agent.is_model_request_node(node):
                    async with node.stream(run.ctx) as stream:
                        async for _ in stream:
                            pass
        history, answer = run.result.all_messages(), run.result.output
    sys.stdout.write(f"{answer}\n")


if __name__ == "__main__":
    import asyncio

    asyncio.run(main())
