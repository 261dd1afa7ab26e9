"""The pages about replaying are true: their commands run, their code holds."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[2] / "docs"
PYTHON = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^\$ leporello (.*)$", re.MULTILINE)


def code_of(page: str) -> str:
    return "\n".join(PYTHON.findall((DOCS / page).read_text("utf-8")))


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    home = {"LEPORELLO_HOME": str(folder / "home"), "PATH": ""}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=folder, env=home
    )


def test_the_worked_example_holds(tmp_path: Path) -> None:
    done = run(code_of("explanation/needed-later.md"), tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_code_of_the_reference_runs(tmp_path: Path) -> None:
    done = run(code_of("reference/proof.md"), tmp_path)
    assert done.returncode == 0, done.stderr


def test_planted_another_figure_in_the_example_fails(tmp_path: Path) -> None:
    code = code_of("explanation/needed-later.md")
    assert "(3, 0, 0)" in code
    assert run(code.replace("(3, 0, 0)", "(3, 1, 0)"), tmp_path).returncode == 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the example of the page, made by its first commands."""
    made = tmp_path_factory.mktemp("example")
    for command in PREPARING:
        leporello(command, made)
    return made


def leporello(command: str, folder: Path) -> None:
    call = [sys.executable, "-m", "leporello", *shlex.split(command)]
    home = {"LEPORELLO_HOME": str(folder / "home"), "PATH": ""}
    done = subprocess.run(call, capture_output=True, text=True, check=False, cwd=folder, env=home)
    assert done.returncode == 0, (command, done.stderr)


COMMANDS = COMMAND.findall((DOCS / "how-to" / "replay.md").read_text("utf-8"))
PREPARING = [command for command in COMMANDS if not command.startswith("replay")]
REPLAYING = [command for command in COMMANDS if command.startswith("replay")]


@pytest.mark.parametrize("command", REPLAYING)
def test_a_command_of_the_how_to_runs(command: str, folder: Path) -> None:
    leporello(command, folder)
    assert "--report" not in command or (folder / "replay.html").stat().st_size > 10_000


def test_the_code_of_the_how_to_runs(folder: Path) -> None:
    done = run(code_of("how-to/replay.md"), folder)
    assert done.returncode == 0, done.stderr
    assert 0 < float(done.stdout) <= 1


def test_the_how_to_has_commands() -> None:
    assert (len(PREPARING), len(REPLAYING)) == (2, 3)


def test_the_picture_is_there() -> None:
    page = (DOCS / "how-to" / "replay.md").read_text("utf-8")
    (picture,) = re.findall(r"!\[.*?\]\((.*?)\)", page)
    assert (DOCS / "how-to" / picture).read_bytes().startswith(b"\x89PNG")
