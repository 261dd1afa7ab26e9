"""What commands say next is a command that can be run as it stands, and what cannot be is refused before it is kept."""

from __future__ import annotations

import re
import shlex
import sys
import warnings
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from leporello.cli import main
from leporello.cli.grep import command as grep
from leporello.errors import PluginWarning
from leporello.store import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.cli import Leporello

    from leporello.messages import Message


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return a store with a conversation that has more hits than a page."""
    file = tmp_path / "a store.db"
    opened = open_store(file)
    for number in range(6):
        question: Message = {"role": "user", "content": f"Where is berth {number} of the harbour?"}
        opened.append("talk", [question, {"role": "assistant", "content": f"Berth {number} is beside the crane."}])
    opened.close()
    return file


def run(leporello: Leporello, hint: str) -> tuple[int, str]:
    program, *arguments = shlex.split(hint)
    assert program == "leporello"
    ran = leporello(*arguments)
    return ran.code, ran.out


def test_the_rest_of_the_hits_is_one_command_away(leporello: Leporello, store: Path) -> None:
    seen: set[str] = set()
    hint = f"leporello grep berth --limit 5 --store {shlex.quote(str(store))}"
    for _ in range(3):
        program, *arguments = shlex.split(hint)
        ran = leporello(*arguments)
        assert (program, ran.code) == ("leporello", 0)
        found = set(re.findall(r"^(m\d+) ", ran.out, re.MULTILINE))
        assert found
        assert not found & seen
        seen |= found
        more = re.search(r"^more: (.*)$", ran.err, re.MULTILINE)
        if more is None:
            break
        hint = more[1]
    assert len(seen) == 12


def test_what_describes_a_message_names_the_command_that_unfolds_it(leporello: Leporello, store: Path) -> None:
    ran = leporello("describe", "m1", "--store", store)
    hint = ran.out.strip().rpartition("\n")[2].removeprefix("all of it: ")
    code, out = run(leporello, hint)
    assert code == 0
    assert "Where is berth 0 of the harbour?" in out


def test_an_unknown_name_leads_to_a_list_of_the_same_store(leporello: Leporello, store: Path) -> None:
    ran = leporello("sessions", "show", "zzz", "--store", store)
    hint = re.search(r"`(.*)`", ran.err)
    assert hint
    code, out = run(leporello, hint[1])
    assert code == 0
    assert "Where is berth 0 of the harbour?" in out, "the list has titles"


def test_deleting_says_how_it_is_really_done(leporello: Leporello, store: Path) -> None:
    ran = leporello("sessions", "delete", "talk", "--store", store)
    assert run(leporello, ran.out.strip().rpartition("To do it: ")[2])[0] == 0
    assert leporello("sessions", "list", "--store", store).code == 1


@pytest.mark.parametrize(("query", "options"), [("berth", []), ("B[a-z]+ \\d", ["--regex"])])
def test_hits_are_marked_on_a_terminal_only(store: Path, query: str, options: list[str]) -> None:
    arguments = [query, *options, "--store", str(store)]
    coloured = CliRunner().invoke(grep, arguments, color=True).stdout
    plain = CliRunner().invoke(grep, arguments).stdout
    assert re.search("\x1b\\[31m\x1b\\[1m[Bb]erth", coloured)
    assert "\x1b" not in plain


def test_an_engine_that_cannot_be_is_not_written(leporello: Leporello, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    ran = leporello("config", "set", "context.engine", "nonexistent", "--config", file)
    assert ran.code == 2
    assert "nonexistent" in ran.err
    assert not file.exists()
    assert leporello("config", "set", "context.engine", "nonexistent", "--untried", "--config", file).code == 0
    assert leporello("config", "set", "context.engine", "lcm", "--config", file).code == 0
    assert "lcm" in file.read_text()


@pytest.mark.parametrize("address", ["mysql://nowhere/x", "postgresql://127.0.0.1:9/x"])
def test_a_store_that_cannot_be_is_not_written(leporello: Leporello, tmp_path: Path, address: str) -> None:
    file = tmp_path / "config.yaml"
    assert leporello("config", "set", "store.url", address, "--config", file).code == 2
    assert not file.exists()


def test_a_store_in_a_file_instead_of_a_folder_is_not_written(leporello: Leporello, tmp_path: Path) -> None:
    file, blocker = tmp_path / "config.yaml", tmp_path / "file"
    blocker.touch()
    assert leporello("config", "set", "store.url", f"{blocker}/leporello.db", "--config", file).code == 2
    assert not file.exists()


def test_a_store_that_can_be_is_written_and_not_made(leporello: Leporello, tmp_path: Path) -> None:
    file, database = tmp_path / "config.yaml", tmp_path / "new" / "talk.db"
    ran = leporello("config", "set", "store.url", f"sqlite:///{database}", "--config", file)
    assert (ran.code, ran.err) == (0, "")
    assert str(database) in file.read_text()
    assert not database.parent.exists()


def test_a_warning_is_one_line_without_a_place_in_our_sources(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def commands(**_: str) -> None:
        warnings.warn("plugin 'p1' has no engine", PluginWarning, stacklevel=1)

    monkeypatch.setattr(sys.modules["leporello.cli.main"], "commands", commands)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        main()
    assert capsys.readouterr().err == "leporello: plugin 'p1' has no engine\n"
