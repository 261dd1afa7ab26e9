"""Prompt caching: what marking costs, what watching the prefix costs, and what caching saves.

1. Marking 10,000 messages beside a deep copy of the same list, the two in turn. The bar: at least 20 × faster.
2. One more message seen by the prefix tracker, by the length of the conversation.
3. A conversation of 300 turns, folded by the compressor, sent to simulated providers: the share of input tokens read
   from the cache between two compactions (the bar: 90 %) and over all, and the list price of the whole input. Every
   fortieth turn makes thirty parallel calls, more than Anthropic's lookback of twenty blocks.

With --data, the conversations of every `*.jsonl` file below the path whose lines hold "messages" are sent as one, too.
"""

from __future__ import annotations

import argparse
import json
import sys
from copy import deepcopy
from itertools import chain
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING, Any

from benchmarks.compress import conversation as plain_conversation
from leporello import ContextCompressor
from leporello.caching import (
    CachePolicy,
    CacheUse,
    PrefixTracker,
    ProviderCache,
    apply_anthropic_cache_control,
    choose,
    rules_of,
)
from leporello.caching.blocks import Block, blocks_of
from leporello.config.model import PromptCaching
from leporello.messages import Message, repair, role_of
from leporello.prices import cost
from leporello.testing.tool_session import tool_session
from leporello.tokens import count_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

LENGTH, FASTER_BAR = 10_000, 20.0
LENGTHS = (1_000, 10_000, 100_000)
TURNS, WINDOW, READ_BAR = 300, 100_000, 0.90
ROUNDS = 7
TOOLS = [{"type": "function", "function": {"name": "read", "description": "Read a file.", "parameters": {}}}]
UNMARKED_RESULTS = ("openrouter", "system_and_3")  # this pair marks no tool results, so calls in a row cost it
ROUTES = (
    ("claude-sonnet-5", "anthropic"),
    ("anthropic/claude-sonnet-5", "openrouter"),
    ("gpt-5.5", "openai"),
    ("gpt-5.6", "openai"),
)


def policy(model: str, provider: str, strategy: Any) -> CachePolicy:
    return choose(model=model, provider=provider, base_url=None, settings=PromptCaching(strategy=strategy))


PLANNER = policy("claude-sonnet-5", "anthropic", "planner")
WORK: dict[str, Callable[[list[Message]], object]] = {
    "deep copy": deepcopy,
    "system_and_3": lambda messages: apply_anthropic_cache_control(messages, native_anthropic=True),
    "planner": PLANNER.mark,
    "planner, known to be clean": lambda messages: PLANNER.mark(messages, clean=True),
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a folder of real conversations, in OpenAI's format")
    options = parser.parse_args(argv)
    passed = marking()
    watching()
    passed &= reading(f"{TURNS} turns", tool_session(TURNS, answer_words=60, result_words=150))
    if options.data and (real := list(real_messages(options.data))):
        passed &= reading(f"{len(real):,} real messages", iter(real))
    return 0 if passed else 1


def marking() -> bool:
    """Print how marking compares with a deep copy; tell whether the bar is met."""
    print(f"{LENGTH:,} messages: best of {ROUNDS} rounds, CPU time\n")
    print(f"{'':34}{'ms':>9}{'deep copy ms':>14}{'× faster':>10}")
    passed = True
    for kind, messages in (("text", plain_conversation("files", LENGTH)), ("parts", in_parts(LENGTH))):
        times = fastest(WORK, messages)
        baseline = times.pop("deep copy")
        for name, seconds in times.items():
            faster = baseline / seconds
            passed &= faster >= FASTER_BAR
            print(f"{kind + ', ' + name:34}{seconds * 1e3:9.2f}{baseline * 1e3:14.1f}{faster:10.0f}")
    return passed


def in_parts(length: int) -> list[Message]:
    """Return the same conversation with every text as a list of one part."""
    messages = plain_conversation("files", length)
    return [{**m, "content": [{"type": "text", "text": m["content"]}]} if m["content"] else m for m in messages]


def fastest(work: dict[str, Callable[[list[Message]], object]], messages: list[Message]) -> dict[str, float]:
    """Return the best seconds of each work, done in turn, so that a busy machine disturbs all alike."""
    best = dict.fromkeys(work, float("inf"))
    for _ in range(ROUNDS):
        for name, do in work.items():
            start = process_time()
            do(messages)
            best[name] = min(best[name], process_time() - start)
    return best


def watching() -> None:
    """Print what one more message costs the tracker."""
    print(f"\n{'messages':>10}{'ms per request':>16}{'× shortest':>12}")
    first = 0.0
    for length in LENGTHS:
        tracker, messages = PrefixTracker(), plain_conversation("commands", length)
        tracker.see(messages, TOOLS)
        best = float("inf")
        for turn in range(30):
            messages.append({"role": "user", "content": f"Question {turn}: what is in the yard now, and who put it?"})
            start = process_time()
            tracker.see(messages, TOOLS)
            best = min(best, process_time() - start)
        first = first or best
        print(f"{length:10,}{best * 1e3:16.3f}{best / first:12.1f}")


def reading(name: str, messages: Iterator[Message]) -> bool:
    """Print what each route and strategy reads and costs; tell whether the bar is met."""
    windows = list(folded(messages))
    known = {id(message): blocks_of([message]) for message in {id(m): m for w in windows for m in w}.values()}
    print(f"\n{name}: {len(windows):,} requests, window {WINDOW:,}\n")
    print(f"{'':44}{'between':>9}{'all':>8}{'$':>10}{'× uncached':>12}")
    passed = True
    for model, provider in ROUTES:
        for strategy in ("system_and_3", "planner"):
            uses, moved = sent(windows, known, model, provider, strategy)
            between = [use for use, folding in zip(uses, moved, strict=True) if not folding]
            passed &= (provider, strategy) == UNMARKED_RESULTS or share(between) >= READ_BAR
            dollars, uncached = price(uses, model), price([CacheUse(input=use.prompt) for use in uses], model)
            label = f"{provider}, {model.rpartition('/')[2]}, {strategy}"
            print(f"{label:44}{share(between):9.1%}{share(uses):8.1%}{dollars:10.2f}{dollars / uncached:12.2f}")
    return passed


def folded(messages: Iterator[Message]) -> Iterator[tuple[Message, ...]]:
    """Yield the window of every request of a conversation."""
    engine = ContextCompressor(WINDOW)
    window: list[Message] = [{"role": "system", "content": "You work on a port's software. " * 300}]
    tokens = count_messages(window)
    for message in messages:
        if role_of(message) == "assistant":
            if engine.should_compress(tokens):
                window = engine.compress(window)
                tokens = count_messages(window)
            yield tuple(window)
        window = [*window, message]
        tokens += count_messages([message])


def sent(
    windows: Sequence[tuple[Message, ...]], known: dict[int, list[Block]], model: str, provider: str, strategy: str
) -> tuple[list[CacheUse], list[bool]]:
    """Return what every request used, and before which the history moved."""
    account, tracker = ProviderCache(rules_of, clock=lambda: 0.0), PrefixTracker()
    chosen, tools = policy(model, provider, strategy), blocks_of((), TOOLS)
    uses, moved = [], []
    for window in windows:
        change = tracker.see(window, TOOLS)
        marked = chosen.mark(window, tools=TOOLS)
        row = chain.from_iterable(known.get(id(message)) or blocks_of([message]) for message in marked)
        uses.append(account.request(model, blocks=[*tools, *row]))
        moved.append(change.moved or change.reason == "first request")
    return uses, moved


def share(uses: Sequence[CacheUse]) -> float:
    return sum(use.read for use in uses) / sum(use.prompt for use in uses)


def price(uses: Sequence[CacheUse], model: str) -> float:
    """Return the list price of the input of all requests."""
    dollars = [
        cost(
            {"input_tokens": use.input, "cache_read_tokens": use.read, "cache_write_tokens": use.written},
            model.rpartition("/")[2],
        )
        for use in uses
    ]
    return sum(filter(None, dollars))


def real_messages(path: Path) -> Iterator[Message]:
    """Yield the messages of all conversations below a path as one, without their system prompts."""
    for file in sorted(path.rglob("*.jsonl")):
        for line in file.read_text("utf-8").splitlines():
            value = json.loads(line)
            if isinstance(value, dict) and isinstance(value.get("messages"), list):
                yield from (m for m in repair(value["messages"]).messages if role_of(m) != "system")


if __name__ == "__main__":
    sys.exit(main())
