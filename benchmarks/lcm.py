"""The lossless engine: what a turn costs as the history grows, what a fold costs, and what the model reads of it.

What a turn costs is measured twice: in a history that is handed over whole and grows, as a ratio to the shortest one of
the same run, and in a conversation that is folded as it goes, with everything that the engine does in the turn's thread
(storing, planning). `--cpu` measures the processor time of that thread, for a machine that does other things too.

The bars: a turn takes at most 2 ms, whatever the length of the history, and when the leaves are prepared in the
background, `compress()` itself takes at most 50 ms.
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
from leporello.llm import Completion
from leporello.testing.manual_executor import ManualExecutor
from leporello.tokens import count_messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from leporello.messages import Message

HISTORIES = (1_000, 10_000, 50_000)
FOLDS = (1_000, 10_000)
WINDOW = 200_000
TURNS = 40
PREPARED_BAR, TURN_BAR = 50.0, 2.0  # milliseconds
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


def storing(folder: Path, length: int, clock: Callable[[], float]) -> float:
    """Return the median milliseconds that storing one more turn of a history of this length takes."""
    engine = LCMEngine(WINDOW, store=folder / f"turns-{length}.db", executor=ManualExecutor())
    engine.on_session_start("bench")
    history = conversation("files", length + 6 * TURNS)
    messages = history[: -6 * TURNS]
    engine.should_compress_preflight(messages)
    took = []
    for _ in range(TURNS):
        messages = [*messages, *history[len(messages) : len(messages) + 6]]
        started = clock()
        engine.should_compress_preflight(messages)
        took.append((clock() - started) * 1_000)
    engine.close()
    return statistics.median(took)


def folding(length: int, clock: Callable[[], float], *, model: bool) -> tuple[float, float, int, int, int]:
    """Return the seconds to store a history and to fold it, the model's calls, its largest prompt, and the nodes."""
    llm = Stub()
    engine = LCMEngine(WINDOW, llm=llm if model else None, config={"background": False})
    engine.on_event = lambda _: None
    engine.on_session_start("bench")
    messages: list[Message] = [*conversation("files", length), {"role": "user", "content": "Go on."}]
    tokens = count_messages(messages)
    started = clock()
    engine.should_compress_preflight(messages)
    stored = clock()
    engine.compress(messages, current_tokens=tokens)
    folded = clock()
    assert verify(engine.store, "bench") == []
    nodes = len(engine.store.nodes("bench"))
    engine.close()
    return stored - started, folded - stored, llm.calls, llm.largest, nodes


def swapping(folder: Path, length: int, clock: Callable[[], float]) -> tuple[list[float], list[float]]:
    """Return the milliseconds of every turn and of every `compress()` in a conversation that grows to this length."""
    background = ManualExecutor()
    engine = LCMEngine(WINDOW, llm=Stub(LEAF_SUMMARY), store=folder / f"folds-{length}.db", executor=background)
    engine.on_event = lambda _: None
    engine.on_session_start("bench")
    first, *history = conversation("files", length)
    messages, turns, took = [first], [], []
    for start in range(0, len(history), 6):
        messages = [*messages, *history[start : start + 6]]
        tokens = count_messages(messages)
        started = clock()
        engine.update_from_response({"prompt_tokens": tokens, "completion_tokens": 1})
        engine.should_compress_preflight(messages)
        turns.append((clock() - started) * 1_000)
        background.run()
        if engine.should_compress():
            started = clock()
            messages = engine.compress(messages, current_tokens=tokens)
            took.append((clock() - started) * 1_000)
    engine.close()
    return turns, took


def main(argv: list[str] | None = None) -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cpu", action="store_true", help="processor time of the thread, on a busy machine")
    clock = time.thread_time if parser.parse_args(argv).cpu else time.perf_counter
    with tempfile.TemporaryDirectory() as folder:
        times = {length: storing(Path(folder), length, clock) for length in HISTORIES}
        swaps = {length: swapping(Path(folder), length, clock) for length in FOLDS}
    print("| history | storing one turn (6 messages) | ratio | bar | |\n|---|---|---|---|---|")
    for length, took in times.items():
        ratio = took / times[HISTORIES[0]]
        print(f"| {length:,} messages | {took:.2f} ms | {ratio:.2f} | {TURN_BAR:.0f} ms | {_held(took, TURN_BAR)} |")
    print("\n| conversation that is folded as it goes | median turn | slowest of 10 | bar | |\n|---|---|---|---|---|")
    for length, (turns, _) in swaps.items():
        median, slow = statistics.median(turns), statistics.quantiles(turns, n=10)[-1]
        print(
            f"| {length:,} messages | {median:.2f} ms | {slow:.2f} ms | {TURN_BAR:.0f} ms | {_held(median, TURN_BAR)} |"
        )
    print("\n| compress() when the leaves are prepared | folds | median | slowest | bar | |\n|---|---|---|---|---|---|")
    for length, (_, folds) in swaps.items():
        median, held = statistics.median(folds), _held(statistics.median(folds), PREPARED_BAR)
        row = f"| {length:,} messages | {len(folds)} | {median:.1f} ms | {max(folds):.1f} ms | {PREPARED_BAR:.0f} ms |"
        print(row, held, "|")
    print("\n| fold of | summaries by | storing | folding | calls | largest prompt | nodes |")
    print("|---|---|---|---|---|---|---|")
    for length in FOLDS:
        for model in (False, True):
            stored, folded, calls, largest, nodes = folding(length, clock, model=model)
            who = "a stubbed model" if model else "no model"
            print(f"| {length:,} | {who} | {stored:.2f} s | {folded:.2f} s | {calls} | {largest:,} | {nodes} |")
    return 0


def _held(measured: float, bar: float) -> str:
    return "held" if measured <= bar else "missed"


if __name__ == "__main__":
    sys.exit(main())
