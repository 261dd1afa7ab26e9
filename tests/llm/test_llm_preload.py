"""The official packages take a second to load: in the background, before the first question needs them."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys, threading
from leporello.llm.openai import OpenAIClient
client = OpenAIClient(model="m", api_key="k", provider="openai")
assert "openai" not in sys.modules
if {preloads}:
    client.preload()
    client.preload()
    (thread,) = [one for one in threading.enumerate() if one.name == "leporello-preload"]
    thread.join(60)
print("openai" in sys.modules)
"""


@pytest.mark.parametrize("preloads", [True, False])
def test_the_package_is_loaded_when_it_is_asked_for(preloads: bool) -> None:
    command = [sys.executable, "-c", PROGRAM.format(preloads=preloads)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == str(preloads)
