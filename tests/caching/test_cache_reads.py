"""A conversation of 300 turns, folded by a real engine: between two compactions nearly everything comes from the cache.

Requests are made as a host makes them: one before every answer. A burst of thirty parallel calls comes every fortieth
turn, which is more than Anthropic's lookback of twenty blocks.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

import pytest

from leporello import ContextCompressor
from leporello.caching import CachePolicy, CacheUse, PrefixTracker, ProviderCache, choose, rules_of
from leporello.caching.blocks import Block, blocks_of
from leporello.config.model import PromptCaching
from leporello.messages import Message, role_of
from leporello.testing.tool_session import tool_session

pytestmark = pytest.mark.slow

TURNS = 300
WINDOW = 60_000
BAR = 0.90
TOOLS = [{"type": "function", "function": {"name": "read", "description": "Read a file.", "parameters": {}}}]

Mark = Callable[[list[Any]], list[Any]]


@dataclass(frozen=True, kw_only=True)
class Sent:
    """One request: what it used, whether the history before it was folded, and how large a turn came before it."""

    use: CacheUse
    moved: bool
    burst: bool


@cache
def windows() -> tuple[tuple[Message, ...], ...]:
    """Return the window of every request, folded by the compressor; the same for every strategy."""
    engine = ContextCompressor(WINDOW)
    window: list[Message] = [{"role": "system", "content": "You work on a port's software. " * 300}]
    sent: list[tuple[Message, ...]] = []
    for message in tool_session(TURNS):
        if role_of(message) == "assistant":
            if engine.should_compress(sum(map(size, window))):
                window = engine.compress(window)
            sent.append(tuple(window))
        window = [*window, message]
    assert engine.compression_count >= 5
    return tuple(sent)


def size(message: Message) -> int:
    return len(json.dumps(message)) // 4


def sending(model: str, mark: Mark) -> list[Sent]:
    """Send every window, marked, to a simulated provider."""
    account, tracker = ProviderCache(rules_of, clock=lambda: 0.0), PrefixTracker()
    sent, before = [], 0
    for window in windows():
        change = tracker.see(window, TOOLS)
        use = account.request(model, blocks=blocks(mark(list(window))))
        moved = change.moved or change.reason == "first request"
        sent.append(Sent(use=use, moved=moved, burst=len(window) - before > 20))
        before = len(window)
    return sent


def blocks(messages: list[Any]) -> list[Block]:
    """Return the blocks of a request; those of messages that stand in a window are made once."""
    made = known_blocks()
    return [*blocks_of((), TOOLS), *chain.from_iterable(made.get(id(m)) or blocks_of([m]) for m in messages)]


@cache
def known_blocks() -> dict[int, list[Block]]:
    return {id(message): blocks_of([message]) for message in {id(m): m for w in windows() for m in w}.values()}


def share(sent: list[Sent]) -> float:
    return sum(one.use.read for one in sent) / sum(one.use.prompt for one in sent)


def check(sent: list[Sent]) -> None:
    """Check the bar between compactions."""
    between = [one for one in sent if not one.moved]
    assert len(sent) - len(between) < len(sent) / 20, "the history moved too often"
    assert share(between) >= BAR, f"only {share(between):.1%} came from the cache"


def policy(model: str, provider: str, strategy: Any) -> CachePolicy:
    settings = PromptCaching(strategy=strategy)
    return choose(model=model, provider=provider, base_url=None, settings=settings)


@pytest.mark.parametrize("strategy", ["system_and_3", "planner"])
@pytest.mark.parametrize(
    ("model", "provider"),
    [("claude-sonnet-5", "anthropic"), ("gpt-5.5", "openai"), ("gpt-5.6", "openai")],
)
def test_nearly_everything_is_read_from_the_cache(model: str, provider: str, strategy: str) -> None:
    check(sending(model, policy(model, provider, strategy).mark))


def test_the_planner_reads_after_bursts_too_also_through_openrouter() -> None:
    for model, provider in (("claude-sonnet-5", "anthropic"), ("anthropic/claude-sonnet-5", "openrouter")):
        sent = sending(model, policy(model, provider, "planner").mark)
        check(sent)
        bursts = [one for one in sent if one.burst and not one.moved]
        assert len(bursts) >= 4
        assert all(one.use.read > 0.5 * one.use.prompt for one in bursts)


def test_the_default_strategy_misses_bursts() -> None:
    """What the planner is for."""
    sent = sending("claude-sonnet-5", policy("claude-sonnet-5", "anthropic", "system_and_3").mark)
    assert any(one.use.read < 0.5 * one.use.prompt for one in sent if one.burst and not one.moved)


def unmarked(messages: list[Any]) -> list[Any]:
    return messages


def with_the_time(messages: list[Any]) -> list[Any]:
    """Put something new into every system prompt: the classic mistake."""
    timed = {**messages[0], "content": f"{messages[0]['content']} It is {len(messages)} o'clock."}
    return policy("claude-sonnet-5", "anthropic", "planner").mark([timed, *messages[1:]])


def system_alone(messages: list[Any]) -> list[Any]:
    """Mark the system prompt and nothing else."""
    return [*policy("claude-sonnet-5", "anthropic", "planner").mark(messages[:1]), *messages[1:]]


@pytest.mark.parametrize("mark", [unmarked, with_the_time, system_alone])
def test_the_check_catches(mark: Mark) -> None:
    with pytest.raises(AssertionError, match="came from the cache"):
        check(sending("claude-sonnet-5", mark))
