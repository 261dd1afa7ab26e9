"""An agent of LangChain with our middleware; prints what was seen as JSON. The arguments: address, store, turns."""

import asyncio
import json
import sys

from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver

from leporello import Session
from leporello.adapters.langchain import FoldingMiddleware

ADDRESS, STORE, TURNS = sys.argv[1], sys.argv[2], int(sys.argv[3])
QUESTION = "Where does the spare lamp hang?"


@tool
def read_log(number: int) -> str:
    """Read a log of the harbour."""
    fact = "The spare lamp hangs beside the blue door. " if number == 2 else ""
    return f"Log {number}. {fact}" + " ".join(f"berth {row * number % 97} is quiet." for row in range(60))


def opened(thread):
    """Open the session of a thread."""
    return Session.open(
        thread, model="gpt-5.4-mini", context_length=12_000, engine="lcm", store=STORE, config={}, llm=None
    )


def agent_with(middleware, saver):
    """Return the agent, as after a restart if the checkpoints are those of another one."""
    model = ChatOpenAI(model="gpt-5.4-mini", base_url=ADDRESS, api_key="sk-x", max_retries=0)
    return create_agent(
        model,
        tools=[read_log],
        system_prompt="You look after a harbour.",
        middleware=[middleware],
        checkpointer=saver,
    )


def main():
    """Read the logs, ask, and ask again after a restart, without and with asyncio."""
    saver = InMemorySaver()
    config = {"configurable": {"thread_id": "harbour"}, "recursion_limit": 10 * TURNS}
    first = FoldingMiddleware(opened)
    agent = agent_with(first, saver)
    agent.invoke({"messages": [{"role": "user", "content": f"Read the logs 1 to {TURNS}."}]}, config)
    asked = agent.invoke({"messages": [{"role": "user", "content": QUESTION}]}, config)
    usage = first.session("harbour").usage()
    first.close()
    second = FoldingMiddleware(opened)
    question = {"messages": [{"role": "user", "content": QUESTION}]}
    again = asyncio.run(agent_with(second, saver).ainvoke(question, config))
    seen = {
        "kept": len(again["messages"]),
        "answers": [asked["messages"][-1].text, again["messages"][-1].text],
        "compactions": usage.compactions,
        "cost": usage.conversation.cost_usd,
        "branches": len(second.session("harbour").branches()),
    }
    second.close()
    print(json.dumps(seen))


main()
