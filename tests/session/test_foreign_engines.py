"""Engines of third parties: what they return is repaired first, and the built-in engine folds where they fail."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anthropic
import openai
import pytest

from leporello import ContextEngine
from leporello.events import CompactionFinished
from leporello.messages import Dialect, copied, is_system, role_of, text_of, tool_result
from leporello.session import Session, acceptance, engine_host
from leporello.session.result_repair import RepairedResult
from leporello.testing.model_server import ModelServer, Step, Use

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leporello.messages import Message
    from leporello.session.accounts import SessionUsage
    from leporello.testing.model_server import ReceivedRequest

pytestmark = pytest.mark.slow

SOAK = bool(os.environ.get("LEPORELLO_SOAK"))
TURNS = 200 if SOAK else 24
WINDOWS = (32_000, 128_000) if SOAK else (8_000,)
ROUNDS = 12  # tool turns that belong to one instruction
PROMPT = "You look after a port. " * 20
SUMMARY = "Summary of the conversation so far: containers were inspected, one after the other, and none was missing."
TOOL = {
    "type": "function",
    "function": {"name": "inspect", "parameters": {"type": "object", "properties": {"number": {"type": "integer"}}}},
}


class Plain(ContextEngine):
    """An engine of a few lines: fires at half of the window, and keeps the newest six messages."""

    name = "plain"

    def __init__(self, context_length: int = 0) -> None:
        self.context_length = context_length
        self.threshold_tokens = context_length // 2

    def update_from_response(self, usage: dict[str, Any]) -> None:
        self.last_prompt_tokens = usage.get("prompt_tokens", 0)

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        return 0 < self.threshold_tokens <= (prompt_tokens or 0)

    def compress(
        self, messages: list[Message], current_tokens: int | None = None, focus_topic: str | None = None
    ) -> list[Message]:
        """Keep the system prompt and the last six."""
        return [*filter(is_system, messages), *[one for one in messages if not is_system(one)][-6:]]


class WithSummary(Plain):
    """Writes a summary between the system prompt and the last six."""

    role = "user"

    def compress(self, messages: list[Message], *args: Any, **options: Any) -> list[Message]:
        kept = super().compress(messages)
        systems = sum(map(is_system, kept))
        return [*kept[:systems], {"role": self.role, "content": SUMMARY}, *kept[systems:]]


class SummaryFromAssistant(WithSummary):
    role = "assistant"


class SummaryInSystemMessage(WithSummary):
    role = "system"


class OlderSignature(Plain):
    def compress(self, messages: list[Message], current_tokens: int | None = None) -> list[Message]:  # type: ignore[override]
        return super().compress(messages)


class TextsOnly(Plain):
    """One that takes for granted that what was said is a string, as it is in Hermes Agent."""

    def compress(
        self, messages: list[Message], current_tokens: int | None = None, focus_topic: str | None = None
    ) -> list[Message]:
        """Count words, and keep the last six."""
        assert sum(len((message.get("content") or "").split()) for message in messages)
        return super().compress(messages, current_tokens, focus_topic)


class WithoutSystemPrompt(Plain):
    def compress(self, messages: list[Message], *args: Any, **options: Any) -> list[Message]:
        return [one for one in super().compress(messages) if not is_system(one)]


PLAIN = {
    "system and the last six": Plain,
    "a summary from the user": WithSummary,
    "a summary from the assistant": SummaryFromAssistant,
    "a summary in a system message": SummaryInSystemMessage,
    "an older signature": OlderSignature,
    "without the system prompt": WithoutSystemPrompt,
    "texts only": TextsOnly,
}


@contextmanager
def ask_openai(server: ModelServer) -> Iterator[Callable[[dict[str, Any]], Any]]:
    with openai.OpenAI(base_url=server.openai_url, api_key="any", max_retries=0) as client:
        yield lambda request: client.chat.completions.create(model="any", **request)


@contextmanager
def ask_anthropic(server: ModelServer) -> Iterator[Callable[[dict[str, Any]], Any]]:
    with anthropic.Anthropic(base_url=server.anthropic_url, api_key="any", max_retries=0) as client:
        yield lambda request: client.messages.create(model="any", max_tokens=1_000, **request)


CLIENTS = {"openai": ask_openai, "anthropic": ask_anthropic}


@dataclass
class Work:
    """Tool turns in a session: the model calls a tool in every turn, and answers every instruction at its end."""

    window: int
    usage: SessionUsage | None = None
    said: int = 0
    stored: int = 0
    asked: int = 0
    wrong: list[str] = field(default_factory=list)
    told: list[Any] = field(default_factory=list)
    _expected: str = ""

    def play(self, engine: ContextEngine, dialect: Dialect) -> None:
        """Let the model work through all instructions; a request that the server refuses ends the test."""
        session = Session.open(
            "port",
            engine=engine,
            model="any",
            store=":memory:",
            config={},
            system=PROMPT,
            dialect=dialect,
            context_length=self.window,
            on_event=self.told.append,
        )
        with ModelServer(self._script(), window=self.window) as server, CLIENTS[dialect](server) as ask, session:
            for number in range(TURNS // ROUNDS):
                self._expected = f"Instruction {number}: inspect {ROUNDS} containers from {number * ROUNDS} on."
                session.add({"role": "user", "content": self._expected})
                while not session.done:
                    for call in session.record(ask(session.request(tools=[TOOL]))):
                        session.add({**tool_result(call, ""), "content": self._inspected(call.arguments["number"])})
            self.usage = session.usage()
            self.stored = len(list(session.store.messages("port")))
            self.asked = len(server.requests)

    def _inspected(self, number: int) -> str | list[dict[str, Any]]:
        """Return what a tool found, in two parts for every other container."""
        rows = (f"row {row}: weight {row * 31} kg, seal {number * 7919 + row:08x}" for row in range(self.window // 400))
        texts = f"Container {number}.", "\n".join(rows)
        return [{"type": "text", "text": text} for text in texts] if number % 2 else "\n".join(texts)

    def _script(self) -> list[Callable[[ReceivedRequest], Step]]:
        steps: list[Step] = []
        for turn in range(TURNS):
            steps.append(Step(text=f"Next is {turn}.", tool_calls=[Use(name="inspect", arguments={"number": turn})]))
            if turn % ROUNDS == ROUNDS - 1:
                steps.append(Step(text=f"Instruction {turn // ROUNDS} is carried out."))
        return [self._looking(step) for step in steps]

    def _looking(self, step: Step) -> Callable[[ReceivedRequest], Step]:
        def look(request: ReceivedRequest) -> Step:
            users = [text_of(message) for message in request.messages if role_of(message) == "user"]
            if users[-1:] != [self._expected]:
                self.wrong.append(f"the newest instruction is not {self._expected!r} but {users[-1:]}")
            if not any(PROMPT in text_of(message) for message in request.messages if is_system(message)):
                self.wrong.append("the system prompt is missing")
            return step

        return look


@pytest.mark.parametrize("dialect", CLIENTS)
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("kind", PLAIN)
def test_a_plain_engine_folds_and_no_request_is_refused(kind: str, window: int, dialect: Dialect) -> None:
    work = Work(window)
    work.play(PLAIN[kind](window), dialect)
    instructions, turns = TURNS // ROUNDS, TURNS // ROUNDS * ROUNDS
    assert work.asked == turns + instructions
    assert work.stored == 2 * (turns + instructions)
    assert work.wrong == []
    finished = [event for event in work.told if isinstance(event, CompactionFinished)]
    assert {event.status for event in finished} == {"folded"}, "by the engine itself, not by the one that is its net"
    assert work.usage is not None
    assert work.usage.compactions == len(finished)


@pytest.mark.parametrize("kind", PLAIN)
def test_without_mending_most_plain_engines_never_fold(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted defect of the test above: a session that judges what an engine returns as it stands."""
    monkeypatch.setattr(acceptance, "repaired_result", lambda result, *_, **__: RepairedResult(messages=result))
    work = Work(WINDOWS[0])
    work.play(PLAIN[kind](WINDOWS[0]), "openai")
    statuses = {event.status for event in work.told if isinstance(event, CompactionFinished)}
    assert statuses - {"folded"}


class Emptied(ContextEngine):
    """Returns what it was given, and writes "" where an assistant said nothing beside its calls."""

    name = "emptied"

    def update_from_response(self, usage: dict[str, Any]) -> None:
        pass

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        return True

    def compress(
        self, messages: list[Message], current_tokens: int | None = None, focus_topic: str | None = None
    ) -> list[Message]:
        return [{**one, "content": one.get("content") or ""} for one in messages]


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
def test_an_engine_that_only_writes_nothing_in_another_way_changed_nothing(dialect: Dialect) -> None:
    """A refusal would count, and after three of them the built-in engine would fold."""
    work = Work(WINDOWS[0])
    work.play(Emptied(), dialect)
    finished = [event for event in work.told if isinstance(event, CompactionFinished)]
    assert {event.status for event in finished[:3]} == {"unchanged"}


def test_an_engine_that_knows_no_parts_fails_when_it_is_handed_some(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted defect of `TextsOnly`: copies as they stand."""
    monkeypatch.setattr(engine_host, "copied_as_text", copied)
    work = Work(WINDOWS[0])
    work.play(TextsOnly(WINDOWS[0]), "anthropic")
    statuses = {event.status for event in work.told if isinstance(event, CompactionFinished)}
    assert statuses - {"folded"}
