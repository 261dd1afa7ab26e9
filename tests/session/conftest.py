"""Sessions that leave nothing behind, and answers as providers send them."""

from __future__ import annotations

import json
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from leporello.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_numbers = count(1)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep every file of a test in its own folder, and no key of the machine in it."""
    monkeypatch.setenv("LEPORELLO_HOME", str(tmp_path / "home"))
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENROUTER_API_KEY", "AUXILIARY_COMPRESSION_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "home"


def _answer(text: str | None = None, *calls: tuple[str, dict[str, Any]], tokens: int = 0, id_: str = "") -> Any:
    """Return a chat completion: a text, calls, and the count of the request."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            {
                "id": id_ or f"call_{next(_numbers)}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for name, arguments in calls
        ]
    usage = {"prompt_tokens": tokens, "completion_tokens": 10} if tokens else None
    return {"id": "answer", "model": "m", "choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}


@pytest.fixture
def answer() -> Callable[..., Any]:
    """Make chat completions."""
    return _answer


@pytest.fixture
def opened() -> Iterator[Callable[..., Session]]:
    """Open sessions in memory, and close them at the end; what is told is kept in `session.told`."""
    sessions: list[Session] = []

    def make(session_id: str | None = "talk", **options: Any) -> Session:
        told: list[Any] = []
        given = {"config": {}, "store": ":memory:", "context_length": 100_000, "model": "m", "on_event": told.append}
        session = Session.open(session_id, **{**given, **options})
        session.told = told  # type: ignore[attr-defined]
        sessions.append(session)
        return session

    yield make
    for session in sessions:
        session.close()
