"""A tool loop on the `openai` package, with the Responses API, streamed; whole histories or chained by their ids."""

import os
import sys

import openai
from tool import INSTRUCTIONS, run_command, schema

chained = "chained" in sys.argv
client = openai.OpenAI()
tools = [{"type": "function", **schema("parameters")}]
answer, talk, previous = "", [], None
for instruction in INSTRUCTIONS:
    talk.append({"role": "user", "content": instruction})
    while True:
        own = {"previous_response_id": previous} if chained and previous else {}
        system = "You look after a harbour."
        with client.responses.stream(
            model=os.environ["MODEL"], input=talk, tools=tools, instructions=system, **own
        ) as stream:
            response = stream.get_final_response()
        previous = response.id
        talk = [] if chained else [*talk, *[item.to_dict() for item in response.output]]
        for item in talk:
            item.pop("parsed_arguments", None)
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            answer = response.output_text
            break
        for call in calls:
            output = run_command(call.arguments)
            talk.append({"type": "function_call_output", "call_id": call.call_id, "output": output})
sys.stdout.write(f"{answer}\n")
