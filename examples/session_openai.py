"""Your own loop with the official `openai` client: five lines around it, and the conversation always fits.

It runs on a model server on loopback, so that you can try it without a key; point `base_url` and `api_key` at your
provider instead.
"""

from __future__ import annotations

from openai import OpenAI

from leporello.session import Session, ToolCall, tool_result
from leporello.testing.model_server import ModelServer, Step, Use

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "read_log",
            "description": "Read a page of the log.",
            "parameters": {"type": "object", "properties": {"page": {"type": "integer"}}, "required": ["page"]},
        },
    }
]
SCRIPT = [
    *(Step(tool_calls=[Use(name="read_log", arguments={"page": page})]) for page in range(60)),
    Step(text="The log is in order."),
]


def run(call: ToolCall) -> str:
    """Run a tool."""
    page = call.arguments["page"]
    return "\n".join(f"page {page} line {line}: crane moved container {page * 100 + line}" for line in range(60))


def main() -> None:
    """Run one long task in a small window."""
    with (
        ModelServer(SCRIPT, window=16_000) as server,
        OpenAI(base_url=server.openai_url, api_key="any") as client,
        Session.open(model="any", context_length=16_000, store=":memory:", config={}) as session,
    ):
        session.add({"role": "user", "content": "Read the whole log and tell me whether it is in order."})
        while not session.done:
            request = session.request(tools=TOOLS)
            response = client.chat.completions.create(model="any", **request)
            for call in session.record(response):
                session.add(tool_result(call, run(call)))
        usage = session.usage()
        print(session.answer)
        print(f"{usage.conversation.requests} requests, {usage.compactions} compactions, {usage.percent} % full")


if __name__ == "__main__":
    main()
