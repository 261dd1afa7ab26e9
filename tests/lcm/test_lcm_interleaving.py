"""Turns, work in the background, a second process and crashes, in any order: the conversation stays whole.

A failure names the seed that replays it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from leporello import LCMEngine
from leporello.errors import NetworkError
from leporello.lcm import verify
from leporello.llm import FakeClock, ScriptedLLM
from leporello.messages import Message, violations
from leporello.store import open_store
from leporello.testing.manual_executor import ManualExecutor
from leporello.tokens import count_messages

Work = Callable[..., list[Message]]

SEEDS = 400 if os.environ.get("LEPORELLO_SOAK") else 8
STEPS = 40
GOOD = "## Goal\nFix the build.\n\n## Progress\n### Done\n- Read src/app.py."


class World:
    """One host's list, one store, two processes with an engine each, and a clock."""

    def __init__(self, seed: int, work: Work) -> None:
        self.random = Random(seed)
        self.work = work
        self.clock = FakeClock(1_000_000.0)
        self.store = open_store(":memory:", clock=self.clock)
        self.up = True
        self.llm = ScriptedLLM(self.answer, context_length=32_000)
        self.background = [ManualExecutor(), ManualExecutor()]
        self.engines = [self.engine(0), self.engine(1)]
        self.messages: list[Message] = [{"role": "system", "content": "You fix builds."}]
        self.entered: list[Message] = []
        self.turns = 0
        self.seen: Counter[str] = Counter()

    def answer(self, _: list[Message]) -> str:
        if not self.up:
            raise NetworkError("connection refused")
        return GOOD

    def engine(self, number: int) -> LCMEngine:
        engine = LCMEngine(16_000, store=self.store, llm=self.llm, clock=self.clock, executor=self.background[number])
        engine.on_event = lambda _: None
        engine.on_session_start("s")
        return engine

    def step(self) -> None:
        kinds = ("turn",) * 6 + ("background", "background", "crash", "outage", "time", "fold", "replay")
        kind = self.random.choice(kinds)
        self.seen[kind] += 1
        self.clock.advance(self.random.random() * 20)
        getattr(self, f"do_{kind}")()

    def do_turn(self) -> None:
        added = self.work(self.turns, self.turns + self.random.randint(1, 5), self.random.choice((80, 400)))
        self.turns += 5
        self.entered += added
        self.messages = [*self.messages, *added]
        engine = self.random.choice(self.engines)
        tokens = count_messages(self.messages)
        engine.update_from_response({"prompt_tokens": tokens, "completion_tokens": 1})
        engine.should_compress_preflight(self.messages)
        if engine.should_compress(tokens):
            self.messages = engine.compress(self.messages)
            self.seen["automatic fold"] += 1
            assert not violations(self.messages, "openai")
            assert not violations(self.messages, "anthropic")

    def do_fold(self) -> None:
        self.messages = self.random.choice(self.engines).compress(self.messages)

    def do_replay(self) -> None:
        self.random.choice(self.engines).should_compress_preflight(self.messages)

    def do_background(self) -> None:
        later = self.random.choice(self.background)
        if later.waiting:
            later.waiting.popleft()()
            self.seen["work done"] += 1

    def do_crash(self) -> None:
        """End a process without a word: what it had in mind is gone, its rows in the store are not."""
        number = self.random.randrange(2)
        self.background[number] = ManualExecutor()
        self.engines[number] = self.engine(number)

    def do_outage(self) -> None:
        self.up = not self.up

    def do_time(self) -> None:
        self.clock.advance(3_600)

    def check(self) -> None:
        said = [row.message for row in self.store.messages("s")]
        assert said == self.entered
        assert not (found := verify(self.store, "s")), found[0]


def run(seed: int, work: Work, seen: Counter[str]) -> None:
    world = World(seed, work)
    for _ in range(STEPS):
        world.step()
        world.check()
    seen += world.seen


@pytest.mark.slow
def test_any_order_of_events_leaves_the_conversation_whole(work: Work) -> None:
    seen: Counter[str] = Counter()
    for seed in range(SEEDS):
        try:
            run(seed, work, seen)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    expected: set[Any] = {"automatic fold", "work done", "crash", "outage", "fold", "replay"}
    assert expected <= seen.keys(), f"never happened: {expected - seen.keys()}"
