"""/undo says which files a turn has changed, and restores those that nobody else has changed since."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from leporello.testing.model_server import Step, Use

if TYPE_CHECKING:
    from tests.fixtures.chat import Place, Terminal

pytestmark = pytest.mark.slow


def write(path: str, content: str) -> Step:
    return Step(tool_calls=[Use(name="write_file", arguments={"path": path, "content": content})])


def take_back(chat: Terminal) -> None:
    chat.say("/undo")
    chat.wait_for("taken back")


def test_files_are_restored_as_they_were(place: Place) -> None:
    (place.workspace / "app.py").write_bytes(b"old\xff")
    place.server.script(write("app.py", "new"), write("app.py", "newer"), write("made/it.txt", "x"), "Done.")
    with place.chat("--yes") as chat:
        chat.say("Write")
        chat.wait_for("Done.")
        assert (place.workspace / "app.py").read_text() == "newer"
        take_back(chat)
        chat.wait_for("app.py was written in this turn")
        chat.wait_for("made/it.txt was made in this turn")
        chat.wait_for("Put the files back as they were? [y]es, [n]o:")
        chat.type("y")
        chat.wait_for("app.py is as it was")
        chat.wait_for("it.txt was removed")
    assert (place.workspace / "app.py").read_bytes() == b"old\xff"
    assert not (place.workspace / "made" / "it.txt").exists()


def test_a_no_leaves_them(place: Place) -> None:
    place.server.script(write("app.py", "new"), "Done.")
    with place.chat("--yes") as chat:
        chat.say("Write")
        chat.wait_for("Done.")
        take_back(chat)
        chat.wait_for("Put the files back as they were?")
        chat.type("n")
        chat.wait_until(chat.listens)
    assert (place.workspace / "app.py").read_text() == "new"


def test_what_was_changed_since_is_named_and_left(place: Place) -> None:
    command = Step(tool_calls=[Use(name="terminal", arguments={"command": "echo more >> app.py"})])
    place.server.script(write("app.py", "new\n"), command, "Done.")
    with place.chat("--yes") as chat:
        chat.say("Write")
        chat.wait_for("Done.")
        take_back(chat)
        chat.wait_for("app.py was made in this turn, and changed since then: it is left as it is")
        chat.wait_for("commands ran in this turn; what they changed is not known, and stays")
        chat.wait_until(chat.listens)
        assert "Put the files back as they were?" not in chat.text()
    assert (place.workspace / "app.py").read_text() == "new\nmore\n"


def test_a_command_that_was_refused_changed_nothing(place: Place) -> None:
    """A command whose output looks like a refusal did run."""
    ran = Step(tool_calls=[Use(name="terminal", arguments={"command": "echo Error: this call"})])
    place.server.script(Step(tool_calls=[Use(name="terminal", arguments={"command": "true"})]), "No.", ran, "Yes.")
    with place.chat() as chat:
        chat.say("Try")
        chat.wait_until(chat.asks)
        chat.type("n")
        chat.wait_for("not done; the model is told")
        chat.wait_for("No.")
        take_back(chat)
        chat.wait_until(chat.listens)
        assert "commands ran in this turn" not in chat.text()
        chat.say("Try again")
        chat.wait_until(chat.asks)
        chat.type("y")
        chat.wait_for("Yes.")
        take_back(chat)
        chat.wait_for("commands ran in this turn")


def test_what_an_earlier_chat_wrote_is_named(place: Place) -> None:
    place.server.script(write("app.py", "new"), "Done.")
    with place.chat("--yes", "--session", "mine") as chat:
        chat.say("Write")
        chat.wait_for("Done.")
        chat.say("exit")
        assert chat.exit_code() == 0
    with place.chat("--session", "mine") as chat:
        take_back(chat)
        chat.wait_for("app.py was written in this turn; what it held before is not known here any more")
        assert "Put the files back as they were?" not in chat.text()


def test_a_turn_that_wrote_nothing_asks_nothing(place: Place) -> None:
    place.server.script(write("../out.txt", "x"), "I cannot.")
    with place.chat("--yes") as chat:
        chat.say("Write outside")
        chat.wait_for("I cannot.")
        take_back(chat)
        chat.wait_until(chat.listens)
        assert "in this turn" not in chat.text()
