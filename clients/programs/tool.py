"""The tool of our programs, and the instructions that they are given."""

import json
import os
import subprocess

INSTRUCTIONS = json.loads(os.environ["INSTRUCTIONS"])
DESCRIPTION = "Run a shell command and return what it prints."


def run_command(arguments):
    """Run the command that a call names."""
    told = json.loads(arguments) if isinstance(arguments, str) else arguments
    done = subprocess.run(told["command"], shell=True, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def schema(name):
    """Return the tool as APIs are told of it; they call the schema of its arguments differently."""
    arguments = {
        "type": "object",
        "properties": {"command": {"type": "string"}},
        "required": ["command"],
        "additionalProperties": False,
    }
    return {"name": "run_command", "description": DESCRIPTION, name: arguments}
