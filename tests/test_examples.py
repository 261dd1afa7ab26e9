"""Every example runs as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_no_example_is_forgotten() -> None:
    assert {path.name for path in EXAMPLES.iterdir() if not path.name.startswith(("_", "."))} == {
        "keep_last_engine",  # run by its own test and by the plugin tests
        "own_loop.py",
    }


def test_own_loop_finishes_its_task_with_few_compactions() -> None:
    output = run("own_loop.py")
    assert "The log is in order." in output
    found = re.search(r"(\d+) requests, (\d+) compactions", output)
    assert found
    requests, compactions = int(found[1]), int(found[2])
    assert requests == 61
    assert 2 <= compactions <= requests / 4
