"""`make soak` runs every test that has a long form, and the suites that run on PostgreSQL in the long form only."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from tests.fixtures.databases import ON_BOTH

ROOT = Path(__file__).parents[1]


def recipe() -> str:
    """Return what the shell is told to run."""
    shown = subprocess.run(
        ["make", "--no-print-directory", "-n", "soak"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    return shown[shown.index("LEPORELLO_SOAK=1") :]


def left_out(command: str) -> set[str]:
    """Return the modules with a long form, or of a suite that runs on both databases, that a command does not run."""
    words = command.replace("\\\n", " ").partition("--timeout 7200")[2]
    listed = subprocess.run(
        ["sh", "-c", f"printf '%s\\n' {words}"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    run = [ROOT / line for line in listed.stdout.split()]
    modules = [path for path in (ROOT / "tests").rglob("test_*.py") if path != Path(__file__)]
    wanted = [
        path
        for path in modules
        if path.relative_to(ROOT).parts[1] in ON_BOTH
        or re.search(r"LEPORELLO_SOAK|\bSOAK\b|^DATABASES\b", path.read_text("utf-8"), re.MULTILINE)
    ]
    assert len(wanted) > 50
    return {path.name for path in wanted if path not in run and not set(run).intersection(path.parents)}


def test_nothing_with_a_long_form_is_left_out() -> None:
    assert left_out(recipe()) == set()


@pytest.mark.parametrize(
    ("written", "instead", "missing"),
    [
        ("tests/lcm", "", "test_lcm_fold.py"),
        ("'SOAK|", "'LEPORELLO_SOAK|", "test_fleet_on_postgresql.py"),
    ],
)
def test_planted_what_is_left_out_is_noticed(written: str, instead: str, missing: str) -> None:
    assert written in recipe()
    assert missing in left_out(recipe().replace(written, instead))
