"""A tool loop on LiteLLM, streamed."""

import os
import sys

import litellm
from tool import INSTRUCTIONS, run_command, schema

tools = [{"type": "function", "function": schema("parameters")}]
talk, answer = [{"role": "system", "content": "You look after a harbour."}], ""
for instruction in INSTRUCTIONS:
    talk.append({"role": "user", "content": instruction})
    while True:
        chunks = list(litellm.completion(model=os.environ["MODEL"], messages=talk, tools=tools, stream=True))
        message = litellm.stream_chunk_builder(chunks, messages=talk).choices[0].message
        talk.append(message.model_dump(exclude_none=True, include={"role", "content", "tool_calls"}))
        if not message.tool_calls:
            answer = message.content
            break
        for call in message.tool_calls:
            output = run_command(call.function.arguments)
            talk.append({"role": "tool", "tool_call_id": call.id, "content": output})
sys.stdout.write(f"{answer}\n")
