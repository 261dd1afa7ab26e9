"""How long it takes to turn 10,000 messages into what a summariser reads.

Usage: python benchmarks/digest.py [--data PATH]

Each row is one shape of a conversation of about 10 MB. `json` is the baseline: the time to serialise the same messages
once in the same run. With --data, the conversations of every `*.jsonl` file below the path whose lines hold "messages"
are measured too, as one list.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from leporello.redact import redact, redact_messages
from leporello.summary.digest import chunks, digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leporello.messages.types import Message

SIZE = 10_000_000
WINDOW = 150_000
SENTENCE = "the function returns None when value 4711 in src/app.py is not set and the test fails with status"


def words(random_: random.Random, length: int) -> str:
    lines = (" ".join(random_.choices(SENTENCE.split(), k=12)) for _ in range(length // 60 + 1))
    return "\n".join(lines)[:length]


def conversation(messages: int) -> list[Message]:
    """Return this many messages, of 10 MB together: requests, calls, results and answers in turn."""
    random_ = random.Random(7)
    pool = [words(random_, SIZE // messages) for _ in range(60)]
    made: list[Message] = []
    for number in range(messages // 4):
        function = {"name": "read_file", "arguments": json.dumps({"path": f"src/module_{number}.py"})}
        call = {"id": f"call_{number}", "type": "function", "function": function}
        text, output = random_.choice(pool), random_.choice(pool) + random_.choice(pool)
        made += [
            {"role": "user", "content": text},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call_{number}", "content": output},
            {"role": "assistant", "content": random_.choice(pool)},
        ]
    return made


def real(path: Path) -> Iterator[Message]:
    for file in sorted(path.rglob("*.jsonl")):
        for line in file.read_text("utf-8").splitlines():
            value = json.loads(line)
            if isinstance(value, dict) and isinstance(value.get("messages"), list):
                yield from value["messages"]


def seconds(work: Callable[[], object]) -> float:
    """Return the best of five: what the work costs when nothing else disturbs it."""
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def row(name: str, messages: list[Message]) -> str:
    views = redact_messages(messages)
    turns = digest(views)
    text = "\n".join(str(message.get("content")) for message in messages)
    baseline = seconds(lambda: json.dumps(messages))
    times = {
        "redaction of the text": seconds(lambda: redact(text)),
        "redaction of the messages": seconds(lambda: redact_messages(messages)),
        "digest": seconds(lambda: digest(views)),
        "chunks": seconds(lambda: chunks(turns, WINDOW)),
    }
    shown = sum(len(turn.body) for turn in turns)
    cells = "".join(f"{value * 1e3:9.0f} ms ({value / baseline:4.1f} × json)" for value in times.values())
    return f"{name:<22}{len(messages):>9,}{len(text) / 1e6:>8.1f} MB{shown / 1e6:>8.1f} MB{cells}"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Measure the digest of long conversations.")
    parser.add_argument("--data", type=Path, help="a folder with conversations in *.jsonl files")
    options = parser.parse_args(argv)
    print(f"{'':<22}{'messages':>9}{'text':>11}{'digest':>11}   redaction of the text, of the messages, digest, chunks")
    for messages in (10_000, 1_000, 100):
        print(row(f"{messages:,} messages", conversation(messages)))
    if options.data:
        print(row("real conversations", list(real(options.data))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
