"""An agent of the Claude Agent SDK behind our gateway; prints what was seen as JSON: address, store, turns."""

import asyncio
import json
import os
import sys

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, create_sdk_mcp_server, get_session_messages, query, tool

ADDRESS, STORE, TURNS = sys.argv[1].removesuffix("/v1"), sys.argv[2], int(sys.argv[3])
QUESTION = "Where does the spare lamp hang?"
os.environ["ANTHROPIC_BASE_URL"] = ADDRESS

from leporello.adapters.claude_agent_sdk import FoldingGateway  # noqa: E402


@tool("read_log", "Read a log of the harbour.", {"number": int})
async def read_log(arguments):
    """Read a log of the harbour."""
    number = arguments["number"]
    fact = "The spare lamp hangs beside the blue door. " if number == 2 else ""
    text = f"Log {number}. {fact}" + " ".join(f"berth {row * number % 97} is quiet." for row in range(60))
    return {"content": [{"type": "text", "text": text}]}


CONFIG = {"windows": {"claude-sonnet-5": 12_000}}


async def say(folding, text, resume=None):
    """Run the agent until it has answered; returns its last message."""
    own = {"CLAUDE_CODE_MAX_OUTPUT_TOKENS": "2000", "ANTHROPIC_API_KEY": "sk-x", "DISABLE_AUTOUPDATER": "1"}
    given = ClaudeAgentOptions(
        model="claude-sonnet-5",
        system_prompt="You look after a harbour.",
        tools=[],
        mcp_servers={"harbour": create_sdk_mcp_server("harbour", tools=[read_log])},
        allowed_tools=["mcp__harbour__read_log"],
        setting_sources=[],
        resume=resume,
        env={**own, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"},
    )
    async for message in query(prompt=text, options=folding.options(given)):
        if isinstance(message, ResultMessage):
            done = message
    return done


async def main():
    """Read the logs, ask, and ask again after a restart."""
    with FoldingGateway("lcm", config=CONFIG, store=STORE) as folding:
        read = await say(folding, f"Read the logs 1 to {TURNS}.")
        asked = await say(folding, QUESTION, read.session_id)
        usage = folding.usage(read.session_id)
    with FoldingGateway("lcm", config=CONFIG, store=STORE) as folding:
        again = await say(folding, QUESTION, read.session_id)
        branches = folding.store.branches(folding.conversation(read.session_id))
    seen = {
        "kept": len(get_session_messages(read.session_id)),
        "answers": [asked.result, again.result],
        "compactions": usage.compactions,
        "cost": usage.cost_usd,
        "branches": len(branches),
    }
    print(json.dumps(seen))


asyncio.run(main())
