"""`leporello demo`: what it shows is true."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from leporello.cli.demo import command
from leporello.cli.demo_show import Demonstration
from leporello.messages import violations
from leporello.redact import redact_messages
from leporello.store import open_store
from leporello.summary.extract import extract_summary
from leporello.testing.demo_conversation import demo_conversation
from leporello.tokens import count_messages

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.cli import Leporello

pytestmark = pytest.mark.slow

ANSWERS = {
    "Which berth got two containers at the same time?": "berth B-17",
    "PORT-2291": "Ticket PORT-2291",
    "8c1f2e6a-41d7-4c55-9f0e-2b7a6d90e113": "booking 8c1f2e6a-41d7-4c55-9f0e-2b7a6d90e113",
    "src/harbour/webhooks/signing.py": "src/harbour/webhooks/signing.py",
}


@pytest.fixture(scope="module")
def figures() -> dict[str, Any]:
    """Return what one whole demonstration says about itself."""
    done = CliRunner().invoke(command, ["--json", "--window", "128000"])
    assert done.exit_code == 0
    told: dict[str, Any] = json.loads(done.output)
    return told


def test_the_conversation_is_long_valid_and_always_the_same() -> None:
    story = demo_conversation()
    assert story == demo_conversation()
    assert 200 <= len(story.messages) <= 500
    assert 120_000 <= count_messages(story.messages) <= 180_000
    assert not violations(story.messages, "openai")
    assert not violations(story.messages, "anthropic")


def test_the_extractive_summary_holds_every_path_every_error_and_the_last_instruction() -> None:
    story = demo_conversation()
    summary = extract_summary(redact_messages(story.messages), budget_tokens=10_000)
    missing = [exact for exact in (*story.paths, *story.errors, story.last_instruction) if exact not in summary]
    assert not missing


def test_that_check_can_fail() -> None:
    story = demo_conversation()
    without_outputs = [
        message | {"content": "…"} if message["role"] == "tool" else message for message in story.messages
    ]
    summary = extract_summary(redact_messages(without_outputs), budget_tokens=10_000)
    assert any(error not in summary for error in story.errors)


def test_the_figures_are_those_of_the_engine(figures: dict[str, Any]) -> None:
    assert figures["messages"] == len(demo_conversation().messages)
    for side in (figures, figures["lcm"]):
        assert side["largest_window"] < 128_000
        assert side["window_tokens"] < 64_000
        assert len(side["compactions"]) >= 2
        assert all(report["tokens_after"] < report["tokens_before"] for report in side["compactions"])


def test_what_matters_is_still_in_the_window(figures: dict[str, Any]) -> None:
    expected = {
        "file paths": "32 of 32",
        "file paths, in context": "32 of 32",
        "errors": "8 of 8",
        "the last instruction": "word for word",
    }
    assert figures["kept"] == expected
    assert figures["lcm"]["kept"] == expected


def test_questions_about_folded_turns_are_answered_from_the_store(figures: dict[str, Any]) -> None:
    best = {answer["question"]: answer["hits"][0] for answer in figures["answers"]}
    assert best.keys() == ANSWERS.keys()
    for question, expected in ANSWERS.items():
        assert expected in best[question]["snippet"]
        assert best[question]["node"], "the message is folded"


def test_every_message_unfolds_word_for_word(figures: dict[str, Any]) -> None:
    assert figures["findings"] == []
    assert figures["word_for_word"] == "322 of 322"


def test_a_loss_would_be_shown(tmp_path: Path) -> None:
    store = open_store(tmp_path / "demo.db")
    show = Demonstration.of(demo_conversation(), 128_000, store)
    for message in show.story.messages:
        show.step(message)
    assert (show.verified(), show.word_for_word()) == ([], "322 of 322")
    store.close()
    with closing(sqlite3.connect(tmp_path / "demo.db")) as connection:
        connection.execute("DELETE FROM messages WHERE seq = 40")
        connection.commit()
    assert any("seq 40" in finding.problem for finding in show.verified())
    assert show.word_for_word() != "322 of 322"
    store.close()


def test_without_a_terminal_it_prints_tables_for_both_engines() -> None:
    environment = {**os.environ, "COLUMNS": "120"}
    done = subprocess.run(
        [sys.executable, "-c", "from leporello.cli import main; main()", "demo"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    for text in ("Before and after", "compressor, fold 1", "lcm, fold 1", "m42 in n", "berth B-17", "PORT-2291"):
        assert text in done.stdout
    assert done.stdout.count("32 of 32") == 4
    assert "✓ verified: nothing is lost; 322 of 322 messages unfold word for word" in done.stdout


def test_a_demonstration_in_a_store_can_be_explored(leporello: Leporello, tmp_path: Path) -> None:
    store = tmp_path / "demo.db"
    shown = json.loads(leporello("demo", "--json", "--store", store).out)
    stored = json.loads(leporello("sessions", "show", "demo", "--json", "--store", store).out)
    assert stored["window_tokens"] == shown["lcm"]["window_tokens"]
    assert leporello("verify", "--store", store).code == 0
    assert leporello("grep", "PORT-2291", "--store", store).code == 0
    again = leporello("demo", "--json", "--store", store)
    assert (again.code, "there is a conversation 'demo' already" in again.err) == (2, True)
