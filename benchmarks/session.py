"""What a session adds to a turn: everything but the model, as the conversation grows.

A turn here is what a tool loop does again and again: the result of a call is added, a request is made, the answer is
recorded. It is measured with a window so large that nothing is folded, so that the list really is as long as the
history, for both engines and both dialects. The baselines are of the same run: the shortest history, and storing the
same two messages and the same row of the journal with nothing around it.

The bars: flat in the length, and at most 2 ms at 10,000 messages.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import tempfile
import time
from itertools import count, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.compress import conversation
from leporello.session import Session, tool_result
from leporello.store import Request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leporello.session import ToolCall

LENGTHS = (1_000, 10_000)
TURNS = 60
WARM = 5
WINDOW = 100_000_000  # tokens: nothing is ever folded
BAR = 2.0  # milliseconds
MODEL = "claude-sonnet-5"
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"The tool {name} of an agent that looks after a harbour.",
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}, "pattern": {"type": "string"}}},
        },
    }
    for name in ("terminal", "read_file", "write_file", "search_files")
]
OUTPUT = "\n".join(f"crane {n} moved container {n * 7919 % 99_991} to berth {n % 12}" for n in range(20))
_numbers = count()


def opened(folder: Path, engine: str, dialect: str, length: int) -> Session:
    """Open a session with a history of this length behind it."""
    session = Session.open(
        f"{engine}-{dialect}-{length}",
        engine=engine,
        model=MODEL,
        context_length=WINDOW,
        store=folder / f"{engine}-{dialect}-{length}.db",
        config={},
        dialect=dialect,
        on_event=lambda _: None,
    )
    first, *history = conversation("files", length)
    session.add(first)
    session.add(*history, {"role": "user", "content": "Go on."})
    return session


def answer(session: Session, dialect: str) -> dict[str, Any]:
    """Return what a provider would answer: one call of a tool."""
    number = next(_numbers)
    read = session.usage().tokens if number % TURNS == 0 else 50_000
    if dialect == "anthropic":
        use = {"type": "tool_use", "id": f"toolu_{number}", "name": "read_file", "input": {"path": f"log/{number}.txt"}}
        usage = {"input_tokens": 200, "cache_read_input_tokens": read, "output_tokens": 40}
        text = {"type": "text", "text": f"I read log {number}."}
        return {"type": "message", "role": "assistant", "content": [text, use], "usage": usage, "stop_reason": "x"}
    function = {"name": "read_file", "arguments": f'{{"path": "log/{number}.txt"}}'}
    message = {
        "role": "assistant",
        "content": f"I read log {number}.",
        "tool_calls": [{"id": f"call_{number}", "type": "function", "function": function}],
    }
    return {"choices": [{"message": message}], "usage": {"prompt_tokens": read, "completion_tokens": 40}}


def turns(session: Session, dialect: str) -> Iterator[tuple[float, float]]:
    """Yield the milliseconds of processor time that each turn takes, and those of storing the same by itself."""
    calls: list[ToolCall] = []
    for number in range(TURNS + WARM):
        response = answer(session, dialect)
        started = time.process_time()
        for call in calls:
            session.add(tool_result(call, OUTPUT))
        session.request(tools=TOOLS)
        calls = session.record(response)
        took = (time.process_time() - started) * 1_000
        bare = storing(session) if number else 0.0
        if number >= WARM:
            yield took, bare


def storing(session: Session) -> float:
    """Store the two messages of a turn and its row of the journal in another conversation: what no session can save."""
    result, said = session._talk.window.messages[-2:]  # noqa: SLF001 - a copy of the window would be part of the time
    started = time.process_time()
    session.store.append("bare", [result])
    session.store.append("bare", [said])
    session.store.record_request("bare", Request(reason="request", keep=0, added=({"m": "m1"}, {"m": "m2"})))
    return (time.process_time() - started) * 1_000


def main(argv: list[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.parse_args(argv)
    print(
        "| engine | dialect | messages | a turn | slowest 5 % | to the shortest | storing alone | without it | bar | |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    missed = False
    with tempfile.TemporaryDirectory() as folder:
        for engine, dialect in product(("compressor", "lcm"), ("openai", "anthropic")):
            shortest = 0.0
            for length in LENGTHS:
                session = opened(Path(folder), engine, dialect, length)
                gc.collect()
                took, bare = zip(*turns(session, dialect), strict=True)
                session.close()
                median, alone = statistics.median(took), statistics.median(bare)
                shortest = shortest or median
                missed = missed or median > BAR
                print(
                    f"| {engine} | {dialect} | {length:,} | {median:.2f} ms | {sorted(took)[-TURNS // 20]:.2f} ms | "
                    f"{median / shortest:.2f} | {alone:.2f} ms | {median - alone:.2f} ms | {BAR:g} ms | "
                    f"{'missed' if median > BAR else 'held'} |",
                    flush=True,
                )
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
