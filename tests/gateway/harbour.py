"""Conversations about a harbour: what clients ask, a provider that answers, and what is stored of it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from itertools import count
from typing import TYPE_CHECKING, Any

from leporello.messages import Message, text_of, to_anthropic, to_responses
from leporello.testing.model_server import Step, Use

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.fixtures.gateway import Gateway

    from leporello.testing.model_server import ReceivedRequest

Messages = list[dict[str, Any]]
APIS: dict[str, tuple[str, Callable[[Any], dict[str, Any]]]] = {
    "openai": ("/v1/chat/completions", lambda messages: {"messages": messages}),
    "anthropic": ("/v1/messages", lambda messages: {"max_tokens": 500, **to_anthropic(messages)[0]}),
    "responses": ("/v1/responses", to_responses),
}
"""Where each API takes a history, and how it is written there."""
GREETING = "Hello! How can I help you today?"


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def question(number: int) -> str:
    return f"question {number}: where does container {7919 * number % 9973} stand?"


def long_question(number: int) -> str:
    return f"{question(number)} " + " ".join(f"container {100 * number + at} stands at berth {at}" for at in range(48))


class Model:
    """A provider that greets everybody alike, calls a tool when told to read, and never answers twice the same."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self.expected: set[str] = set()
        """The newest messages of what clients send; whatever else is asked is asked for a summary."""
        self.summaries = 0
        self.sent: list[list[Message]] = []

    def __call__(self, request: ReceivedRequest) -> Step:
        number, newest = next(self._numbers), request.messages[-1]
        text = text_of(newest)
        if text not in self.expected:
            self.summaries += 1
            return Step(text=f"## Goal\nThe harbour is put in order.\n\n## Progress\n- {number} containers were found.")
        self.sent.append(request.messages)
        if text == "hi":
            return Step(text=GREETING)
        if text.startswith("read") and newest["role"] == "user":
            return Step(tool_calls=[Use(name="read_file", arguments={"path": f"log/{number}.txt"})])
        cranes = " ".join(f"crane {100 * number + crane}" for crane in range(5))
        return Step(text=f"answer {number}: it stands at berth {number % 12}, and free are {cranes}.")


def rows(folder: Path) -> int:
    """Return how many messages are stored, whatever became of them."""
    with closing(sqlite3.connect(folder / "store.db")) as connection:
        found: int = connection.execute("SELECT count(*) FROM messages").fetchone()[0]
    return found


def made(gateway: Gateway) -> tuple[int, int]:
    """Return how many conversations there are, and how many branches they have."""
    infos = list(gateway.store.conversations())
    return len(infos), sum(getattr(info, "branches", 1) for info in infos)
