"""Plugins for Hermes Agent import the function under the name they know."""

from __future__ import annotations

import subprocess
import sys

CODE = """
from leporello.plugins import hermes
hermes.install()
from agent.prompt_caching import apply_anthropic_cache_control
from leporello.caching import apply_anthropic_cache_control as ours
print(apply_anthropic_cache_control is ours)
"""


def test_it_is_the_same_function() -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", CODE], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("True", "")
