"""Commands where the terminal cannot show every character, and help that is not cut."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import click
import pytest

from leporello.cli.group import CommandGroup, first_clause
from leporello.cli.main import commands

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.fixtures.cli import Leporello

CUT = re.compile(r"[a-z,;]\.\.\.$", re.MULTILINE)  # of several arguments the names are in capitals: FILE...


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
@pytest.mark.parametrize(
    "arguments",
    [
        ("plugins", "list"),
        ("doctor",),
        ("demo", "--fast"),
        ("sessions", "list"),
        ("grep", "Straße 港口"),
        ("config", "show"),
        ("chat", "--engine", "中文", "hello"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_shown_is_replaced(tmp_path: Path, encoding: str, arguments: tuple[str, ...]) -> None:
    hidden = re.compile(r".*_API_KEY|LEPORELLO_.*|PYTEST_.*")
    environment = {name: value for name, value in os.environ.items() if not hidden.fullmatch(name)}
    done = subprocess.run(
        [sys.executable, "-m", "leporello", *arguments],
        env={**environment, "LEPORELLO_HOME": str(tmp_path), "PYTHONIOENCODING": encoding},
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert b"Traceback" not in done.stderr
    assert done.returncode in {0, 2}
    # click takes ASCII for a terminal that does not say what it can show, and writes UTF-8
    shown = "utf-8" if encoding == "ascii" else encoding
    assert (done.stdout or done.stderr).decode(shown)


def helps(group: click.Group, *path: str) -> Iterator[tuple[str, ...]]:
    """Yield the path of every command."""
    context = click.Context(group)
    yield path
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from helps(command, *path, name)
        else:
            yield (*path, name)


@pytest.mark.slow
def test_no_help_is_cut(leporello: Leporello) -> None:
    cut = [path for path in helps(commands) if CUT.search(leporello(*path, "--help").out)]
    assert cut == []


def test_planted_the_usual_group_cuts_what_is_long() -> None:
    long = click.Command(
        "long", help="Say at great length, in many words, what nobody would ever want to know or read."
    )
    for kind, is_cut in ((click.Group, True), (CommandGroup, False)):
        group = kind("group", commands=[long])
        assert bool(CUT.search(group.get_help(click.Context(group)))) == is_cut


def test_the_first_clause_is_whole() -> None:
    assert first_clause("Show a\n    conversation: what is stored. And more.") == "Show a conversation."
    assert first_clause("Print config.yaml") == "Print config.yaml."
