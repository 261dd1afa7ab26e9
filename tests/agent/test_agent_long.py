"""A long task in a small window: the agent folds on the way, and nobody refuses a request."""

import os
from pathlib import Path
from typing import Any

import pytest

from leporello.agent import ToolFinished, TurnEnded, open_agent
from leporello.events import CompactionFinished, Event
from leporello.testing.model_server import ModelServer, ReceivedRequest, Step, Use

REQUESTS = 40
NEEDLE = "needle-7703"


class Worker:
    """Plays a model that reads a log page by page, and at the end looks for something it saw at the beginning."""

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self._asked = 0

    def __call__(self, request: ReceivedRequest) -> Any:
        if not request.tools:  # the summariser
            return "## Goal\nRead the log.\n"
        self._asked += 1
        if self._asked >= REQUESTS:
            return "The log is read."
        if self._asked == REQUESTS - 1 and self._engine == "lcm":
            return Step(tool_calls=[Use(name="lcm_grep", arguments={"query": NEEDLE})])
        page = Use(name="read_file", arguments={"path": "log.txt", "offset": self._asked * 5, "limit": 40})
        command = Use(name="terminal", arguments={"command": f"echo needle-{7700 + self._asked}"})
        return Step(tool_calls=[page, command])


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["compressor", "lcm"])
@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
def test_a_long_task_in_a_small_window(root: Path, dialect: str, engine: str) -> None:
    (root / "log.txt").write_text("".join(f"{n}: crane {n * 7} moved container {n * 13}\n" for n in range(400)))
    environ = {"PATH": os.environ["PATH"], "OPENAI_API_KEY": "k" * 10, "ANTHROPIC_API_KEY": "k" * 10}
    with ModelServer(then=Worker(engine), window=16_000) as server:
        url = server.openai_url if dialect == "openai" else server.anthropic_url
        with open_agent(
            workspace=root,
            model="m",
            provider=dialect,
            base_url=url,
            context_length=16_000,
            engine=engine,
            store=":memory:",
            config={},
            confirm=lambda _: True,
            unbounded=True,
            environ=environ,
        ) as agent:
            events: list[Event] = list(agent.ask("Read the whole log, page by page."))
            assert events[-1] == TurnEnded(session_id=agent.session.id, reason="done", requests=REQUESTS)
    assert sum(isinstance(event, CompactionFinished) for event in events) >= 2
    assert not any(event.failed for event in events if isinstance(event, ToolFinished))
    own = [request.messages for request in server.requests if request.tools]
    for messages in own:
        assert any(message.get("content") == "Read the whole log, page by page." for message in messages)
    if engine == "lcm":
        found = [message for message in own[-1] if message["role"] == "tool"][-1]
        assert NEEDLE in str(found["content"])
        assert '"results": []' not in str(found["content"])
