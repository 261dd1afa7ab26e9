"""The tool of `llm`: it takes functions from a file."""

import subprocess


def run_command(command: str) -> str:
    """Run a shell command and return what it prints."""
    return subprocess.run(command, shell=True, capture_output=True, text=True, check=False).stdout
