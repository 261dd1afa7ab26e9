"""An agent of Pydantic AI with our capability; prints what was seen as JSON. The arguments: address, store, turns."""

import asyncio
import json
import sys

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import UsageLimits

from leporello import Session
from leporello.adapters.pydantic_ai import FoldingCapability

ADDRESS, STORE, TURNS = sys.argv[1], sys.argv[2], int(sys.argv[3])
QUESTION = "Where does the spare lamp hang?"


def read_log(number: int) -> str:
    """Read a log of the harbour."""
    fact = "The spare lamp hangs beside the blue door. " if number == 2 else ""
    return f"Log {number}. {fact}" + " ".join(f"berth {row * number % 97} is quiet." for row in range(60))


def opened(name):
    """Open the session of a conversation."""
    return Session.open(
        name, model="gpt-5.4-mini", context_length=12_000, engine="lcm", store=STORE, config={}, llm=None
    )


def agent_with(folding):
    """Return the agent."""
    model = OpenAIChatModel("gpt-5.4-mini", provider=OpenAIProvider(base_url=ADDRESS, api_key="sk-x"))
    return Agent(model, tools=[read_log], system_prompt="You look after a harbour.", capabilities=[folding])


async def streamed(agent, said, text):
    """Run the agent streamed."""
    async with agent.iter(text, message_history=said) as run:
        async for node in run:
            if Agent.is_model_request_node(node):
                async with node.stream(run.ctx) as stream:
                    async for _ in stream:
                        pass
    return run.result


def main():
    """Read the logs, ask, and ask again after a restart, without and with streaming."""
    first = FoldingCapability(opened)
    agent, limits = agent_with(first), UsageLimits(request_limit=TURNS + 9)
    read = agent.run_sync(f"Read the logs 1 to {TURNS}.", conversation_id="harbour", usage_limits=limits)
    asked = agent.run_sync(QUESTION, message_history=read.all_messages())
    usage = first.session("harbour").usage()
    first.close()
    second = FoldingCapability(opened)
    again = asyncio.run(streamed(agent_with(second), asked.all_messages(), QUESTION))
    seen = {
        "kept": len(again.all_messages()),
        "answers": [asked.output, again.output],
        "compactions": usage.compactions,
        "cost": usage.conversation.cost_usd,
        "branches": len(second.session("harbour").branches()),
    }
    second.close()
    print(json.dumps(seen))


main()
