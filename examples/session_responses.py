"""Your own loop with the official `openai` client and the Responses API: reasoning and calls stay together when folded.

It runs on a model server on loopback; point `base_url` and `api_key` at the provider instead.
"""

from __future__ import annotations

from openai import OpenAI

from leporello.session import Session, ToolCall
from leporello.testing.model_server import ModelServer, Step, Use

TOOLS = [
    {
        "type": "function",
        "name": "read_log",
        "description": "Read a page of the log.",
        "parameters": {"type": "object", "properties": {"page": {"type": "integer"}}, "required": ["page"]},
    }
]
SCRIPT = [
    *(Step(thinking="Next page.", tool_calls=[Use(name="read_log", arguments={"page": page})]) for page in range(60)),
    Step(thinking="That was all.", text="The log is in order."),
]


def run(call: ToolCall) -> str:
    """Run a tool."""
    page = call.arguments["page"]
    return "\n".join(f"page {page} line {line}: crane moved container {page * 100 + line:04}" for line in range(60))


def main() -> None:
    """Run one long task in a small window, every other answer streamed."""
    with (
        ModelServer(SCRIPT, window=16_000) as server,
        OpenAI(base_url=server.openai_url, api_key="any") as client,
        Session.open(
            model="m",
            context_length=16_000,
            dialect="responses",
            system="You watch over a port.",
            store=":memory:",
            config={},
            llm=None,
        ) as session,
    ):
        session.add({"role": "user", "content": "Read the whole log and tell me whether it is in order."})
        while not session.done:
            request = session.request(tools=TOOLS)
            if len(server.requests) % 2:
                for _ in session.stream(client.responses.create(model="m", stream=True, **request)):
                    pass
            else:
                session.record(client.responses.create(model="m", **request))
            for call in session.calls:
                session.add({"type": "function_call_output", "call_id": call.id, "output": run(call)})
        usage = session.usage()
        print(session.answer)
        print(f"{usage.conversation.requests} requests, {usage.compactions} compactions")


if __name__ == "__main__":
    main()
