"""What a session adds to a turn: everything but the model, as the conversation grows.

A turn is measured in two forms: what a tool loop does again and again (the result of a call is added, a request is
made, the answer is recorded), and a question of the user with its answer. Nothing is ever folded, so that the list
really is as long as the history, for both engines and both dialects. What an engine does in the background it does
while the model answers; that is told apart.

Two baselines of the same run: the shortest history, and a bare loop that keeps the same two messages and the same row
of the journal in the same store, with nothing around it.

The bars: flat in the length, and at most 2 ms at 10,000 messages.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import count, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.compress import conversation
from leporello import LCMEngine
from leporello.messages.codes import DIALECTS
from leporello.session import Session, tool_result
from leporello.store import JournalRow, open_store
from leporello.testing.manual_executor import ManualExecutor

if TYPE_CHECKING:
    from collections.abc import Callable

    from leporello.messages import Dialect, Message
    from leporello.session import ToolCall

LENGTHS = (1_000, 10_000)
LONGER = 100_000
TURNS = 100
WARM = 5
WINDOW = 100_000_000  # tokens: with a threshold that is a share of it, nothing is ever folded
BAR = 2.0  # milliseconds
SETTINGS = {"lcm": {"threshold": 0.75}}
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
USAGE = {"usage": {"prompt_tokens": 50_000, "completion_tokens": 40}}
OUTPUT = "\n".join(f"crane {n} moved container {n * 7919 % 99_991} to berth {n % 12}" for n in range(20))
TOOL_LOOP, QUESTION = FORMS = ("tool loop", "question")
_numbers = count()


@dataclass(frozen=True, kw_only=True)
class Took:
    """Milliseconds by the clock on the wall, and of processor time."""

    wall: float
    cpu: float


def timed(work: Callable[[], None]) -> Took:
    """Do something and tell how long it took."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return Took(wall=(time.perf_counter() - wall) * 1_000, cpu=(time.process_time() - cpu) * 1_000)


@dataclass(frozen=True, kw_only=True)
class Turn:
    """What one turn took, what storing the same took by itself, and what was done while the model answered."""

    session: Took
    bare: Took
    background: Took


class Loop:
    """An agent's loop around a session with a history behind it."""

    def __init__(self, folder: Path, engine: str, dialect: Dialect, length: int) -> None:
        self.dialect = dialect
        self.later = ManualExecutor()
        self.store = open_store(folder / f"{engine}-{dialect}-{length}.db")
        lossless = LCMEngine(WINDOW, store=self.store, executor=self.later, config=SETTINGS)
        self.session = Session.open(
            f"{engine}-{dialect}-{length}",
            engine=lossless if engine == "lcm" else engine,
            model=MODEL,
            context_length=WINDOW,
            store=self.store,
            config=SETTINGS,
            dialect=dialect,
            on_event=lambda _: None,
        )
        first, *history = conversation("files", length)
        self.session.add(first)
        self.session.add(*history, {"role": "user", "content": "Go on."})
        self.calls: list[ToolCall] = []

    def turn(self, form: str) -> Turn:
        """Go through a turn, then keep the same without a session; what waits in the background is done in between."""
        number = next(_numbers)
        asked = timed(lambda: self.ask(form))
        background = timed(self.work)
        recorded = timed(lambda: self.record(number, form))
        took = Took(wall=asked.wall + recorded.wall, cpu=asked.cpu + recorded.cpu)
        return Turn(session=took, bare=timed(lambda: self.keep(number, form)), background=background)

    def ask(self, form: str) -> None:
        """Answer the calls of the last turn, ask a question in that form of a turn, and make the next request."""
        for call in self.calls:
            self.session.add(tool_result(call, OUTPUT))
        if form == QUESTION:
            self.session.add({"role": "user", "content": OUTPUT})
        self.session.request(tools=TOOLS)

    def work(self) -> None:
        """Do what an engine wants to be done in the background."""
        self.later.run()

    def record(self, number: int, form: str) -> None:
        """Record what the model answers."""
        answer = from_claude if self.dialect == "anthropic" else from_openai
        self.calls = self.session.record(answer(number, form))

    def keep(self, number: int, form: str) -> None:
        """Keep what a turn brings in another conversation: what no session can save."""
        asked = {"role": "user", "content": OUTPUT} if form == QUESTION else tool_result(f"call_{number - 1}", OUTPUT)
        self.store.append("bare", [asked])
        self.store.append("bare", [said(number, form)])
        self.store.record_request("bare", JournalRow(reason="request", keep=0, added=({"m": "m1"}, {"m": "m2"})))

    def close(self) -> None:
        """Close the session and its store."""
        self.session.close()
        self.store.close()


def said(number: int, form: str) -> Message:
    """Return a model's answer as a message: one call of a tool, or only text."""
    function = {"name": "read_file", "arguments": f'{{"path": "log/{number}.txt"}}'}
    call = {"id": f"call_{number}", "type": "function", "function": function}
    answer: Message = {"role": "assistant", "content": f"I read log {number}."}
    return answer if form == QUESTION else {**answer, "tool_calls": [call]}


def from_openai(number: int, form: str) -> dict[str, Any]:
    """Return an answer as OpenAI sends it."""
    return {"choices": [{"message": said(number, form)}], **USAGE}


def from_claude(number: int, form: str) -> dict[str, Any]:
    """Return the same as Anthropic sends it."""
    text = {"type": "text", "text": f"I read log {number}."}
    use = {"type": "tool_use", "id": f"call_{number}", "name": "read_file", "input": {"path": f"log/{number}.txt"}}
    content, reason = ([text], "end_turn") if form == QUESTION else ([text, use], "tool_use")
    usage = {"input_tokens": 200, "cache_read_input_tokens": 50_000, "output_tokens": 40}
    return {"type": "message", "role": "assistant", "content": content, "usage": usage, "stop_reason": reason}


def measured(folder: Path, engine: str, dialect: Dialect, length: int) -> dict[str, list[Turn]]:
    """Measure turns of each form behind a history of this length."""
    loop = Loop(folder, engine, dialect, length)
    turns = {}
    for form in FORMS:
        for _ in range(WARM):
            loop.turn(form)
        gc.collect()
        turns[form] = [loop.turn(form) for _ in range(TURNS)]
    if len(loop.session.window) < length:
        raise RuntimeError(f"{engine} has folded the conversation: this measures something else.")
    loop.close()
    return turns


def figures(turns: list[Turn], shortest: float) -> str:
    """Return the figures of a row of the table."""
    cpu = statistics.median(turn.session.cpu for turn in turns)
    wall = sorted(turn.session.wall for turn in turns)
    bare = statistics.median(turn.bare.cpu for turn in turns)
    behind = statistics.mean(turn.background.cpu for turn in turns)
    return (
        f"| {cpu:.2f} ms | {statistics.median(wall):.2f} ms | {wall[-TURNS // 20]:.2f} ms | {cpu / shortest:.2f} "
        f"| {bare:.2f} ms | {cpu / bare:.2f} | {behind:.2f} ms | {BAR:g} ms | {'missed' if cpu > BAR else 'held'} |"
    )


def main(argv: list[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--long", action="store_true", help=f"also behind {LONGER:,} messages")
    lengths = (*LENGTHS, LONGER) if parser.parse_args(argv).long else LENGTHS
    print(
        "| engine | dialect | turn | messages | processor | wall | slowest 5 % | to the shortest | bare loop", end=" "
    )
    print("| ratio | in the background | bar | |")
    print("|---" * 13 + "|")
    missed = False
    with tempfile.TemporaryDirectory() as folder:
        for engine, dialect in product(("compressor", "lcm"), DIALECTS):
            shortest: dict[str, float] = {}
            for length in lengths:
                for form, turns in measured(Path(folder), engine, dialect, length).items():
                    cpu = statistics.median(turn.session.cpu for turn in turns)
                    missed = missed or cpu > BAR
                    first = shortest.setdefault(form, cpu)
                    print(f"| {engine} | {dialect} | {form} | {length:,} {figures(turns, first)}", flush=True)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
