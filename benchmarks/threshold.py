"""What a long tool session costs with `lcm.threshold: auto`, beside every fixed threshold of a sweep.

The engine is the real one, with its leaves prepared in the background. The provider is simulated: its prompt cache
(`leporello.caching.simulate`, marks on the system prompt and the last three messages) and its prices. What the
summariser reads and writes is paid at the same prices. Costs are per turn, in tokens of fresh input.

The thresholds of the sweep show the model as much as `auto` does: the same tokens of tail, zone and summaries, folded
sooner or later. The bar: `auto` costs at most 5 % more than the cheapest of them, at three rates of growth.

With `--shares` tail and summaries are shares of each threshold, as they are by default: a lower threshold costs less
then because it shows less.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from benchmarks.compress import NOUNS, VERBS
from leporello import LCMEngine
from leporello.caching.providers import rules_of
from leporello.caching.simulate import Block, ProviderCache
from leporello.caching.system_and_3 import places
from leporello.config.model import Lcm
from leporello.lcm.threshold import MOST_OF_WINDOW
from leporello.llm import Completion
from leporello.messages import fingerprint
from leporello.prices import price_of
from leporello.testing.manual_executor import ManualExecutor
from leporello.tokens import count_message, count_messages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leporello.messages import Message

MODEL, PROVIDER = "claude-sonnet-5", "anthropic"
GROWTHS = (500, 2_000, 6_000)
THRESHOLDS = (40_000, 50_000, 60_000, 70_000, 80_000, 95_000, 110_000, 130_000, 150_000)
LOW_THRESHOLDS = (20_000, 30_000)
SYSTEM_TOKENS, TOOLS_TOKENS, ANSWER_TOKENS = 2_000, 10_000, 300
STEPS_PER_REQUEST = 12
SECONDS_PER_TURN = 20.0
SUMMARY_SHARE = 0.12  # of what the summariser reads
BAR = 1.05


def words(rng: random.Random, tokens: int) -> str:
    """Return a text of about this many tokens."""
    line = " ".join(rng.choices(NOUNS + VERBS, k=max(1, int(tokens * 0.88))))
    return line[:1].upper() + line[1:] + "."


def session(growth: int, turns: int) -> Iterator[list[Message]]:
    """Yield what each turn adds: a call and its result, and now and then an answer and the next request."""
    rng = random.Random(growth)
    yield [{"role": "user", "content": "Put the yard in order. " + words(rng, 100)}]
    for turn in range(1, turns):
        function = {"name": "read_file", "arguments": f'{{"path": "src/part_{turn}.py"}}'}
        call = {"id": f"call_{turn}", "type": "function", "function": function}
        added: list[Message] = [
            {"role": "assistant", "content": words(rng, 60), "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call_{turn}", "content": words(rng, growth - 100)},
        ]
        if turn % STEPS_PER_REQUEST == 0:
            added += [
                {"role": "assistant", "content": f"Part {turn} is in order. " + words(rng, 40)},
                {"role": "user", "content": f"Go on with part {turn + 1}. " + words(rng, 40)},
            ]
        yield added


class Summariser:
    """A model that sums up what it reads to a fixed share, and counts both."""

    model, provider, context_length = MODEL, PROVIDER, 200_000

    def __init__(self) -> None:
        self.read = self.written = 0
        self._rng = random.Random(1)

    def complete(self, messages: list[Message], *, max_tokens: int, timeout: float) -> Completion:
        """Answer at once."""
        read = count_messages(messages)
        lines = max(1, int(min(max_tokens * 0.7, read * SUMMARY_SHARE)) // 12)
        done = "\n".join(f"- {words(self._rng, 10)}" for _ in range(lines))
        text = f"## Goal\nPut the yard in order.\n\n## Progress\n### Done\n{done}"
        written = count_message({"role": "assistant", "content": text})
        self.read, self.written = self.read + read, self.written + written
        return Completion(text=text, usage={"input_tokens": read, "output_tokens": written})  # type: ignore[typeddict-item]


@dataclass(kw_only=True)
class Bill:
    """What a session cost, in tokens of fresh input."""

    turns: int = 0
    requests: float = 0.0
    summaries: float = 0.0
    thresholds: list[int] = field(default_factory=list)

    @property
    def threshold(self) -> int:
        """The mean threshold at which the session was folded."""
        return round(statistics.mean(self.thresholds)) if self.thresholds else 0

    @property
    def per_turn(self) -> float:
        """What a turn costs, with its share of the summaries."""
        return (self.requests + self.summaries) / self.turns


class Provider:
    """The model's provider: a prompt cache and a price list; every message is counted once."""

    def __init__(self, tools: int = TOOLS_TOKENS) -> None:
        self._tools = tools
        price = price_of(MODEL, PROVIDER)
        assert price is not None
        self._shares = {
            "read": (price.cache_read or 0) / price.input,
            "write": (price.cache_write_5m or 0) / price.input,
            "output": price.output / price.input,
        }
        self.now = 0.0
        self._cache = ProviderCache(rules_of(MODEL, PROVIDER), clock=lambda: self.now)
        self._known: dict[int, tuple[Message, str, int]] = {}

    def request(self, messages: list[Message]) -> tuple[dict[str, Any], float]:
        """Return usage and cost of one request."""
        marked = set(places(messages))
        row = [Block(says="tools", tokens=self._tools)]
        for index, message in enumerate(messages):
            _, says, tokens = self._read(message)
            row.append(Block(says=says, tokens=tokens, mark="5m" if index in marked else ""))
        use = self._cache.request(MODEL, blocks=row)
        self.now += SECONDS_PER_TURN
        paid = use.read * self._shares["read"] + use.written * self._shares["write"] + use.input
        usage = {
            "input_tokens": use.input,
            "cache_read_tokens": use.read,
            "cache_write_tokens": use.written,
            "output_tokens": ANSWER_TOKENS,
        }
        return usage, paid + self.answer(ANSWER_TOKENS)

    def count(self, messages: list[Message]) -> int:
        """Return the tokens of a request."""
        return self._tools + sum(self._read(message)[2] for message in messages)

    def answer(self, tokens: int) -> float:
        """Return what an answer costs."""
        return tokens * self._shares["output"]

    def _read(self, message: Message) -> tuple[Message, str, int]:
        known = self._known.get(id(message))
        if known is None:
            known = self._known[id(message)] = (message, fingerprint(message), count_message(message))
        return known


def drive(growth: int, turns: int, window: int, tools: int = TOOLS_TOKENS, **settings: Any) -> Bill:
    """Run a session with these settings of the engine and return its bill."""
    provider, llm, background, bill = Provider(tools), Summariser(), ManualExecutor(), Bill()
    engine = LCMEngine(0, llm=llm, executor=background, config=settings)
    engine.on_event = lambda _: None
    engine.on_session_start("bench")
    engine.update_model(MODEL, window, provider=PROVIDER)
    messages: list[Message] = [{"role": "system", "content": words(random.Random(0), SYSTEM_TOKENS)}]
    for added in session(growth, turns):
        messages = [*messages, *added]
        engine.should_compress_preflight(messages)
        background.run()
        tokens = provider.count(messages)
        if engine.should_compress(tokens):
            bill.thresholds.append(engine.threshold_tokens)
            messages = engine.compress(messages, current_tokens=tokens)
        usage, paid = provider.request(messages)
        engine.update_from_response(usage)
        bill.requests += paid
        bill.turns += 1
    bill.summaries = llm.read + provider.answer(llm.written)
    engine.close()
    return bill


def sweep(growth: int, turns: int, window: int, tools: int, *, shares: bool) -> tuple[Bill, dict[int, Bill]]:
    """Return the bill of `auto` and of every fixed threshold that the window has room for."""
    auto = drive(growth, turns, window, tools)
    thresholds = (*LOW_THRESHOLDS, *THRESHOLDS) if shares else THRESHOLDS
    fitting = [tokens for tokens in thresholds if tokens <= window * MOST_OF_WINDOW]
    fixed = {}
    for tokens in fitting:
        view = {} if shares else as_much_in_view(auto.threshold / tokens)
        fixed[tokens] = drive(growth, turns, window, tools=tools, threshold=tokens / window, **view)
    return auto, fixed


def as_much_in_view(times: float) -> dict[str, float]:
    """Return the shares of a threshold that are as many tokens as those of one `times` as large."""
    defaults = Lcm()
    shares = ("tail", "masked_zone", "summary_share")
    return {name: getattr(defaults, name) * times for name in shares}


def main(argv: list[str] | None = None) -> int:
    """Print a table for each rate of growth."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=1_500)
    parser.add_argument("--window", type=int, default=200_000)
    parser.add_argument("--growth", type=int, action="append", help="tokens that a turn adds; can be given again")
    parser.add_argument("--tools", type=int, default=TOOLS_TOKENS, help="tokens of the tools beside the system prompt")
    parser.add_argument("--shares", action="store_true", help="tail and summaries are shares of each threshold")
    given = parser.parse_args(argv)
    for growth in given.growth or GROWTHS:
        auto, fixed = sweep(growth, given.turns, given.window, given.tools, shares=given.shares)
        best = min(bill.per_turn for bill in fixed.values())
        print(f"\n{growth:,} tokens per turn, {given.turns} turns, a window of {given.window:,}\n")
        print("| threshold | folds | a turn costs | of it summaries | beside the cheapest |")
        print("|---|---|---|---|---|")
        for name, bill in [*((f"{t:,}", bill) for t, bill in fixed.items()), (f"auto ({auto.threshold:,})", auto)]:
            costs = f"{bill.per_turn:,.0f} | {bill.summaries / bill.turns:,.0f} | {bill.per_turn / best:.3f}"
            print(f"| {name} | {len(bill.thresholds)} | {costs} |", flush=True)
        print(f"\nat most {BAR:.2f} x the cheapest: {'held' if auto.per_turn <= BAR * best else 'missed'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
