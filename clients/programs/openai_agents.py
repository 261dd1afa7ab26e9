"""The OpenAI Agents SDK with its default model class (Responses), streamed.

The history is sent again by the program, by a session of the SDK, or not at all: then responses are chained by ids.
"""

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
    session = SQLiteSession("harbour", "session.db") if "session" in sys.argv else None
    chained = "chained" in sys.argv
    history, previous, answer = [], None, ""
    for instruction in INSTRUCTIONS:
        chain = {"auto_previous_response_id": True, "previous_response_id": previous} if chained else {}
        given = instruction if chained or session else [*history, {"role": "user", "content": instruction}]
        result = Runner.run_streamed(agent, given, session=session, max_turns=60, **chain)
        async for _ in result.stream_events():
            pass
        history, previous, answer = result.to_input_list(), result.last_response_id, result.final_output
    sys.stdout.write(f"{answer}\n")


asyncio.run(main())
