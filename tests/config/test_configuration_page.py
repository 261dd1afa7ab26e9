"""The reference page is what the model says, and its example works."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from leporello.config import Config
from leporello.config.fields import keys

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "configuration.md"


def generate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "docs.generate", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_no_generated_page_is_stale() -> None:
    result = generate("--check")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.slow
def test_planted_a_stale_page_is_caught_and_renewed(tmp_path: Path) -> None:
    assert generate("--folder", str(tmp_path)).returncode == 0
    page = tmp_path / "reference" / "configuration.md"
    page.write_text(page.read_text().replace("0.5", "0.6"))
    stale = generate("--check", "--folder", str(tmp_path))
    assert (stale.returncode, stale.stdout) == (1, f"{page} is stale; run `make docs`\n")
    assert generate("--folder", str(tmp_path)).stdout == f"wrote {page}\n"
    assert page.read_text() == PAGE.read_text()


def test_the_table_has_every_key_once() -> None:
    rows = re.findall(r"^\| `([a-z][\w.]*)` \| `", PAGE.read_text(), re.MULTILINE)
    assert rows == [key.name for key in keys()]


def test_the_example_loads_and_uses_every_block(tmp_path: Path) -> None:
    example = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "config.yaml").write_text(example[0])
    config = Config.load(tmp_path / "config.yaml")
    assert config.model_fields_set == set(Config.model_fields)
    assert config.plugins.paths[0] == tmp_path / "engines"
