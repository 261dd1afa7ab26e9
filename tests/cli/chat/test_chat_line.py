"""The line editor: what each key does, and where what was typed is kept."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from leporello.cli.chat.asking import ask_why, rest_of
from leporello.cli.chat.line import LineReader

if TYPE_CHECKING:
    from pathlib import Path

COMMANDS = {"compress": "Compress now.", "usage": "Show the window."}


def typed(keys: str, history: Path, *, times: int = 1) -> list[str]:
    """Return what the reader makes of keys."""
    with create_pipe_input() as source:
        reader = LineReader(history, commands=lambda: COMMANDS, terminal=(source, DummyOutput()))
        source.send_text(keys)
        return [reader.read() for _ in range(times)]


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ("hello\r", "hello"),
        ("one\\\rtwo\r", "one\ntwo"),
        ("one\x1b\rtwo\r", "one\ntwo"),
        ("nonsense\x03sense\r", "sense"),
        ("\r\rsomething\r", "something"),
        (" /tmp is full\r", " /tmp is full"),
        ("/usa\t\r", "/usage"),
        ("a\\b\r", "a\\b"),
    ],
    ids=["enter", "backslash", "alt-enter", "ctrl-c", "nothing", "space", "tab", "backslash inside"],
)
def test_keys(keys: str, line: str, tmp_path: Path) -> None:
    assert typed(keys, tmp_path / "history") == [line]


def test_ctrl_d_leaves(tmp_path: Path) -> None:
    with pytest.raises(EOFError):
        typed("\x04", tmp_path / "history")


def test_what_was_typed_comes_back_in_the_next_chat(tmp_path: Path) -> None:
    file = tmp_path / "home" / "history"
    typed("one\\\rtwo\r", file)
    assert typed("\x1b[A\x1b[A\r", file) == ["one\ntwo"]


def test_only_its_owner_can_read_the_history(tmp_path: Path) -> None:
    file = tmp_path / "home" / "history"
    typed("my secret plan\r", file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_bytes_that_are_no_text_do_no_harm(tmp_path: Path) -> None:
    file = tmp_path / "history"
    with create_pipe_input() as source:
        reader = LineReader(file, terminal=(source, DummyOutput()))
        source.send_bytes(b"caf\xe9\r")
        line = reader.read()
    assert line.encode("utf-8").startswith(b"caf")
    assert b"+caf" in file.read_bytes()


def test_a_history_that_cannot_be_written_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file where the folder should be")
    with create_pipe_input() as source:
        reader = LineReader(tmp_path / "home" / "history", terminal=(source, DummyOutput()))
        source.send_text("hello\r")
        assert reader.read() == "hello"
    assert "cannot be" in (reader.problem() or "")
    assert reader.problem() is None


def test_a_key_that_was_typed_is_not_kept(tmp_path: Path) -> None:
    """It is sent as it was typed; the file has the rest of the line."""
    file = tmp_path / "history"
    key = "sk-proj-" + "aB3dE5gH7jK9mN1p" * 3
    assert typed(f"use {key} please\r", file) == [f"use {key} please"]
    kept = file.read_text()
    assert key not in kept
    assert "+use " in kept


def test_the_rest_of_an_answered_word_is_not_sent(tmp_path: Path) -> None:
    with create_pipe_input() as source:
        reader = LineReader(tmp_path / "history", terminal=(source, DummyOutput()))
        reader.rest = rest_of("yes")
        source.send_text("es\rThank you.\r")
        assert reader.read() == "Thank you."


@pytest.mark.parametrize("line", ["es", "o", "ell"])
def test_planted_the_same_letters_are_sent_where_nothing_was_asked(line: str, tmp_path: Path) -> None:
    with create_pipe_input() as source:
        reader = LineReader(tmp_path / "history", terminal=(source, DummyOutput()))
        reader.rest = rest_of("yes")
        source.send_text(f"Thank you.\r{line}\r")
        assert [reader.read(), reader.read()] == ["Thank you.", line]


def test_a_reason_is_not_the_rest_of_tell(tmp_path: Path) -> None:
    with create_pipe_input() as source:
        source.send_text("ell\rUse make.\r")
        assert ask_why("Why not? ", terminal=(source, DummyOutput())) == "Use make."
