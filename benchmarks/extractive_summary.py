"""How fast the extractive summary and its artifacts are, beside splitting the same text into words.

    python benchmarks/extractive_summary.py [--data PATH] [--messages 10000] [--megabytes 10]

A long working session is made up; with `--data` the conversations below the path are measured, too. Times are the best
of several runs of processor time; the last column is what counts: how many times longer than `set(text.split())`.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.digest import real
from leporello.messages import Message
from leporello.redact import redact_messages
from leporello.summary.artifacts import collect
from leporello.summary.extract import extract_summary
from leporello.summary.template import parse, render, trim
from leporello.tokens import count_text

if TYPE_CHECKING:
    from collections.abc import Callable

Messages = list[Message]
WORDS = "return the value of a module that reads config and writes the result into cache before test".split()  # noqa: SIM905 - reads better
RUNS = 5


def made_up(count: int, size: int) -> Messages:
    """Make a working session: requests, commands, and outputs with a few new words on every line."""
    rng = random.Random(7)
    messages: Messages = []
    per_output = max(80, size * 3 // count)
    while len(messages) < count:
        n = len(messages)
        lines: list[str] = []
        while sum(map(len, lines)) < per_output:
            lines.append(f"{' '.join(rng.choices(WORDS, k=9))} {rng.getrandbits(24):x} src/{rng.choice(WORDS)}.py")
        if n % 30 == 0:
            messages.append(
                {"role": "user", "content": f"Please make sure that part {n} works and never touch part {n + 1}."}
            )
        function = {"name": "terminal", "arguments": json.dumps({"command": f"pytest tests/test_{n}.py"})}
        messages += [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"c{n}", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": f"c{n}", "content": "\n".join(lines)},
            {"role": "assistant", "content": f"Part {n} works now. I'll go on with the next one."},
        ]
    return messages[:count]


def best(work: Callable[[], object]) -> float:
    """Return the shortest processor time of several runs."""
    times = []
    for _ in range(RUNS):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def texts(value: Any) -> list[str]:
    """Return every string inside a value."""
    if isinstance(value, str):
        return [value]
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for child in children for text in texts(child)]


def measure(name: str, messages: Messages) -> None:
    """Print one row per part of the work."""
    text = "\n".join(texts(messages))
    base = best(lambda: set(text.split()))
    views = redact_messages(messages)
    summary = extract_summary(views, budget_tokens=8_000)
    print(f"\n{name}: {len(messages)} messages, {len(text) / 1e6:.1f} MB, summary of {count_text(summary)} tokens")
    rows: dict[str, Callable[[], object]] = {
        "set(text.split())": lambda: set(text.split()),
        "redact_messages": lambda: redact_messages(messages),
        "artifacts.collect": lambda: collect(views),
        "extract_summary": lambda: extract_summary(views, budget_tokens=8_000),
        "parse, trim, render": lambda: render(trim(parse(summary), 2_000)),
    }
    for row, work in rows.items():
        seconds = best(work)
        print(f"  {row:22} {seconds * 1000:9.1f} ms {seconds / base:8.1f} ×")


def main(argv: list[str] | None = None) -> int:
    """Measure made-up and real conversations."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a folder with conversations in *.jsonl files")
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--megabytes", type=float, default=10)
    options = parser.parse_args(argv)
    if options.data:
        measure("real conversations", list(real(options.data)))
    measure("made up, short outputs", made_up(options.messages, 1_000_000))
    measure("made up", made_up(options.messages, int(options.megabytes * 1e6)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
