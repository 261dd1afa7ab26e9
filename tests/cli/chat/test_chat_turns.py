"""Turns in a real terminal: tools, interrupts, failures, and going on where it was."""

from __future__ import annotations

import signal
import sqlite3
import threading
from typing import TYPE_CHECKING

import pytest

from leporello.cli.chat.line import HOW_TO_LEAVE
from leporello.messages import text_of, violations
from leporello.store import open_store
from leporello.testing.model_server import Failure, Step, Use

if TYPE_CHECKING:
    from tests.fixtures.chat import HaltingModel, Place

pytestmark = pytest.mark.slow


def test_a_tool_runs_only_after_a_yes(place: Place) -> None:
    call = Use(name="write_file", arguments={"path": "notes/plan.txt", "content": "One. Two.\n"})
    place.server.script(Step(text="I write it down.", tool_calls=[call]), "Written.")
    with place.chat() as chat:
        chat.say("Write my plan")
        chat.wait_for("[y]es, [n]o, [a]lways")
        assert not (place.workspace / "notes").exists()
        chat.type("y")
        chat.wait_for("Written.")
        assert (place.workspace / "notes" / "plan.txt").read_text() == "One. Two.\n"


def test_a_no_is_told_to_the_model(place: Place) -> None:
    place.server.script(Step(tool_calls=[Use(name="terminal", arguments={"command": "touch here"})]), "As you wish.")
    with place.chat() as chat:
        chat.say("Touch it")
        chat.wait_for("[y]es, [n]o, [a]lways")
        chat.type("n")
        chat.wait_for("As you wish.")
    assert not (place.workspace / "here").exists()
    assert "refused" in text_of(place.sent()[-1])


def test_what_is_too_long_for_the_screen_can_be_seen_before_a_yes(place: Place) -> None:
    command = "true\n" * 60 + "touch here"
    place.server.script(Step(tool_calls=[Use(name="terminal", arguments={"command": command})]), "Seen.")
    with place.chat() as chat:
        chat.say("Go")
        chat.wait_for("[v]iew all")
        assert "touch here" not in chat.text()
        chat.type("v")
        chat.wait_for("touch here")
        chat.wait_until(chat.asks)
        chat.type("n")
        chat.wait_for("Seen.")
    assert not (place.workspace / "here").exists()


def test_always_is_asked_once_for_each_tool(place: Place) -> None:
    touches = [Step(tool_calls=[Use(name="terminal", arguments={"command": f"touch {name}"})]) for name in "abc"]
    place.server.script(*touches, "All three are there.")
    with place.chat() as chat:
        chat.say("Touch three files")
        chat.wait_for("[y]es, [n]o, [a]lways")
        chat.type("a")
        chat.wait_for("All three are there.")
        assert chat.text().count("Do it?") == 1
    assert sorted(file.name for file in place.workspace.iterdir()) == ["a", "b", "c"]


def test_with_yes_nobody_is_asked(place: Place) -> None:
    place.server.script(Step(tool_calls=[Use(name="terminal", arguments={"command": "touch here"})]), "Done it.")
    with place.chat("--yes") as chat:
        chat.say("Touch it")
        chat.wait_for("Done it.")
        assert "Do it?" not in chat.text()
    assert (place.workspace / "here").exists()


def test_keys_pressed_before_the_question_do_not_answer_it(place: Place) -> None:
    asked = threading.Event()

    def wait(_request: object) -> Step:
        assert asked.wait(60)
        return Step(tool_calls=[Use(name="terminal", arguments={"command": "touch here"})])

    place.server.script(wait, "Not done.")
    with place.chat() as chat:
        chat.say("Touch it")
        chat.wait_until(lambda: "waiting for" in chat.text() and len(place.server.requests) == 1, "the request")
        chat.type("yyyy")
        asked.set()
        chat.wait_for("[y]es, [n]o, [a]lways")
        chat.type("n")
        chat.wait_for("Not done.")
    assert not (place.workspace / "here").exists()


def test_ctrl_c_stops_the_answer_and_keeps_the_conversation(place: Place, halting: HaltingModel) -> None:
    with place.chat("--base-url", halting.openai_url) as chat:
        chat.say("Tell me something long")
        chat.wait_for("This is the first half")
        chat.type(chat.CTRL_C)
        chat.wait_for("interrupted")
        assert halting.hung_up.wait(60), "the connection to the provider is closed, not read to its end"
        chat.say("And something short")
        chat.wait_for("A whole answer.")
        chat.type(chat.CTRL_D)
        assert chat.exit_code() == 0
    said = halting.bodies[1]["messages"]
    assert violations(said, "openai") == []
    assert [(one["role"], text_of(one)) for one in said[1:4]] == [
        ("user", "Tell me something long"),
        ("assistant", "This is the first half"),
        ("user", "And something short"),
    ]


def test_ctrl_c_at_a_question_ends_the_turn(place: Place) -> None:
    place.server.script(Step(tool_calls=[Use(name="terminal", arguments={"command": "touch here"})]), "Good.")
    with place.chat() as chat:
        chat.say("Touch it")
        chat.wait_for("[y]es, [n]o, [a]lways")
        chat.type(chat.CTRL_C)
        chat.wait_for("interrupted")
        chat.say("Never mind")
        chat.wait_for("Good.")
    assert violations(place.sent(), "openai") == []
    assert not (place.workspace / "here").exists()


def test_ctrl_c_stops_a_command(place: Place) -> None:
    place.server.script(Step(tool_calls=[Use(name="terminal", arguments={"command": "echo on; sleep 600"})]), "Hm.")
    with place.chat("--yes") as chat:
        chat.say("Sleep")
        chat.wait_for("running")
        chat.type(chat.CTRL_C)
        chat.wait_for("interrupted")
        chat.say("And now?")
        chat.wait_for("Hm.")
    assert violations(place.sent(), "openai") == []


def test_a_conversation_goes_on_after_a_crash(place: Place) -> None:
    place.server.script("I am Leporello.")
    with place.chat("--session", "mine") as chat:
        chat.say("Who are you?")
        chat.wait_for("I am Leporello.")
        chat.wait_until(chat.listens)
        chat.send(signal.SIGKILL)
        assert chat.exit_code() == -signal.SIGKILL
    with place.chat("--resume") as chat:
        chat.wait_for("I am Leporello.")
        chat.say("And who is your master?")
        chat.wait_until(lambda: chat.text().count("And who is your master?") == 2, "the echo")
    assert [text_of(one) for one in place.sent()[1:]] == ["Who are you?", "I am Leporello.", "And who is your master?"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_chat_that_is_terminated_ends_properly(place: Place, number: signal.Signals) -> None:
    with place.chat("--session", "mine") as chat:
        chat.say("hello")
        chat.wait_until(lambda: chat.text().count("hello") == 2 and chat.listens(), "the echo")
        assert not chat.echoes()
        chat.send(number)
        assert chat.exit_code() == 128 + number
        assert chat.echoes()
        assert "Traceback" not in chat.text()
    store = open_store(place.home / "leporello.db")
    info = store.info("mine")
    store.close()
    assert info is not None
    assert info.ended


def test_the_other_dialect(place: Place) -> None:
    place.environ["ANTHROPIC_API_KEY"] = "key-for-a-test"
    place.server.script(Step(thinking="Hm, a file.", tool_calls=[Use(name="search_files", arguments={"pattern": "*"})]))
    place.server.script("There is nothing.")
    options = ["--model", "claude-sonnet-5", "--provider", "anthropic", "--base-url", place.server.anthropic_url]
    with place.chat(*options) as chat:
        chat.wait_for("💾 Prompt caching: ENABLED (Claude via Anthropic, 5m TTL)")
        chat.say("What is here?")
        chat.wait_for("There is nothing.")
    assert place.server.requests[-1].dialect == "anthropic"


def test_a_refused_key_is_one_line(place: Place) -> None:
    place.server.fail(Failure.BAD_KEY)
    with place.chat() as chat:
        chat.say("Hello?")
        chat.wait_for("/retry asks again")
        assert "Traceback" not in chat.text()
        assert "key-for-a-test" not in chat.text()
        chat.say("/retry")
        chat.wait_for("again: Hello?")
        chat.wait_until(lambda: chat.text().count("Hello?") == 3, "the echo")


def test_an_overloaded_provider_is_asked_again(place: Place) -> None:
    place.server.fail(Failure.OVERLOADED)
    with place.chat() as chat:
        chat.say("Hello?")
        chat.wait_until(lambda: chat.text().count("Hello?") == 2, "the echo")
    assert len(place.server.requests) == 2


def test_a_model_cannot_write_to_the_terminal(place: Place) -> None:
    place.server.script("\x1b]0;owned\x07\x1b[2J\x1b[H\x9b31mred\u202e", "The end.")
    with place.chat() as chat:
        chat.say("Attack")
        chat.wait_for("owned")
        chat.say("More")
        chat.wait_for("The end.")
        assert chat.title() == ""
        assert "Leporello" in chat.text(), "the screen was not cleared"


def test_the_history_keeps_no_copy_of_the_conversation_readable_for_others(place: Place) -> None:
    with place.chat() as chat:
        chat.say("hello")
        chat.wait_until(lambda: chat.text().count("hello") == 2, "the echo")
        chat.type(chat.CTRL_D)
        assert chat.exit_code() == 0
    assert {file.stat().st_mode & 0o077 for file in place.home.iterdir() if file.name != "config.yaml"} == {0}
    with sqlite3.connect(place.home / "leporello.db") as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.parametrize(("word", "told"), [("yes", "Done."), ("no", "As you wish.")])
def test_an_answer_that_is_written_out_is_no_message(place: Place, word: str, told: str) -> None:
    place.server.script(
        Step(tool_calls=[Use(name="terminal", arguments={"command": "sleep 1"})]), told, "You are welcome."
    )
    with place.chat() as chat:
        chat.say("Go")
        chat.wait_until(chat.asks)
        chat.type(f"{word}\r")
        chat.wait_for(told)
        chat.say("Thank you.")
        chat.wait_for("You are welcome.")
    said = [text_of(message) for message in place.sent() if message["role"] == "user"]
    assert said == ["Go", "Thank you."]


def test_ctrl_c_on_an_empty_line_says_how_to_leave(place: Place) -> None:
    with place.chat() as chat:
        chat.wait_until(chat.listens)
        assert HOW_TO_LEAVE not in chat.text()
        chat.type(chat.CTRL_C)
        chat.wait_for(HOW_TO_LEAVE)
        chat.type("half a line")
        chat.wait_until(lambda: HOW_TO_LEAVE not in chat.text())
        chat.type(chat.CTRL_C)
        chat.wait_until(chat.listens)
        assert HOW_TO_LEAVE not in chat.text()


@pytest.mark.parametrize("line", ["/undo now", "/new one", "/cost please"])
def test_an_argument_for_nothing_does_nothing(place: Place, line: str) -> None:
    place.server.script("The answer is 41.")
    with place.chat() as chat:
        chat.say("What is the answer?")
        chat.wait_for("41.")
        chat.say(line)
        chat.wait_for(f"{line.split(maxsplit=1)[0]} takes no argument; nothing was done.")
        chat.say("And now?")
        chat.wait_until(lambda: len(place.server.requests) == 2)
    assert "What is the answer?" in map(text_of, place.sent())
