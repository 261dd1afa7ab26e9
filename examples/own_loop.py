"""Keep a conversation of your own inside the window: the official `openai` client, any engine, no host needed.

It runs on a model server on loopback, so that you can try it without a key; point `base_url` and `api_key` at your
provider instead.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

from openai import OpenAI

from leporello import load_engine
from leporello.testing.model_server import ModelServer, Step, Use
from leporello.tokens import count_messages

if TYPE_CHECKING:
    from leporello.messages import Message

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


def read_log(page: int) -> str:
    """Return a page of the log."""
    return "\n".join(f"page {page} line {line}: crane moved container {page * 100 + line}" for line in range(60))


def main() -> None:
    """Run one long task."""
    script = [Step(tool_calls=[Use(name="read_log", arguments={"page": page})]) for page in range(60)]
    with ModelServer([*script, "The log is in order."], window=16_000) as server:
        client = OpenAI(base_url=server.openai_url, api_key="any")
        engine = load_engine({"context": {"engine": "compressor"}}, context_length=16_000)
        messages: list[Message] = [
            {"role": "system", "content": "You watch over a port."},
            {"role": "user", "content": "Read the whole log and tell me whether it is in order."},
        ]
        while True:
            tokens = count_messages(messages)
            if engine.should_compress(tokens):
                messages = engine.compress(messages, current_tokens=tokens)
                report = engine.last_compaction
                if report:
                    print(f"{report.status}: {report.tokens_before:,} → {report.tokens_after:,} tokens")
            answer = client.chat.completions.create(model="any", messages=messages, tools=TOOLS)  # type: ignore[arg-type]
            if answer.usage:
                engine.update_from_response(answer.usage.model_dump())
            message = answer.choices[0].message
            messages.append(cast("Message", message.model_dump(exclude_none=True)))
            if not message.tool_calls:
                break
            for call in message.tool_calls:
                result = read_log(**json.loads(call.function.arguments))  # type: ignore[union-attr]
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        print(message.content)
        print(
            f"{len(server.requests)} requests, {engine.compression_count} compactions, window never over 16,000 tokens"
        )


if __name__ == "__main__":
    main()
