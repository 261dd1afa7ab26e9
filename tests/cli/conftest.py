"""A store with a folded conversation, and the command line in this process."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from leporello import LCMEngine
from leporello.cli import main
from leporello.tokens import count_messages

if TYPE_CHECKING:
    from leporello.messages import Message


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Leporello(Protocol):
    """The command line."""

    def __call__(self, *arguments: str | Path) -> Outcome: ...


@pytest.fixture
def leporello(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Leporello:
    """Run a command as a user does, with a home folder of its own that does not exist yet."""
    monkeypatch.setenv("LEPORELLO_HOME", str(tmp_path / "home"))

    def run(*arguments: str | Path) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["leporello", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return Outcome(code=int(ended.value.code or 0), out=captured.out, err=captured.err)

    return run


def harbour_talk() -> list[Message]:
    """Return a conversation of 90 messages: thirty files are read; two things are said once and never again."""
    messages: list[Message] = []
    for number in range(30):
        said = f"Please look at src/harbour/part_{number:02d}.py"
        said += ". Ticket PORT-2291, booking 8c1f2e6a-41d7-4c55-9f0e-2b7a6d90e113." if number == 4 else "."
        call = {"name": "read_file", "arguments": json.dumps({"path": f"src/harbour/part_{number:02d}.py"})}
        messages += [
            {"role": "user", "content": said, "x_mood": "curious"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"call_{number}", "type": "function", "function": call}],
            },
            {"role": "tool", "tool_call_id": f"call_{number}", "content": f"def part_{number:02d}(): ...\n" * 120},
        ]
    return messages


@pytest.fixture
def talk() -> list[Message]:
    """Return the conversation that is stored as `harbour`."""
    return harbour_talk()


@pytest.fixture(scope="session")
def _folded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("folded") / "leporello.db"
    engine = LCMEngine(16_000, store=path, config={"leaf_tokens": 2_000})
    engine.on_session_start("harbour")
    window: list[Message] = []
    for message in harbour_talk():
        window.append(message)
        tokens = count_messages(window)
        if message["role"] != "assistant" and engine.should_compress(tokens):
            window = engine.compress(window, current_tokens=tokens)
    engine.on_session_end("harbour", window)
    engine.close()
    assert engine.compression_count, "the conversation is long enough to be folded"
    return path


@pytest.fixture
def folded(_folded: Path, tmp_path: Path) -> Path:
    """Return a store with the conversation `harbour`, folded by the lossless engine; each test has a copy."""
    return Path(shutil.copy(_folded, tmp_path / "leporello.db"))
