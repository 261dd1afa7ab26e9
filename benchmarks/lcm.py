"""The lossless engine: what a turn costs as the history grows, what a fold costs, and what the model reads of it.

A host that uses the window replaces its list after a fold; one that does not hands over its whole history every time.
The cost of storing a turn is measured for both, as a ratio to the shortest history of the same run.

The bar: when the leaves are prepared in the background, `compress()` itself takes at most 50 ms.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.compress import SUMMARY, conversation
from leporello import LCMEngine
from leporello.lcm import verify
from leporello.lcm.background import Later
from leporello.llm import Completion
from leporello.tokens import count_messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from leporello.messages import Message

HISTORIES = (1_000, 10_000, 50_000)
FOLDS = (1_000, 10_000)
WINDOW = 200_000
TURNS = 40
PREPARED_BAR = 50.0  # milliseconds
LEAF_SUMMARY = "\n".join(
    [SUMMARY, *(f"- Put part {n} of the yard in order, with src/harbour/part_{n}.py." for n in range(40))]
)


class Stub:
    """A model that answers at once and counts what it was given."""

    model, provider, context_length = "stub", "stub", 200_000

    def __init__(self, text: str = SUMMARY) -> None:
        self.text = text
        self.calls = 0
        self.largest = 0

    def complete(self, messages: list[Message], *, max_tokens: int, timeout: float) -> Completion:
        """Answer at once."""
        self.calls += 1
        self.largest = max(self.largest, count_messages(messages))
        return Completion(text=self.text)


def storing(folder: Path, length: int) -> float:
    """Return the median milliseconds that storing one more turn of a history of this length takes."""
    engine = LCMEngine(WINDOW, store=folder / f"turns-{length}.db")
    engine.on_session_start("bench")
    history = conversation("files", "files", length + 6 * TURNS)
    messages = history[: -6 * TURNS]
    engine.should_compress_preflight(messages)
    took = []
    for _ in range(TURNS):
        messages = [*messages, *history[len(messages) : len(messages) + 6]]
        started = time.perf_counter()
        engine.should_compress_preflight(messages)
        took.append((time.perf_counter() - started) * 1_000)
    engine.close()
    return statistics.median(took)


def folding(length: int, *, model: bool) -> tuple[float, float, int, int, int]:
    """Return the seconds to store a history and to fold it, the model's calls, its largest prompt, and the nodes."""
    llm = Stub()
    engine = LCMEngine(WINDOW, llm=llm if model else None, config={"background": False})
    engine.on_event = lambda _: None
    engine.on_session_start("bench")
    messages = [*conversation("files", length), {"role": "user", "content": "Go on."}]
    started = time.perf_counter()
    engine.should_compress_preflight(messages)
    stored = time.perf_counter()
    engine.compress(messages, current_tokens=count_messages(messages))
    folded = time.perf_counter()
    assert verify(engine.store, "bench") == []
    nodes = len(engine.store.nodes("bench"))
    engine.close()
    return stored - started, folded - stored, llm.calls, llm.largest, nodes


def swapping(folder: Path, length: int, clock: Callable[[], float]) -> list[float]:
    """Return the milliseconds of every `compress()` in a conversation that grows to this length, leaves prepared."""
    background = Later()
    engine = LCMEngine(WINDOW, llm=Stub(LEAF_SUMMARY), store=folder / f"folds-{length}.db", executor=background)
    engine.on_event = lambda _: None
    engine.on_session_start("bench")
    first, *history = conversation("files", "files", length)
    messages, took = [first], []
    for start in range(0, len(history), 6):
        messages = [*messages, *history[start : start + 6]]
        tokens = count_messages(messages)
        engine.update_from_response({"prompt_tokens": tokens, "completion_tokens": 1})
        engine.should_compress_preflight(messages)
        background.run()
        if engine.should_compress():
            started = clock()
            messages = engine.compress(messages, current_tokens=tokens)
            took.append((clock() - started) * 1_000)
    engine.close()
    return took


def main(argv: list[str] | None = None) -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cpu", action="store_true", help="measure compress() in processor time, on a busy machine")
    clock = time.process_time if parser.parse_args(argv).cpu else time.perf_counter
    with tempfile.TemporaryDirectory() as folder:
        times = {length: storing(Path(folder), length) for length in HISTORIES}
        swaps = {length: swapping(Path(folder), length, clock) for length in FOLDS}
    print("| history | storing one turn (6 messages) | ratio |\n|---|---|---|")
    for length, milliseconds in times.items():
        print(f"| {length:,} messages | {milliseconds:.2f} ms | {milliseconds / times[HISTORIES[0]]:.2f} |")
    print("\n| fold of | summaries by | storing | folding | calls | largest prompt | nodes |")
    print("|---|---|---|---|---|---|---|")
    for length in FOLDS:
        for model in (False, True):
            stored, folded, calls, largest, nodes = folding(length, model=model)
            who = "a stubbed model" if model else "no model"
            print(f"| {length:,} | {who} | {stored:.2f} s | {folded:.2f} s | {calls} | {largest:,} | {nodes} |")
    print("\n| compress() when the leaves are prepared | folds | median | slowest | bar | |\n|---|---|---|---|---|---|")
    for length, took in swaps.items():
        median, within = statistics.median(took), statistics.median(took) <= PREPARED_BAR
        row = f"| {length:,} messages | {len(took)} | {median:.1f} ms | {max(took):.1f} ms | {PREPARED_BAR:.0f} ms |"
        print(row, "held |" if within else "missed |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
