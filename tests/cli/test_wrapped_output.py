"""What commands say on a terminal is broken between words."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.fixtures.chat import COMMAND, Place, Terminal

from leporello.store import open_store
from leporello.testing.model_server import ModelServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

REQUEST = "A customer reports that weights are wrong in the export: 21.4 t became 21,400 t. Ticket PORT-2291. Fix it."
COMMANDS = [("grep", "PORT-2291"), ("describe", "m1"), ("sessions", "show", "talk", "--last", "2"), ("doctor",)]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with ModelServer() as server:
        made = Place(tmp_path, server)
        store = open_store(made.home / "leporello.db")
        store.append("talk", [{"role": "user", "content": REQUEST}, {"role": "assistant", "content": REQUEST}])
        store.close()
        yield made


def words_of(place: Place, arguments: tuple[str, ...]) -> set[str]:
    """Return the words that a command writes to a pipe."""
    piped = subprocess.run(
        [*COMMAND, *arguments], env=place.environ, cwd=place.workspace, capture_output=True, text=True, check=True
    )
    return set(piped.stdout.split())


def cut_words(place: Place, arguments: tuple[str, ...], columns: int) -> set[str]:
    """Return the words that a command writes to a pipe, before and after, and that its screen does not have."""
    words = words_of(place, arguments)
    with Terminal(*arguments, environ=place.environ, folder=place.workspace, columns=columns, lines=200) as terminal:
        assert terminal.exit_code() == 0
        shown = set(terminal.text().split())
    return {word for word in words & words_of(place, arguments) if len(word) < columns - 8} - shown


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_no_word_is_cut(place: Place, arguments: tuple[str, ...]) -> None:
    assert cut_words(place, arguments, columns=60) == set()


def test_planted_a_text_that_is_written_as_it_is(place: Place) -> None:
    """`expand` prints the original word for word, and leaves its lines to the terminal."""
    assert cut_words(place, ("expand", "m1"), columns=60)
