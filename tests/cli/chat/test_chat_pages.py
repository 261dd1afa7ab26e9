"""The pages about the chat are true: their screens come up in a real terminal, their tables are the chat's."""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click
import pytest
from tests.fixtures.chat import Place

from leporello.cli.chat import command
from leporello.cli.chat.slash import KEYS, TABLE
from leporello.testing.model_server import ModelServer, Step, Use

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.fixtures.chat import HaltingModel, Page

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[3] / "docs"
REFERENCE = (DOCS / "reference" / "chat.md").read_text(encoding="utf-8")


@pytest.fixture
def place() -> Iterator[Place]:
    """Return a place to chat in whose folder has a short name, so that its line is not wrapped."""
    with TemporaryDirectory() as folder, ModelServer() as server:
        yield Place(Path(folder), server)


def rows(table: Sequence[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in table)


COLUMNS = 80
TALL = 200
"""Lines of a terminal that does not scroll: at the last line prompt_toolkit now and then draws over the one above."""


def test_every_screen_of_the_page_comes_up(place: Place, halting: HaltingModel, chat_page: Page) -> None:
    (place.workspace / "app.py").write_text('print("Helo, world")\n')
    change = {"path": "app.py", "content": 'print("Hello, world")\n'}
    place.server.script(
        Step(text="I look at it.", tool_calls=[Use(name="read_file", arguments={"path": "app.py"})]),
        'It prints a greeting, but "Hello" is misspelt.',
        Step(tool_calls=[Use(name="write_file", arguments=change)]),
        Step(tool_calls=[Use(name="terminal", arguments={"command": "python app.py"})]),
        'Done: app.py prints "Hello, world" now. I ran it to be sure.',
    )
    with place.chat("--session", "greeting", columns=COLUMNS, lines=TALL) as chat:
        chat.say("What does app.py do?")
        chat.wait_for("misspelt.")
        chat.say("Fix it, and run it.")
        chat.wait_for("⚙ write app.py")
        chat.wait_until(chat.asks)
        chat.type("y")
        chat.wait_for("⚙ run: python app.py")
        chat.wait_until(chat.asks)
        chat.type("y")
        chat.wait_for("to be sure.")
        chat.wait_for(" · compressor · gpt-5-mini")
        screens = chat.text()
        chat.say("/usage")
        chat.wait_for("caching ")
        chat.say("/undo")
        chat.wait_for("Put the files back as they were?")
        chat.type("n")
        chat.say("/new")
        chat.wait_for("this is ")
        screens += "\n" + chat.text()
    with place.chat("--base-url", halting.openai_url, columns=COLUMNS, lines=TALL) as chat:
        chat.say("Tell me something long")
        chat.wait_for("This is the first half")
        chat.type(chat.CTRL_C)
        chat.wait_for("interrupted;")
        screens += "\n" + chat.text()
    place.configure(context_length=16_000)
    place.remember("long", 20)
    place.server.script("## Goal\nTo look at every part in detail.\n")
    with place.chat("--session", "long", columns=COLUMNS, lines=TALL) as chat:
        chat.say("/context")
        chat.wait_for("│ folds at 8,000 tokens")
        chat.say("/compress the details")
        chat.wait_for("❖ folded")
        chat.say("/context")
        chat.wait_until(lambda: chat.text().count("│ folds at 8,000 tokens") == 2)
        chat.say("/engine lcm")
        chat.wait_for("engine   lcm")
        screens += "\n" + chat.text()
    place.forget("long")
    with place.chat("--session", "new", columns=COLUMNS, lines=TALL) as chat:
        chat.say("/resume")
        chat.wait_for("Enter chooses")
        screens += "\n" + chat.text()
    *shown, local = chat_page.screens
    assert len(shown) == 10
    assert max(len(line) for screen in chat_page.screens for line in screen) <= COLUMNS
    assert chat_page.missing(shown, screens) == []
    assert "smollm2" in local[0], "the screen that the test with the local model looks at"


def test_a_screen_that_does_not_come_up_is_caught(chat_page: Page) -> None:
    screen = "Leporello\n❯ /usage\nwindow   12 of 400 tokens\n"
    assert chat_page.missing([["❯ /usage", "window   … of 400 tokens"]], screen) == []
    wrong = [["❯ /usage", "window   … of 500 tokens"], ["Leporello", "window   12 of 400 tokens"]]
    assert len(chat_page.missing(wrong, screen)) == 2


def test_the_options_of_the_reference_are_those_of_the_command() -> None:
    context = click.Context(command, info_name="chat")
    records = [option.get_help_record(context) for option in command.params if isinstance(option, click.Option)]
    table = [(f"`{names}`", meaning.partition("  [")[0]) for names, meaning in filter(None, records)]
    assert rows(table[:-1] if table[-1][0] == "`--help`" else table) in REFERENCE


def test_the_commands_of_the_reference_are_those_of_the_chat() -> None:
    table = [(f"`/{one.name} {one.argument}".rstrip() + "`", one.meaning) for one in TABLE.values()]
    assert rows(table) in REFERENCE


def test_the_keys_of_the_reference_are_those_of_the_chat() -> None:
    assert rows(list(KEYS.items())) in REFERENCE


def test_the_help_has_an_example_and_says_what_is_meant() -> None:
    text = command.get_help(click.Context(command, info_name="leporello chat"))
    assert re.search(r"Examples?:\s+leporello chat", text)
