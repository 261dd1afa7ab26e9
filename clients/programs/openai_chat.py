"""A tool loop on the `openai` package, with chat completions, streamed."""

import os
import sys

import openai
from tool import INSTRUCTIONS, run_command, schema

client = openai.OpenAI()
tools = [{"type": "function", "function": schema("parameters")}]
talk = [{"role": "system", "content": "You look after a harbour."}]
answer = ""
for instruction in INSTRUCTIONS:
    talk.append({"role": "user", "content": instruction})
    while True:
        with client.chat.completions.stream(model=os.environ["MODEL"], messages=talk, tools=tools) as stream:
            message = stream.get_final_completion().choices[0].message
        talk.append(message.model_dump(exclude_none=True, include={"role", "content", "tool_calls"}))
        if not message.tool_calls:
            answer = message.content
            break
        for call in message.tool_calls:
            output = run_command(call.function.arguments)
            talk.append({"role": "tool", "tool_call_id": call.id, "content": output})
sys.stdout.write(f"{answer}\n")
