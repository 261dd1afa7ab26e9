"""A tool loop with a large system prompt and many tools: what the model is about to read reaches it whole (V13)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import openai
import pytest

from leporello.session import Session, tool_result
from leporello.testing.model_server import ModelServer, Step, Use
from leporello.tokens import count_text, count_tools

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from leporello.messages import Message
    from leporello.testing.model_server import ReceivedRequest

ROUNDS = 60
PARALLEL = 5  # every fifth round makes two calls at once


def tools(tokens: int) -> list[dict[str, Any]]:
    """Return tool schemas of about this size, as coding agents bring them."""
    found: list[dict[str, Any]] = []
    while count_tools(found) < tokens:
        words = f"Use tool {len(found)} to look at a part of the yard, to move a crane or to ask for a berth. " * 4
        parameters = {"type": "object", "properties": {"path": {"type": "string", "description": words}}}
        function = {"name": f"tool_{len(found)}", "description": words, "parameters": parameters}
        found.append({"type": "function", "function": function})
    return found


def output(number: int, window: int) -> str:
    lines = (3, 12, window // 400, window // 160)[number % 4]
    return "\n".join(f"{number:03d}/{line}: seal {number * 7919 + line:08x} at berth {line}" for line in range(lines))


class Reader:
    """Looks at every request: the results behind the newest answer must be the ones that the tools gave."""

    def __init__(self) -> None:
        self.given: dict[str, str] = {}
        self.read = 0
        self.changed: list[str] = []

    def __call__(self, messages: list[Message]) -> None:
        newest = max((i for i, m in enumerate(messages) if m["role"] == "assistant"), default=-1)
        for message in messages[newest + 1 :]:
            if message["role"] == "tool":
                self.read += 1
                if message["content"] != self.given[message["tool_call_id"]]:
                    self.changed.append(message["tool_call_id"])


def steps(reader: Reader) -> list[Callable[[ReceivedRequest], Step]]:
    def step(number: int) -> Callable[[ReceivedRequest], Step]:
        def answer(request: ReceivedRequest) -> Step:
            reader(request.messages)
            calls = 2 if number % PARALLEL == 0 else 1
            uses = [Use(name="tool_0", arguments={"path": f"yard/{number}-{call}.txt"}) for call in range(calls)]
            return Step(text=f"Round {number}.", tool_calls=uses) if number < ROUNDS else Step(text="All is seen.")

        return answer

    return [step(number) for number in range(ROUNDS + 1)]


def loop(engine: str, window: int, store: Path, reader: Reader) -> Session:
    offered = tools(window // 5)
    system = "You look after the port. " + "Always name the berth. " * (window // 40)
    assert count_text(system) + count_tools(offered) > window // 4
    session = Session.open(
        "loop", engine=engine, model="any", context_length=window, store=store, config={}, system=system
    )
    with (
        ModelServer(steps(reader), window=window) as server,
        openai.OpenAI(base_url=server.openai_url, api_key="any", max_retries=0) as client,
        session,
    ):
        session.add({"role": "user", "content": "Look at the whole yard."})
        number = 0
        while not session.done:
            response = client.chat.completions.create(model="any", **session.request(tools=offered))
            for call in session.record(response):
                reader.given[call.id] = output(number, window)
                session.add(tool_result(call, reader.given[call.id]))
                number += 1
        assert len(server.requests) == ROUNDS + 1
    return session


@pytest.mark.slow
@pytest.mark.parametrize("window", [16_000, 32_000])
@pytest.mark.parametrize("engine", ["compressor", "lcm"])
def test_no_unread_result_is_changed(engine: str, window: int, tmp_path: Path) -> None:
    reader = Reader()
    session = loop(engine, window, tmp_path / "s.db", reader)
    assert reader.read == len(reader.given)
    assert reader.changed == []
    assert session.usage().compactions >= 2


def test_planted_a_changed_result_is_noticed() -> None:
    reader = Reader()
    reader.given = {"a": "whole", "b": "whole"}
    call: Message = {"role": "assistant", "content": "x"}
    reader([call, tool_result("a", "whole"), tool_result("b", "who")])
    assert (reader.read, reader.changed) == (2, ["b"])
