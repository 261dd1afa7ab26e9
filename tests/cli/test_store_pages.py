"""The pages about the store are true: their commands run and print what is shown; every help has an example."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.fixtures.cli import Leporello

pytestmark = pytest.mark.slow

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
CONSOLE = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)
PYTHON = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def steps(text: str) -> list[tuple[list[str], list[str]]]:
    """Return the commands of a page, each with the lines it is said to print."""
    found: list[tuple[list[str], list[str]]] = []
    for block in CONSOLE.findall(text):
        for line in block.splitlines():
            if line.startswith("$ leporello "):
                found.append((shlex.split(line)[2:], []))
            else:
                found[-1][1].append(line)
    return found


def untrue(leporello: Leporello, text: str) -> list[str]:
    """Run a page, and return what does not run or is not printed; … stands for anything."""
    wrong: list[str] = []
    for command, shown in steps(text):
        done = leporello(*command)
        if done.code:
            wrong.append(f"{command}: {done.code} {done.err}")
        printed = done.out.splitlines()
        wrong += [line for line in shown if not any(_alike(line, other) for other in printed)]
    return wrong


def _alike(shown: str, printed: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, shown.split("…"))), printed) is not None


@pytest.fixture
def example(leporello: Leporello, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Leporello:
    """Return the command line in an empty folder, with the example of the pages as the default store."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.yaml").write_text(f"store:\n  url: {tmp_path / 'example.db'}\n")
    return leporello


def test_the_page_about_searching_is_true(example: Leporello) -> None:
    assert untrue(example, (PAGES / "search-and-unfold.md").read_text()) == []


def test_the_page_about_the_store_is_true(example: Leporello) -> None:
    assert example("demo", "--json", "--store", "example.db").code == 0
    assert untrue(example, (PAGES / "look-after-the-store.md").read_text()) == []


def test_an_untrue_page_is_caught(example: Leporello) -> None:
    assert example("demo", "--json", "--store", "example.db").code == 0
    page = "```console\n$ leporello grep PORT-2291\n  something else\n$ leporello verify nobody\n```\n"
    assert len(untrue(example, page)) == 2


def test_the_python_of_the_page_runs(tmp_path: Path) -> None:
    code = "\n".join(PYTHON.findall((PAGES / "search-and-unfold.md").read_text()))
    assert code
    environment = {**os.environ, "LEPORELLO_HOME": str(tmp_path / "home")}
    subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=tmp_path, env=environment, check=True, timeout=60)


@pytest.mark.parametrize(
    "command",
    [
        *["backup", "demo", "describe", "expand", "gc", "grep", "verify"],
        *["sessions", "sessions list", "sessions show", "sessions export", "sessions delete", "import"],
    ],
)
def test_the_help_of_every_command_has_an_example(leporello: Leporello, command: str) -> None:
    done = leporello(*command.split(), "--help")
    assert done.code == 0
    assert re.search(rf"Examples?:\s+leporello {command}", done.out)
    assert command == "sessions" or "--store ADDRESS" in done.out
