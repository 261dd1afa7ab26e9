"""A tool loop on LiteLLM with our callback; prints what was seen as JSON. The arguments: address, store, turns."""

import asyncio
import json
import sys

import litellm

from leporello import Session
from leporello.adapters.litellm import FoldingCallback

ADDRESS, STORE, TURNS = sys.argv[1], sys.argv[2], int(sys.argv[3])
QUESTION = "Where does the spare lamp hang?"
SCHEMA = {
    "name": "read_log",
    "description": "Read a log of the harbour.",
    "parameters": {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]},
}


def read_log(number):
    """Read a log of the harbour."""
    fact = "The spare lamp hangs beside the blue door. " if number == 2 else ""
    return f"Log {number}. {fact}" + " ".join(f"berth {row * number % 97} is quiet." for row in range(60))


def opened(name):
    """Open the session of a conversation."""
    return Session.open(
        name, model="gpt-5.4-mini", context_length=12_000, engine="lcm", store=STORE, config={}, llm=None
    )


async def say(folding, said, text, *, stream=False):
    """Run the loop until the model has answered."""
    litellm.callbacks = [folding]
    said.append({"role": "user", "content": text})
    while True:
        answer = await litellm.acompletion(
            model="openai/gpt-5.4-mini",
            api_base=ADDRESS,
            api_key="sk-x",
            messages=said,
            tools=[{"type": "function", "function": SCHEMA}, *folding.tools],
            metadata={"session_id": "harbour"},
            stream=stream,
        )
        if stream:
            answer = litellm.stream_chunk_builder([chunk async for chunk in answer], messages=said)
        message = answer.choices[0].message
        said.append(message)
        if not message.tool_calls:
            return message.content
        for call in message.tool_calls:
            content = folding.answer("harbour", call) or read_log(**json.loads(call.function.arguments))
            said.append({"role": "tool", "tool_call_id": call.id, "content": content})


async def main():
    """Read the logs, ask, and ask again after a restart, streamed."""
    said = [{"role": "system", "content": "You look after a harbour."}]
    first = FoldingCallback(opened)
    await say(first, said, f"Read the logs 1 to {TURNS}.")
    answers = [await say(first, said, QUESTION)]
    usage = first.session("harbour").usage()
    first.close()
    second = FoldingCallback(opened)
    answers.append(await say(second, said, QUESTION, stream=True))
    seen = {
        "kept": len(said) - 1,
        "answers": answers,
        "compactions": usage.compactions,
        "cost": usage.conversation.cost_usd,
        "branches": len(second.session("harbour").branches()),
    }
    second.close()
    print(json.dumps(seen))


asyncio.run(main())
