"""Completion in real shells: printed, installed, and it completes."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.cli import Leporello


@pytest.mark.parametrize(
    ("shell", "place"),
    [
        ("bash", ".local/share/bash-completion/completions/leporello"),
        ("fish", ".config/fish/completions/leporello.fish"),
        ("zsh", ".zfunc/_leporello"),
    ],
)
def test_it_is_written_where_the_shell_looks(
    leporello: Leporello, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: str, place: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    printed = leporello("completion", shell)
    ran = leporello("completion", shell, "--install")
    assert ran.code == 0
    assert (tmp_path / place).read_text() == printed.out.removesuffix("\n")
    assert "_LEPORELLO_COMPLETE" in printed.out


def test_the_shell_is_the_users_own(leporello: Leporello, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    assert "complete --no-files --command leporello" in leporello("completion").out
    monkeypatch.setenv("SHELL", "/bin/nothing")
    unknown = leporello("completion")
    assert unknown.code == 2
    assert "leporello completion bash" in unknown.err


@pytest.mark.parametrize("variable", [None, ""])
def test_without_the_variable_the_shell_is_that_of_the_account(
    leporello: Leporello, monkeypatch: pytest.MonkeyPatch, variable: str | None
) -> None:
    """Jobs, containers and services have no $SHELL."""
    monkeypatch.delenv("SHELL", raising=False) if variable is None else monkeypatch.setenv("SHELL", variable)
    account = ["someone", "x", 1000, 1000, "", "/home/someone", "/usr/bin/zsh"]
    monkeypatch.setattr(pwd, "getpwuid", lambda _user: pwd.struct_passwd(account))
    assert leporello("completion").out.startswith("#compdef leporello")
    account[-1] = "/usr/sbin/nologin"
    refused = leporello("completion")
    assert refused.code == 2
    assert "name the shell, one of bash, fish, zsh" in refused.err


def test_an_account_that_the_system_does_not_know_has_no_shell(
    leporello: Leporello, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SHELL", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 2_000_000_000)
    refused = leporello("completion")
    assert refused.code == 2
    assert "leporello completion bash" in refused.err


def test_the_command_answers_what_a_shell_asks_when_tab_is_pressed() -> None:
    """What the printed scripts do: they run the command with the words so far."""
    words = {"_LEPORELLO_COMPLETE": "bash_complete", "COMP_WORDS": "leporello sess", "COMP_CWORD": "1"}
    ran = subprocess.run(
        [sys.executable, "-m", "leporello"], env=words, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.stdout == "plain,sessions\n"
