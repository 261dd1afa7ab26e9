"""A tool loop on the `anthropic` package, streamed."""

import os
import sys

import anthropic
from tool import INSTRUCTIONS, run_command, schema

client = anthropic.Anthropic()
tools = [schema("input_schema")]
talk, answer = [], ""
for instruction in INSTRUCTIONS:
    talk.append({"role": "user", "content": instruction})
    while True:
        with client.messages.stream(
            model=os.environ["MODEL"], max_tokens=2000, system="You look after a harbour.", messages=talk, tools=tools
        ) as stream:
            message = stream.get_final_message()
        talk.append({"role": "assistant", "content": [part.model_dump(exclude_none=True) for part in message.content]})
        calls = [part for part in message.content if part.type == "tool_use"]
        if not calls:
            answer = message.content[-1].text
            break
        results = [
            {"type": "tool_result", "tool_use_id": call.id, "content": run_command(call.input)} for call in calls
        ]
        talk.append({"role": "user", "content": results})
sys.stdout.write(f"{answer}\n")
