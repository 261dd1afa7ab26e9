"""500 tool turns with the official packages: no 400, the newest instruction always there, an old value found again."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anthropic
import openai
import pytest

from leporello.lcm import verify
from leporello.messages import Dialect, text_of
from leporello.session import Session, tool_result
from leporello.testing.model_server import ModelServer, Step, Use

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import TypeAlias

    from leporello.session import ToolCall
    from leporello.testing.model_server import ReceivedRequest

    Ask: TypeAlias = Callable[[dict[str, Any]], Any]

TURNS = 500
NEEDLE_TURN = 12
NEEDLE = "berth-7f3a9c"
STOPS = 25  # turns for one instruction of the user
TOOL = {
    "type": "function",
    "function": {
        "name": "inspect",
        "description": "Inspect a container.",
        "parameters": {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]},
    },
}


def instruction(number: int) -> str:
    return f"Instruction {number}: inspect the containers from {number * STOPS} on, and report."


def inspected(call: ToolCall) -> str:
    number = call.arguments["number"]
    found = f" The reserved place is {NEEDLE}." if number == NEEDLE_TURN else ""
    rows = "\n".join(f"row {row}: weight {number * 31 + row} kg, seal {number * 7919 + row:08x}" for row in range(30))
    return f"Container {number}.{found}\n{rows}"


def script() -> list[Step]:
    """Return what the model says: a call in every turn, an answer to every instruction, a search at the end."""
    steps: list[Step] = []
    for turn in range(TURNS):
        steps.append(Step(text=f"Next is {turn}.", tool_calls=[Use(name="inspect", arguments={"number": turn})]))
        if turn % STOPS == STOPS - 1:
            steps.append(Step(text=f"Instruction {turn // STOPS} is carried out."))
    return steps


class Guard:
    """Looks at every request that reaches the server: the newest instruction must be in it, word by word."""

    def __init__(self) -> None:
        self.expected = ""
        self.missing: list[int] = []
        self.seen = 0

    def __call__(self, request: ReceivedRequest) -> None:
        self.seen += 1
        users = [text_of(message) for message in request.messages if message["role"] == "user"]
        if not users or users[-1] != self.expected:
            self.missing.append(self.seen)


@contextmanager
def ask_openai(server: ModelServer) -> Iterator[Ask]:
    with openai.OpenAI(base_url=server.openai_url, api_key="any", max_retries=0) as client:
        yield lambda request: client.chat.completions.create(model="any", **request)


@contextmanager
def ask_anthropic(server: ModelServer) -> Iterator[Ask]:
    with anthropic.Anthropic(base_url=server.anthropic_url, api_key="any", max_retries=0) as client:
        yield lambda request: client.messages.create(model="any", max_tokens=1_000, **request)


CLIENTS = {"openai": ask_openai, "anthropic": ask_anthropic}


def work(session: Session, ask: Ask, guard: Guard) -> int:
    """Let the model work through all instructions; returns how many calls reached the caller."""
    answered = 0
    for number in range(TURNS // STOPS):
        guard.expected = instruction(number)
        session.add({"role": "user", "content": guard.expected})
        while not session.done:
            for call in session.record(ask(session.request(tools=[TOOL]))):
                session.add(tool_result(call, inspected(call)))
                answered += 1
    return answered


@pytest.mark.slow
@pytest.mark.parametrize("window", [16_000, 200_000])
@pytest.mark.parametrize("engine", ["compressor", "lcm"])
@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
def test_500_tool_turns(dialect: Dialect, engine: str, window: int, tmp_path: Path) -> None:
    guard = Guard()
    session = Session.open(
        "long", engine=engine, model="any", context_length=window, store=tmp_path / "s.db", config={}, dialect=dialect
    )
    with (
        ModelServer([_looking(guard, step) for step in script()], window=window) as server,
        CLIENTS[dialect](server) as ask,
        session,
    ):
        assert work(session, ask, guard) == TURNS
        requests = len(server.requests)
        assert requests == TURNS + TURNS // STOPS  # none was refused or sent twice
        assert guard.seen == requests
        assert guard.missing == []
        usage = session.usage()
        assert usage.compactions > (5 if window == 16_000 else 0)
        assert usage.compactions < requests / 5
        assert usage.tokens < window
        if engine == "lcm":
            assert found_again(session, server, ask)
            assert verify(session.store, "long") == []


def _looking(guard: Guard, step: Step) -> Callable[[ReceivedRequest], Step]:
    def look(request: ReceivedRequest) -> Step:
        guard(request)
        return step

    return look


def found_again(session: Session, server: ModelServer, ask: Ask) -> bool:
    """Ask for the value of turn 12; the model searches, and the session answers the search without the caller."""
    server.script(
        Step(tool_calls=[Use(name="lcm_grep", arguments={"query": "reserved place"})]),
        lambda request: text_of(request.messages[-1]),
    )
    session.add({"role": "user", "content": "Which place was reserved?"})
    originals = [message for message in session.window if message["role"] == "tool"]
    assert NEEDLE not in json.dumps(originals)
    while not session.done:
        assert session.record(ask(session.request(tools=[TOOL]))) == []
    return NEEDLE in text_of(session.window[-1])


@pytest.mark.slow
def test_a_host_that_folds_nothing_is_refused_by_the_same_server(tmp_path: Path) -> None:
    """Planted: without compactions the same conversation overflows."""
    guard = Guard()
    config = {"compression": {"enabled": False}}
    session = Session.open("long", model="any", context_length=16_000, store=tmp_path / "s.db", config=config)
    with (
        ModelServer([_looking(guard, step) for step in script()], window=16_000) as server,
        ask_openai(server) as ask,
        session,
        pytest.raises(openai.BadRequestError),
    ):
        work(session, ask, guard)


@pytest.mark.slow
def test_an_engine_that_loses_the_newest_instruction_is_seen_by_the_guard() -> None:
    """Planted: a request without it."""
    guard = Guard()
    guard.expected = instruction(3)

    class Bare:
        messages = ({"role": "user", "content": instruction(2)},)

    guard(Bare())  # type: ignore[arg-type]
    assert guard.missing == [1]
