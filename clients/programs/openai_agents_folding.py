"""An agent of the OpenAI Agents SDK with our folding; prints JSON. Arguments: address, store, turns."""

import asyncio
import json
import sys

from agents import Agent, Runner, SQLiteSession, function_tool, set_default_openai_client, set_tracing_disabled
from openai import AsyncOpenAI

from leporello import Session
from leporello.adapters.openai_agents import Folding

ADDRESS, STORE, TURNS = sys.argv[1], sys.argv[2], int(sys.argv[3])
QUESTION = "Where does the spare lamp hang?"


@function_tool
def read_log(number: int) -> str:
    """Read a log of the harbour."""
    fact = "The spare lamp hangs beside the blue door. " if number == 2 else ""
    return f"Log {number}. {fact}" + " ".join(f"berth {row * number % 97} is quiet." for row in range(60))


def opened():
    """Open the conversation."""
    session = Session.open(
        "harbour", model="gpt-5.4-mini", context_length=12_000, engine="lcm", store=STORE, config={}, llm=None
    )
    return Folding(session)


async def say(folding, kept, text):
    """Run the agent."""
    agent = Agent(
        name="Harbour",
        instructions="You look after a harbour.",
        tools=[read_log, *folding.tools],
        model="gpt-5.4-mini",
    )
    result = await Runner.run(
        agent, text, session=kept, hooks=folding.hooks, run_config=folding.run_config, max_turns=TURNS + 9
    )
    return result.final_output


async def main():
    """Read the logs, ask, and ask again after a restart."""
    set_tracing_disabled(True)
    set_default_openai_client(AsyncOpenAI(base_url=ADDRESS, api_key="sk-x", max_retries=0))
    kept = SQLiteSession("harbour")
    first = opened()
    await say(first, kept, f"Read the logs 1 to {TURNS}.")
    answers = [await say(first, kept, QUESTION)]
    usage = first.session.usage()
    first.close()
    second = opened()
    answers.append(await say(second, kept, QUESTION))
    seen = {
        "kept": len(await kept.get_items()),
        "answers": answers,
        "compactions": usage.compactions,
        "cost": usage.conversation.cost_usd,
        "branches": len(second.session.branches()),
    }
    second.close()
    print(json.dumps(seen))


asyncio.run(main())
