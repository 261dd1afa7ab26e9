"""The chat among strange surroundings: outputs that are closed or full, folders that are gone, keys that are none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from leporello.testing.model_server import Failure, Step, Use

if TYPE_CHECKING:
    from tests.fixtures.chat import Place

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("option", ["", "--json"])
def test_an_output_that_is_closed_is_no_failure(place: Place, option: str) -> None:
    ran = place.shell(f"$chat {option} hi </dev/null >&-")
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("option", ["", "--json"])
def test_an_output_that_is_full_is_one_line(place: Place, option: str) -> None:
    ran = place.shell(f"$chat {option} hi </dev/null >/dev/full")
    told = "leporello: the answer cannot be written: No space left on device; the conversation keeps what came\n"
    assert (ran.returncode, ran.stderr) == (1, told)


def test_a_reader_who_has_enough_is_told_nothing(place: Place) -> None:
    place.server.script("word " * 100_000)
    ran = place.shell("$chat hi </dev/null | head -c 5")
    assert (ran.stdout, ran.stderr) == ("word ", "")


def test_a_folder_that_is_gone_is_one_line(place: Place) -> None:
    ran = place.shell('mkdir gone; cd gone; rmdir "$PWD"; $chat hi </dev/null')
    assert (ran.returncode, ran.stderr) == (
        2,
        "leporello: the workspace . cannot be used: No such file or directory\n",
    )


def test_what_could_not_be_stored_stands_on_a_line_of_its_own(place: Place) -> None:
    (place.workspace / "file").touch()
    ran = place.shell("$chat --store file/leporello.db hi </dev/null 2>&1")
    assert "Traceback" not in ran.stdout
    assert ran.returncode == 2
    assert "\nleporello: " in f"\n{ran.stdout}"


def test_a_session_without_a_name_is_a_mistake(place: Place) -> None:
    assert "--session needs the name of a conversation" in place.run("--session", " ", "hi").stderr


def test_a_key_that_is_none_is_said_and_not_repeated(place: Place) -> None:
    place.environ["OPENAI_API_KEY"] = "sk-first-half\nsecond-half"
    ran = place.run("hi")
    assert ran.returncode == 2
    assert "the key in OPENAI_API_KEY holds a space, a line end" in ran.stderr
    assert "half" not in ran.stderr


def test_a_failure_names_the_address_without_its_password(place: Place) -> None:
    place.server.fail(Failure.UNKNOWN_MODEL)
    address = place.server.openai_url.replace("://", "://me:password@")
    ran = place.run("--base-url", address, "hi")
    assert f"openai at {place.server.openai_url.replace('://', '://…@')} answered 404" in ran.stderr
    assert "password" not in ran.stderr


def test_a_provider_at_its_own_address_is_greeted_by_its_name(place: Place) -> None:
    place.configure(auxiliary={})
    (place.home / "config.yaml").unlink()
    with place.chat() as chat:
        chat.wait_for("gpt-5-mini (openai), window 400,000 tokens")


def test_without_anything_set_the_first_step_is_said(place: Place) -> None:
    (place.home / "config.yaml").unlink()
    del place.environ["OPENAI_API_KEY"]
    told = place.run("hi").stderr
    assert "Set a key, one of OPENROUTER_API_KEY, OPENAI_API_KEY, ANTHROPIC_API_KEY" in told
    assert "chat --local" in told


def test_an_address_without_a_model_says_how_to_name_one(place: Place) -> None:
    (place.home / "config.yaml").unlink()
    told = place.run("--base-url", place.server.openai_url, "hi").stderr
    assert "Name it with --model" in told or "config set model.default NAME" in told


def test_what_is_pasted_answers_no_question(place: Place) -> None:
    call = Use(name="terminal", arguments={"command": "touch here"})
    place.server.script(Step(tool_calls=[call]), "As you wish.")
    with place.chat() as chat:
        chat.say("Go")
        chat.wait_until(chat.asks)
        chat.type("\x1b[200~yes\r\x1b[201~x")
        chat.type("N")
        chat.wait_for("As you wish.")
        assert "[t]ell why not: no" in chat.text()
    assert not (place.workspace / "here").exists()


def test_a_hidden_end_of_a_line_can_be_viewed(place: Place) -> None:
    call = Use(name="write_file", arguments={"path": "a.txt", "content": "x" * 2_000 + " covert\n"})
    place.server.script(Step(tool_calls=[call]), "As you wish.")
    with place.chat() as chat:
        chat.say("Go")
        chat.wait_for("[v]iew all")
        assert "covert" not in chat.words()
        chat.type("v")
        chat.wait_for("covert")
        chat.wait_until(chat.asks)
        chat.type("n")
        chat.wait_for("As you wish.")


def test_a_slash_alone_is_no_message(place: Place) -> None:
    with place.chat() as chat:
        chat.say("/")
        chat.wait_for("/help shows them all")
    assert place.server.requests == []


def test_ctrl_c_while_it_starts_is_no_riddle(place: Place) -> None:
    """The moments are spread over the start: an interrupt inside a package would come out as an error of its own."""
    assert not [told for part in range(1, 8) if "SchemaError" in (told := place.interrupted(0.1 * part, "hi"))]
