"""`leporello demo`: what it shows is true."""

from __future__ import annotations

import json

from click.testing import CliRunner

from leporello.cli.demo import command
from leporello.messages import violations
from leporello.summary.extract import extract_summary
from leporello.testing.demo_conversation import demo_conversation
from leporello.tokens import count_messages


def test_the_conversation_is_long_valid_and_always_the_same() -> None:
    story = demo_conversation()
    assert story == demo_conversation()
    assert 200 <= len(story.messages) <= 500
    assert 120_000 <= count_messages(story.messages) <= 180_000
    assert not violations(story.messages, "openai")
    assert not violations(story.messages, "anthropic")


def test_the_extractive_summary_holds_every_path_every_error_and_the_last_instruction() -> None:
    story = demo_conversation()
    summary = extract_summary(story.messages, budget_tokens=10_000)
    missing = [exact for exact in (*story.paths, *story.errors, story.last_instruction) if exact not in summary]
    assert not missing


def test_that_check_can_fail() -> None:
    story = demo_conversation()
    without_outputs = [
        message | {"content": "…"} if message["role"] == "tool" else message for message in story.messages
    ]
    summary = extract_summary(without_outputs, budget_tokens=10_000)
    assert any(error not in summary for error in story.errors)


def test_the_figures_are_those_of_the_engine() -> None:
    done = CliRunner().invoke(command, ["--json", "--window", "128000"])
    figures = json.loads(done.output)
    assert figures["messages"] == len(demo_conversation().messages)
    assert figures["largest_window"] < 128_000
    assert figures["window_tokens"] < 64_000
    assert len(figures["compactions"]) >= 2
    assert figures["kept"] == {"file paths": "32 of 32", "errors": "8 of 8", "the last instruction": "word for word"}


def test_without_a_terminal_it_prints_a_table() -> None:
    done = CliRunner().invoke(command, [])
    assert done.exit_code == 0
    assert "Before and after" in done.output
    assert "32 of 32" in done.output
