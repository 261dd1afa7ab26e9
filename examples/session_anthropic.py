"""Your own loop with the official `anthropic` client and the lossless engine: what was folded is found again.

It runs on a model server on loopback; point `base_url` and `api_key` at the provider instead.
"""

from __future__ import annotations

from anthropic import Anthropic

from leporello.session import Session, ToolCall, tool_result
from leporello.testing.model_server import ModelServer, Step, Use

TOOLS = [
    {
        "name": "read_log",
        "description": "Read a page of the log.",
        "input_schema": {"type": "object", "properties": {"page": {"type": "integer"}}, "required": ["page"]},
    }
]
SCRIPT = [
    *(Step(tool_calls=[Use(name="read_log", arguments={"page": page})]) for page in range(60)),
    # The engine's own tool: the session answers it, your loop never sees it.
    Step(tool_calls=[Use(name="lcm_grep", arguments={"query": "container 0315"})]),
    Step(text="Container 0315 was moved on page 3."),
]


def run(call: ToolCall) -> str:
    """Run a tool."""
    page = call.arguments["page"]
    return "\n".join(f"page {page} line {line}: crane moved container {page * 100 + line:04}" for line in range(60))


def main() -> None:
    """Run one long task in a small window, and ask for something at its beginning."""
    with (
        ModelServer(SCRIPT, window=16_000) as server,
        Anthropic(base_url=server.anthropic_url, api_key="any") as client,
        Session.open(
            model="claude-sonnet-5",
            context_length=16_000,
            engine="lcm",
            dialect="anthropic",
            system="You watch over a port.",
            store=":memory:",
            config={},
        ) as session,
    ):
        print(session.caching)
        session.add({"role": "user", "content": "Read the whole log. Where was container 0315 moved?"})
        while not session.done:
            request = session.request(tools=TOOLS)
            response = client.messages.create(model="claude-sonnet-5", max_tokens=1_000, **request)
            for call in session.record(response):
                session.add(tool_result(call, run(call)))
        usage = session.usage()
        print(session.answer)
        print(
            f"{usage.conversation.requests} requests, {usage.compactions} compactions, "
            f"{usage.conversation.cache_share:.0%} from the cache, ${usage.conversation.cost_usd:.2f}"
        )


if __name__ == "__main__":
    main()
