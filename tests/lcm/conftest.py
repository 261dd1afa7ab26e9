"""Conversations and engines for the tests of the lossless engine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from leporello import LCMEngine
from leporello.lcm.background import Later

if TYPE_CHECKING:
    from collections.abc import Callable

    from leporello.messages import Message


def _call(number: int, name: str = "terminal", **arguments: Any) -> Message:
    """Return an assistant message with one call."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": f"c{number}", "type": "function", "function": function}],
    }


def _result(number: int, content: str) -> Message:
    """Return the result of that call."""
    return {"role": "tool", "tool_call_id": f"c{number}", "content": content}


def _work(first: int, last: int, words: int = 150) -> list[Message]:
    """Return turns of a coding session: a request, a call, its output, an answer; numbered, so that all differ."""
    turns: list[Message] = []
    for n in range(first, last):
        turns += [
            {"role": "user", "content": f"Request {n}: please look at src/module_{n}.py and fix error E{n:04d}."},
            _call(n, "read_file", path=f"src/module_{n}.py"),
            _result(
                n,
                f"module {n}\n"
                + "\n".join(f"line {k} of file {n}: value_{n}_{k} = {k * n}" for k in range(words // 8)),
            ),
            {"role": "assistant", "content": f"Step {n} is done: src/module_{n}.py is fixed, token needle-{n:04d}-x."},
        ]
    return turns


@pytest.fixture
def work() -> Callable[..., list[Message]]:
    """Make turns of a coding session."""
    return _work


@pytest.fixture
def background() -> Later:
    """Work that runs when a test says so."""
    return Later()


@pytest.fixture
def make_engine(background: Later) -> Callable[..., LCMEngine]:
    """Make quiet engines with work that runs when a test says so."""

    def make(window: int = 16_000, session: str = "s", **options: Any) -> LCMEngine:
        engine = LCMEngine(window, executor=background, **options)
        engine.on_event = lambda _: None
        engine.on_session_start(session)
        return engine

    return make
