"""Every Python block in the pages about engines runs, in order, in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def run_page(text: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    (cwd / "home").mkdir()
    for file in (cwd / "config-for-tests.yaml", cwd / "home" / "config.yaml"):
        file.write_text("context:\n  engine: compressor\nmodel:\n  default: claude-sonnet-5\n")
    environ = {key: value for key, value in os.environ.items() if not key.endswith("_API_KEY")}
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", "\n".join(BLOCK.findall(text))],
        cwd=cwd,
        env=environ | {"LEPORELLO_HOME": str(cwd / "home")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("page", ["choose-an-engine.md", "write-an-engine.md", "hermes-plugins.md"])
def test_the_examples_run(page: str, tmp_path: Path) -> None:
    text = (PAGES / page).read_text()
    assert BLOCK.findall(text)
    done = run_page(text, tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_an_example_that_does_not_run_is_caught(tmp_path: Path) -> None:
    text = (PAGES / "choose-an-engine.md").read_text().replace("272_000", "1")
    assert "AssertionError" in run_page(text, tmp_path).stderr
