"""A LangChain chat model with a tool bound to it, streamed."""

import os
import sys

from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from tool import INSTRUCTIONS, run_command, schema

if sys.argv[1] == "openai":
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(model=os.environ["MODEL"])
    bound = model.bind_tools([{"type": "function", "function": schema("parameters")}])
else:
    from langchain_anthropic import ChatAnthropic

    model = ChatAnthropic(model=os.environ["MODEL"], max_tokens=2000)
    bound = model.bind_tools([schema("input_schema")])

talk, answer = [SystemMessage("You look after a harbour.")], ""
for instruction in INSTRUCTIONS:
    talk.append(HumanMessage(instruction))
    while True:
        message = None
        for chunk in bound.stream(talk):
            message = chunk if message is None else message + chunk
        talk.append(message)
        if not message.tool_calls:
            answer = message.text if isinstance(message.text, str) else message.text()
            break
        talk += [ToolMessage(run_command(call["args"]), tool_call_id=call["id"]) for call in message.tool_calls]
sys.stdout.write(f"{answer}\n")
