"""The chat in a real terminal of 60, 80 and 160 columns, with and without colours."""

from __future__ import annotations

import re
import threading
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import pytest

from leporello.messages import text_of
from leporello.store import FOLD, JournalRow, open_store
from leporello.testing.model_server import Failure, ModelServer, Step, Use

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.chat import Place, Terminal

pytestmark = pytest.mark.slow

ANSWER = """\
# Plan

The **parser** reads `tokens` one by one, and says where it went wrong, with the line and the column of it.

- one item that is long enough to be wrapped at a width of sixty columns, I hope
- two

| file | lines |
|------|------:|
| `parser.py` | 120 |

```python
def parse(text):
    return text
```
"""
NOWHERE = "http://127.0.0.1:9/v1"
PROSE = "The parser reads tokens one by one, and says where it went wrong, with the line and the column of it."


@pytest.mark.parametrize("columns", [60, 80, 160])
@pytest.mark.parametrize("colours", [True, False])
def test_an_answer_is_rendered_and_wraps_between_words(place: Place, columns: int, colours: bool) -> None:
    if not colours:
        place.environ["NO_COLOR"] = "1"
    place.server.script(ANSWER)
    with place.chat(columns=columns, lines=60) as chat:
        chat.say("Explain")
        chat.wait_for("return text")
        chat.wait_until(chat.listens)
        lines = chat.text().split("\n")
        assert PROSE in chat.words()
        assert {word for line in lines for word in line.split()} >= set(PROSE.split()), "no word is cut"
        first = next(at for at, line in enumerate(lines) if line.startswith(" • one item"))
        item = lines[first : lines.index(" • two")]
        assert len(item) == (1 if columns == 160 else 2)
        assert all(line.startswith("   ") for line in item[1:]), "the item hangs"
        assert "file        lines" in lines
        assert "  def parse(text):" in lines
        assert ("**" in chat.text(), "```" in chat.text()) == (False, False)
        assert bool(chat.colours()) == colours


def test_a_dumb_terminal_gets_the_same_words(place: Place) -> None:
    place.environ["TERM"] = "dumb"
    place.server.script(ANSWER)
    with place.chat(columns=80, lines=60) as chat:
        chat.type("Explain\r")
        chat.wait_for("return text")
        assert PROSE in chat.words()


@pytest.mark.parametrize("columns", [60, 80, 160])
@pytest.mark.parametrize("colours", [True, False])
def test_the_commands_fit_the_terminal(place: Place, columns: int, colours: bool) -> None:
    if not colours:
        place.environ["NO_COLOR"] = "1"
    place.server.script("The first answer.", "The second answer.")
    with place.chat("--session", "first", columns=columns, lines=80) as chat:
        chat.say("Please look at the harbour, its berths, and everything that was ever written about them")
        chat.wait_for("The first answer.")
        chat.say("/context")
        chat.wait_for("│ folds at 200,000 tokens")
        lines = chat.text().split("\n")
        bar = next(line for line in lines if line.count("·") > 30)
        assert len(bar) == min(columns - 1, 72) + 1, "the bar and the mark of the threshold"
        parts = [line.split() for line in lines if line.endswith(" %") and line[1:3] == "  "]
        assert len({words[0] for words in parts}) == (6 if not colours else 2), "without colours each part has a sign"
        shown = {words[1]: int(words[-3].replace(",", "")) for words in parts}
        assert list(shown) == ["system", "tools", "summaries", "masked", "tail", "free"]
        assert sum(shown.values()) == 400_000
        chat.say("/clear")
        chat.wait_for("first has ended")
        chat.say("/sessions" if colours else "/resume")
        chat.wait_for("Enter chooses")
        row = next(line for line in chat.text().split("\n") if "messages  Please look" in line)
        assert len(row) <= columns
        assert row.endswith("them" if columns == 160 else "…")
        chat.type(chat.ENTER)
        chat.wait_for("resumed  with the model, address, engine and folder it had")
        chat.say("/pin")
        chat.wait_for("Please look at the harbour, its berths,")
        chat.wait_for("pinned: ")
        assert bool(chat.colours()) == colours
        chat.say({60: "quit", 80: "/quit", 160: "exit"}[columns])
        assert chat.exit_code() == 0


def _remember_a_fold(place: Place, name: str) -> None:
    """Let an earlier fold with a model tell how long the next one may take."""
    store = open_store(place.home / "leporello.db")
    report = {"status": "folded", "seconds": 6.0, "tokens_before": 3_000, "model_calls": 1}
    store.record_request(name, JournalRow(reason=FOLD, keep=0, added=(), report=report))
    store.close()


@pytest.mark.parametrize("columns", [60, 80, 160])
@pytest.mark.parametrize("colours", [True, False])
def test_a_turn_that_acts_fits_the_terminal(place: Place, columns: int, colours: bool) -> None:
    """A refusal with its reason, a file that is written and restored, a command with its live output, a fold."""
    if not colours:
        place.environ["NO_COLOR"] = "1"
    (place.workspace / "app.py").write_text("old\n")
    command = "echo begun; while ! test -e go; do sleep 0.05; done; echo ended"
    place.configure(context_length=16_000)
    place.remember("long", 20)
    _remember_a_fold(place, "long")
    looked = threading.Event()

    def summarise(_request: object) -> str:
        assert looked.wait(60)
        return "## Goal\nTo look at every part in detail.\n"

    place.server.script(
        Step(tool_calls=[Use(name="terminal", arguments={"command": "touch here"})]),
        "I see.",
        Step(tool_calls=[Use(name="write_file", arguments={"path": "app.py", "content": "new\n"})]),
        Step(tool_calls=[Use(name="terminal", arguments={"command": command})]),
        "Done.",
        summarise,
    )
    with place.chat("--session", "long", columns=columns, lines=90) as chat:
        chat.say("Touch it")
        chat.wait_until(chat.asks)
        chat.type("t")
        chat.wait_for("Why not, or what instead?")
        chat.type("only look, do not touch\r")
        chat.wait_for("I see.")
        assert text_of(place.sent()[-1]).endswith("They said: only look, do not touch")
        chat.say("Write it, then run it")
        for title in ("⚙ write app.py", "⚙ run: echo begun"):
            chat.wait_for(title)
            chat.wait_until(chat.asks)
            chat.type("y")
        chat.wait_until(lambda: "    begun\n" in chat.text(), "the output so far")
        assert "    ended\n" not in chat.text()
        (place.workspace / "go").touch()
        chat.wait_for("Done.")
        chat.say("/undo")
        chat.wait_for("app.py was written in this turn")
        chat.wait_for("commands ran in this turn; what they changed is not known, and stays")
        chat.wait_for("Put the files back as they were? [y]es")
        chat.type("y")
        chat.wait_for("app.py is as it was")
        chat.say("/compact")
        chat.wait_for("(asked for) · 0 s of about")
        chat.wait_for("(asked for) · 1 s of about")
        assert len([line for line in chat.text().split("\n") if "folding" in line]) == 1, "the spinner changes in place"
        looked.set()
        chat.wait_for("❖ folded")
        chat.wait_for("left: a summary of")
        assert "of about" not in chat.words(), "the spinner is gone"
        for said in ("/cost", "/usage"):
            chat.say(said)
            chat.wait_for("altogether")
            chat.wait_until(chat.listens)
        assert bool(chat.colours()) == colours
    assert (place.workspace / "app.py").read_text() == "old\n"
    assert not (place.workspace / "here").exists()


def test_the_output_of_a_command_is_shown_while_it_runs(place: Place) -> None:
    """The command waits for a file that the test makes only when it has seen the output."""
    command = "echo begun; echo 'two'; while ! test -e go; do sleep 0.05; done; echo ended"
    place.server.script(Step(tool_calls=[Use(name="terminal", arguments={"command": command})]), "Done.")
    with place.chat("--yes") as chat:
        chat.say("Run it")
        chat.wait_until(lambda: "    begun\n    two\n" in chat.text(), "the output so far")
        assert "    ended\n" not in chat.text()
        (place.workspace / "go").touch()
        chat.wait_for("[exit code 0]")
        chat.wait_for("Done.")
        assert chat.text().count("    begun\n") == 1, "the live view is gone, the result stands there"


def test_of_a_long_output_the_beginning_and_the_end_stay(place: Place) -> None:
    place.server.script(Step(tool_calls=[Use(name="terminal", arguments={"command": "seq 1 40; exit 3"})]), "Hm.")
    with place.chat("--yes") as chat:
        chat.say("Count")
        chat.wait_for("Hm.")
        assert "    1\n    2\n    3\n    … 35 more lines\n    39\n    40\n    [exit code 3]\n" in chat.text()


@pytest.mark.parametrize("columns", [60, 80, 160])
@pytest.mark.parametrize("colours", [True, False])
def test_a_provider_that_cannot_be_reached_takes_one_line(place: Place, columns: int, colours: bool) -> None:
    place.environ["NO_COLOR"] = "" if colours else "1"
    with place.chat("--base-url", NOWHERE, columns=columns) as chat:
        chat.say("Hello?")
        for attempt in (2, 3):
            chat.wait_for(f"attempt {attempt} of 5, in")
            said = [line for line in chat.text().split("\n") if "· attempt" in line]
            assert len(said) == 1, "the line changes, it is not repeated"
        chat.type(chat.CTRL_C)
        chat.wait_for("interrupted")
        assert bool(chat.colours()) == colours


def test_a_provider_that_cannot_be_reached_has_a_remedy(place: Place) -> None:
    """Six terminals at once: all attempts take a while."""
    with ExitStack() as stack:
        chats = []
        for columns in (60, 80, 160):
            for colours in (True, False):
                place.environ["NO_COLOR"] = "" if colours else "1"
                chat = stack.enter_context(place.chat("--base-url", NOWHERE, columns=columns))
                chat.say("Hello?")
                chats.append((chat, colours))
        for chat, colours in chats:
            chat.wait_for(f"Is the server at {NOWHERE} running? --base-url or model.base_url gives another address.")
            chat.wait_for("/retry asks again")
            assert "· attempt" not in chat.text()
            assert bool(chat.colours()) == colours


@pytest.mark.parametrize("columns", [60, 80, 160])
@pytest.mark.parametrize("colours", [True, False])
def test_a_refused_key_names_the_variable_that_it_came_from(place: Place, columns: int, colours: bool) -> None:
    place.environ["NO_COLOR"] = "" if colours else "1"
    place.server.fail(Failure.BAD_KEY)
    with place.chat(columns=columns) as chat:
        chat.say("Hello?")
        chat.wait_for("The key is the one in the environment variable OPENAI_API_KEY.")
        assert "key-for-a-test" not in chat.text()
        assert bool(chat.colours()) == colours


@pytest.mark.parametrize("columns", [60, 80, 160])
@pytest.mark.parametrize("colours", [True, False])
def test_a_resumed_conversation_keeps_what_it_had(place: Place, columns: int, colours: bool) -> None:
    place.environ["NO_COLOR"] = "" if colours else "1"
    other = place.workspace / "other"
    other.mkdir()
    with ModelServer() as elsewhere:
        elsewhere.script("Hello.", "It is in `parse`.")
        had = ("--model", "gpt-5", "--engine", "lcm", "--workspace", "other", "--base-url", elsewhere.openai_url)
        assert place.run("--session", "mine", *had, "-p", "Hello").returncode == 0
        with place.chat("--session", "mine", columns=columns) as chat:
            chat.wait_until(chat.listens)
            head = [line.strip() for line in chat.text().split("\n")]
            assert any(line.startswith("engine   lcm, folds at ") for line in head)
            assert "resumed  with the model, address, engine and folder it had" in head
            model = f"model    gpt-5 (openai at {elsewhere.openai_url}), window 400,000 tokens"
            assert (model in head) == (len(model) < columns)
            assert model in chat.words().replace("model ", "model    ")
            assert f"folder   {other}" in "".join(head), "no part of it is lost"
            chat.say("And now?")
            chat.wait_for("It is in parse.")
            assert (elsewhere.requests[-1].body["model"], place.server.requests) == ("gpt-5", [])
            assert bool(chat.colours()) == colours


def test_options_come_before_what_a_conversation_had(place: Place) -> None:
    assert place.run("--session", "mine", "--model", "gpt-5", "--engine", "lcm", "-p", "Hello").returncode == 0
    with place.chat("--session", "mine", "--model", "gpt-5-mini") as chat:
        chat.wait_for("resumed  with the engine and folder it had")
        chat.wait_for("model    gpt-5-mini")
    with place.chat("--session", "another") as chat:
        chat.wait_until(chat.listens)
        assert "resumed  with" not in chat.text()
        assert "engine   compressor" in chat.text()


def test_what_was_noted_is_for_its_owner_alone_and_holds_no_password(place: Place) -> None:
    address = place.server.openai_url.replace("http://", "http://user:secret-word@")
    with place.chat("--session", "mine", "--base-url", address) as chat:
        chat.say("Hello")
        chat.wait_until(lambda: chat.text().count("Hello") == 2, "the echo")
    (file,) = (place.home / "chats").iterdir()
    assert file.stat().st_mode & 0o077 == 0
    assert "secret-word" not in file.read_text()


@pytest.mark.parametrize("columns", [60, 80, 160])
def test_lines_of_the_chat_hang_below_their_text(place: Place, columns: int) -> None:
    """No word is cut, what is continued stands below its text, and the status line has no half of a name."""
    with place.chat("--session", "mine", "--workspace", ".", columns=columns) as chat:
        chat.say("Hello")
        chat.wait_until(lambda: chat.text().count("Hello") == 2, "the echo")
        chat.wait_until(lambda: "$" in chat.text(), "the status line with the cost")
        lines = chat.text().split("\n")
        start = next(at for at, line in enumerate(lines) if line.startswith("tools "))
        hanging = [line for line in lines[start + 1 : start + 3] if not line.startswith("folder ")]
        assert "asks before it runs or writes" in chat.words()
        assert all(line.startswith(" " * 9) for line in hanging if "writes" in line or "asks" in line)
        status = next(line for line in reversed(lines) if "tokens · " in line)
        assert status.endswith("· gpt-5-mini")
        assert ("compressor" in status) == (columns > 60)
        chat.say("exit")
        chat.wait_for("resumes this conversation")


def test_what_the_chat_says_next_is_a_whole_command(place: Place, tmp_path: Path) -> None:
    """Conversations in another store than the usual one are found there again."""
    file = tmp_path / "a store.db"
    with place.chat("--store", str(file), "--session", "mine") as chat:
        chat.say("Hello " + "there " * 200)
        chat.wait_until(lambda: chat.text().count("Hello") == 2, "the echo")
        for _ in range(2):
            chat.say("And more " + "of it " * 200)
            chat.wait_until(chat.listens)
        chat.say("/compress")
        chat.wait_for("finds it")
        found = re.search(r"`(leporello grep .*?)` finds it", chat.words())
        assert found
        assert found[1] == f"leporello grep WORDS --conversation mine --store '{file}'"
        chat.say("exit")
        chat.wait_for("resumes this conversation")
        assert f"leporello chat --session mine --store '{file}' resumes this conversation" in chat.words()


def test_conversations_with_one_title_are_told_apart(place: Place) -> None:
    store = open_store(place.home / "leporello.db")
    for name, said in (
        ("first", "Hello"),
        ("20261119-152100-3ccbad", "Hello"),
        ("third", "Something else"),
    ):
        store.append(name, [{"role": "user", "content": said}])
    store.close()
    with place.chat("--session", "first", columns=60) as chat:
        chat.say("/resume")
        chat.wait_for("Enter chooses")
        rows = [line.split("message  ")[1] for line in chat.text().split("\n") if "1 message" in line]
        assert sorted(rows) == ["Hello (first)", "Hello (…3ccbad)", "Something else"]
        chat.type("q")


@pytest.mark.parametrize("columns", [60, 80, 160])
@pytest.mark.parametrize("colours", [True, False])
def test_a_list_that_is_longer_than_the_screen_is_scrolled(place: Place, columns: int, colours: bool) -> None:
    """What the list is, which keys there are, and the chosen row stay in sight; a row is one line."""
    place.environ["NO_COLOR"] = "" if colours else "1"
    store = open_store(place.home / "leporello.db")
    for number in range(40):
        said = f"Question {number} about the harbour, its berths, its cranes and whom they belong to"
        store.append(f"c{number}", [{"role": "user", "content": said}])
    store.close()
    with place.chat("--session", "mine", columns=columns, lines=16) as chat:
        chat.say("/resume" if colours else "/sessions")
        chat.wait_for("Go on with which conversation?")
        for keys, chosen, out_of_sight in (("j" * 30, 9, 39), ("k" * 29, 38, 9), ("kk", 0, 39)):
            chat.type(keys)
            chat.wait_until(partial(_shows, chat, chosen=chosen, hidden=out_of_sight), f"row {chosen}")
            assert "Go on with which conversation?" in chat.text()
            assert "Enter chooses, q leaves everything as it is" in chat.text()
            rows = [line for line in chat.text().split("\n") if "Question " in line]
            assert len(rows) > 5
            assert all(line.endswith("belong to" if columns == 160 else "…") for line in rows)
        assert colours or not chat.colours()
        chat.type(chat.ENTER)
        chat.wait_for("conversation c0")


def _shows(chat: Terminal, *, chosen: int, hidden: int) -> bool:
    """Tell whether Enter would choose a row of a list, and another row is out of sight."""
    rows = [line for line in chat.text().split("\n") if line.startswith("❯   ")]
    return any(f"Question {chosen} " in row for row in rows) and f"Question {hidden} " not in chat.text()
