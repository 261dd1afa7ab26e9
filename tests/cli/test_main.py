"""What `leporello` says of a command that there is not."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from leporello.cli.main import commands


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("chatt", "No such command 'chatt'. Did you mean 'chat'?"),
        ("sesions", "No such command 'sesions'. Did you mean 'sessions'?"),
        ("frobnicate", "No such command 'frobnicate'.\n"),
    ],
)
def test_a_misspelt_command_is_told_which_one_may_be_meant(name: str, said: str) -> None:
    ran = CliRunner().invoke(commands, [name])
    assert ran.exit_code == 2
    assert said in ran.output


def test_an_option_that_there_is_not_is_no_command() -> None:
    assert "No such option" in CliRunner().invoke(commands, ["--nothing"]).output
