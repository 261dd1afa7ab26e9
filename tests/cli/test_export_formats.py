"""`leporello sessions export --format`: providers and Claude Code take what is written."""

from __future__ import annotations

import json
import stat
import uuid
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from tests.fixtures.foreign import tool_turns

from leporello.messages import from_anthropic, violations
from leporello.store import open_store
from leporello.transcripts import read_transcripts

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.cli import Leporello

    from leporello.messages import Message

TALK: list[Message] = [
    {"role": "system", "content": "Be brief."},
    *tool_turns("t", 2),
    {"role": "user", "content": "Naïve \ud83d?", "timestamp": "2026-03-01T10:00:00+00:00"},
    {"role": "system", "content": "It rains."},
    {"role": "assistant", "content": "", "tool_calls": [tool_turns("open", 1)[1]["tool_calls"][0]]},
]


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """Return a store with a conversation that is broken off in the middle of a call."""
    with closing(open_store(tmp_path / "s.db")) as store:
        store.append("talk", TALK)
    return tmp_path / "s.db"


def export(leporello: Leporello, store: Path, *options: str | Path, key: str = "talk") -> str:
    done = leporello("sessions", "export", key, "--store", store, *options)
    assert done.code == 0, done.err
    return done.out


def said(messages: list[Any]) -> list[tuple[str, Any]]:
    """Return roles and texts, without the system prompt."""
    return [(one["role"], one.get("content") or "") for one in messages if one["role"] != "system"]


def test_the_openai_format_is_what_the_api_takes(leporello: Leporello, kept: Path) -> None:
    messages = json.loads(export(leporello, kept, "--format", "openai"))["messages"]
    assert violations(messages, "openai") == []
    assert violations(TALK, "openai") != [], "it was repaired"
    assert said(messages)[:8] == said(TALK)[:8]
    assert not any("timestamp" in one for one in messages)


def test_the_anthropic_format_is_what_the_api_takes(leporello: Leporello, kept: Path) -> None:
    request = json.loads(export(leporello, kept, "--format", "anthropic"))
    assert request["system"][0]["text"] == "Be brief."
    assert violations(from_anthropic(request), "anthropic") == []


def test_a_log_of_claude_code_is_read_back_as_what_was_said(leporello: Leporello, kept: Path, tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(export(leporello, kept, "--format", "claude-code"))
    (read,) = read_transcripts(tmp_path / "log.jsonl")
    assert read.format == "claude-code"
    assert [one["role"] for one in read.messages[:8]] == [one["role"] for one in TALK[1:9]]
    assert [one.get("tool_calls") for one in read.messages[:8]] == [one.get("tool_calls") for one in TALK[1:9]]
    records = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [one["parentUuid"] for one in records] == [None, *(one["uuid"] for one in records[:-1])]
    assert [one["timestamp"] for one in records] == sorted(one["timestamp"] for one in records)


def test_the_log_is_put_where_claude_code_looks_for_it(
    leporello: Leporello, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    project = tmp_path / "my_port.app"
    project.mkdir()
    options = ("sessions", "export", "talk", "--format", "claude-code", "--project", project, "--store", kept)
    done = leporello(*options)
    (log,) = (tmp_path / "claude" / "projects").rglob("*.jsonl")
    assert log.parent.name == "".join(sign if sign.isalnum() else "-" for sign in str(project))
    assert f"claude --resume {uuid.UUID(log.stem)}" in done.err
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert leporello(*options).code == 2, "a log that is there is never written over"


def test_a_folded_window_can_be_taken_along(leporello: Leporello, folded: Path) -> None:
    window = json.loads(export(leporello, folded, "--format", "openai", "--window", key="harbour"))["messages"]
    whole = json.loads(export(leporello, folded, "--format", "openai", key="harbour"))["messages"]
    assert len(window) < len(whole)
    assert window[-1]["content"] == whole[-1]["content"]
    assert violations(window, "openai") == []


@pytest.mark.parametrize(
    "options",
    [["--bundle", "--format", "openai"], ["--window"], ["--project", "."], ["--format", "openai", "--project", "."]],
)
def test_options_that_contradict_each_other_are_refused(leporello: Leporello, kept: Path, options: list[str]) -> None:
    assert leporello("sessions", "export", "talk", "--store", kept, *options).code == 2
