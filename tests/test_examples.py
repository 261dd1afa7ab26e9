"""Every example runs as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_no_example_is_forgotten() -> None:
    assert {path.name for path in EXAMPLES.iterdir() if not path.name.startswith(("_", "."))} == {
        "keep_last_engine",  # run by its own test and by the plugin tests
        "agent_with_own_tool.py",
        "branches.py",
        "gateway_bot.py",
        "mcp_client.py",
        "own_loop.py",
        "session_anthropic.py",
        "session_async.py",
        "session_openai.py",
        "session_own_engine.py",
        "session_responses.py",
        "session_streaming.py",
    }


def test_own_loop_finishes_its_task_with_few_compactions() -> None:
    output = run("own_loop.py")
    assert "The log is in order." in output
    found = re.search(r"(\d+) requests, (\d+) compactions", output)
    assert found
    requests, compactions = int(found[1]), int(found[2])
    assert requests == 61
    assert 2 <= compactions <= requests / 4


def test_a_session_with_the_openai_client_finishes_its_task() -> None:
    output = run("session_openai.py")
    assert "The log is in order." in output
    found = re.search(r"61 requests, (\d+) compactions", output)
    assert found
    assert 2 <= int(found[1]) <= 15


def test_a_session_with_the_responses_api_finishes_its_task() -> None:
    output = run("session_responses.py")
    assert "The log is in order." in output
    found = re.search(r"61 requests, (\d+) compactions", output)
    assert found
    assert 2 <= int(found[1]) <= 15


def test_a_session_with_the_anthropic_client_finds_what_was_folded_and_says_what_it_cost() -> None:
    output = run("session_anthropic.py")
    assert "Prompt caching: ENABLED (Claude via Anthropic, 5m TTL)" in output
    assert "Container 0315 was moved on page 3." in output
    assert re.search(r"62 requests, \d+ compactions, [5-9]\d% from the cache, \$0\.\d\d", output)


def test_an_async_session_holds_many_conversations_at_once() -> None:
    assert run("session_async.py").split("\n")[:5] == [f"visitor {n}: And who was he?" for n in range(5)]


def test_a_streamed_answer_can_be_stopped_and_the_conversation_goes_on() -> None:
    output = run("session_streaming.py")
    assert "(stopped)" in output
    assert "It is also the name of a servant, who kept a catalogue." in output
    assert "['user', 'assistant', 'user', 'assistant']" in output


def test_an_engine_of_ones_own_folds_while_the_store_keeps_everything() -> None:
    found = re.search(r"(\d+) messages in the window, 60 in the store, (\d+) compactions", run("session_own_engine.py"))
    assert found
    assert int(found[1]) < 20
    assert 2 <= int(found[2]) <= 10


def test_a_bot_hears_everything_and_answers_when_it_is_called() -> None:
    assert run("gateway_bot.py").splitlines()[-2:] == [
        "ada: @bot who writes the notes?",
        "bot: ada: @bot who writes the notes?",
    ]


def test_a_forked_conversation_copies_nothing_and_is_not_folded_again() -> None:
    lines = run("branches.py").splitlines()
    assert lines[0] == "39 messages in the window after 1 compaction"
    assert "  the request begins with all 38 messages of the one before: True" in lines
    assert lines[-5:] == [
        "  branch 1, the first: 68 messages: Page 33 is in order.",
        "  branch 2, from 1 behind m68: 68 messages: Page 33 is in order, but crane 3 was slow.",
        "  branch 3, from 2 behind m70: 70 messages: The harbour log",
        "  branch 4, from 1 behind m67: 68 messages, head: Ada is on duty.",
        "73 messages stored, 0 more compactions",
    ]


def test_an_mcp_client_finds_what_was_said() -> None:
    lines = run("mcp_client.py").splitlines()
    assert lines[0] == "tools: lcm_grep, lcm_describe, lcm_expand, lcm_expand_query, lcm_artifacts, lcm_status"
    assert lines[1].startswith("found: m")
    assert lines[2] == "said: The spare lamp hangs at hook Q-17."
