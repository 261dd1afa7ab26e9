"""The OpenAI Agents SDK with its default model class (Responses), streamed; a session, or chained by response ids."""

import asyncio
import os
import subprocess
import sys

from agents import Agent, Runner, SQLiteSession, function_tool, set_tracing_disabled
from tool import INSTRUCTIONS


@function_tool
def run_command(command: str) -> str:
    """Run a shell command and return what it prints."""
    return subprocess.run(command, shell=True, capture_output=True, text=True, check=False).stdout


async def main() -> None:
    """Give the agent its instructions."""
    set_tracing_disabled(True)
    agent = Agent(
        name="Harbour", instructions="You look after a harbour.", tools=[run_command], model=os.environ["MODEL"]
    )
    session = None if "chained" in sys.argv else SQLiteSession("harbour", "session.db")
    previous, answer = None, ""
    for instruction in INSTRUCTIONS:
        chain = {"auto_previous_response_id": True, "previous_response_id": previous} if session is None else {}
        result = Runner.run_streamed(agent, instruction, session=session, max_turns=60, **chain)
        async for _ in result.stream_events():
            pass
        previous, answer = result.last_response_id, result.final_output
    sys.stdout.write(f"{answer}\n")


asyncio.run(main())
