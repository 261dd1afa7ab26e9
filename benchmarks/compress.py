"""`compress()` with the model stubbed, at 100, 1,000 and 10,000 messages, beside hermes-agent 0.19.0 in the same run.

Three kinds of conversation: files that are read (2 KB each), commands with short outputs, and talk without tools. Times
are the best of several runs, which a busy machine disturbs least. The peer is installed from the package index into an
environment of its own and timed in a subprocess, on the same conversations. `--no-peer` leaves it out, `--cpu` measures
processor time, for a machine that does other things too. The bars: at 10,000 messages at least 5 × faster, growth from
1,000 to 10,000 at most 12 ×, every prompt inside the summariser's window, memory bounded.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leporello import ContextCompressor
from leporello.llm import Completion
from leporello.tokens import count_messages

if TYPE_CHECKING:
    from leporello.messages import Message

SIZES = (100, 1_000, 10_000)
WINDOW = 200_000
NOUNS = ("berth", "container", "manifest", "carrier", "crane", "vessel", "booking", "weight", "gate", "tariff", "slot")
VERBS = ("load", "assign", "release", "resolve", "normalise", "reserve", "collect", "validate", "dispatch", "lock")
SUMMARY = "## Goal\nKeep the port running.\n\n## Progress\n### Done\n- Looked at the files."
PEER = "hermes-agent==0.19.0"


def conversation(kind: str, length: int) -> list[Message]:
    """Return a system prompt and turns of one kind."""
    rng = random.Random(length)
    messages: list[Message] = [{"role": "system", "content": "You work on a port's software. " * 80}]
    return messages + KINDS[kind](length - 1, rng)


def files(length: int, rng: random.Random) -> list[Message]:
    """Return turns of a user, two files that are read, 2 KB each, and an assistant."""
    messages: list[Message] = []
    for turn in range(length // 6):
        messages.append({"role": "user", "content": f"Please look at part {turn} of the yard."})
        for number in range(2):
            id_, path = f"call_{turn}_{number}", f"src/harbour/part_{turn % 200}.py"
            messages += _called(id_, "read_file", {"path": path, "offset": rng.randrange(900)}, _file(rng))
        messages.append({"role": "assistant", "content": f"Part {turn} is in order."})
    return messages


def commands(length: int, rng: random.Random) -> list[Message]:
    """Return turns of a user, a command with a short output, and an assistant; every command names another file."""
    messages: list[Message] = []
    for turn in range(length // 4):
        messages.append({"role": "user", "content": f"Question {turn}: {_words(rng, 12)}?"})
        output = "\n".join([_words(rng, 12) for _ in range(3)])
        messages += _called(f"call_{turn}", "terminal", {"command": f"cat src/part_{turn}.py"}, output)
        messages.append({"role": "assistant", "content": f"Answer {turn}: {_words(rng, 12)}."})
    return messages


def talk(length: int, rng: random.Random) -> list[Message]:
    """Return turns of a user and an assistant, thirty words each."""
    return [
        {"role": role, "content": f"About {turn}: {_words(rng, 30)}."}
        for turn in range(length // 2)
        for role in ("user", "assistant")
    ]


KINDS = {"files": files, "commands": commands, "talk": talk}


def _called(id_: str, name: str, arguments: dict[str, Any], output: str) -> list[Message]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": id_, "type": "function", "function": function}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": id_, "content": output},
    ]


def _words(rng: random.Random, number: int) -> str:
    return " ".join(rng.choices(NOUNS + VERBS, k=number))


def _file(rng: random.Random) -> str:
    """Return about 2 KB that read like a source file."""
    lines: list[str] = []
    while sum(len(line) for line in lines) < 1_900:
        noun, verb = rng.choice(NOUNS), rng.choice(VERBS)
        lines.append(f"    {noun} = {verb}({rng.choice(NOUNS)}, limit={rng.randrange(1_000)})  # {rng.choice(NOUNS)}")
    return "\n".join(lines)


class Stub:
    """A model that answers at once and keeps what it was asked."""

    model = provider = "stub"
    context_length = WINDOW

    def __init__(self) -> None:
        self.prompts: list[list[Message]] = []

    def complete(self, messages: list[Message], *, max_tokens: int, timeout: float) -> Completion:
        """Answer."""
        self.prompts.append(messages)
        return Completion(text=SUMMARY)


def ours(messages: list[Message], repeats: int, clock: str) -> dict[str, Any]:
    """Time our compressor, and see how long its prompts are and how much memory it takes."""
    now = getattr(time, clock)
    seconds = []
    for _ in range(repeats):
        llm = Stub()
        engine = ContextCompressor(WINDOW, llm=llm)
        engine.on_event = lambda _: None
        started = now()
        result = engine.compress(messages)
        seconds.append(now() - started)
    prompts = list(llm.prompts)
    tracemalloc.start()
    engine.compress(messages)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return {
        "milliseconds": min(seconds) * 1000,
        "messages": len(result),
        "tokens": count_messages(result),
        "largest_prompt": max((count_messages(prompt) for prompt in prompts), default=0),
        "calls": len(prompts),
        "peak_mb": peak / 1e6,
    }


PEER_SCRIPT = """
import json, sys, time, types
import agent.context_compressor as module

prompts = []

def stub(*args, messages=None, **kwargs):
    prompts.append(sum(len(str(m.get("content"))) for m in messages or []))
    message = types.SimpleNamespace(content=SUMMARY)
    return types.SimpleNamespace(choices=[types.SimpleNamespace(message=message)])

SUMMARY, repeats, now = sys.argv[2], int(sys.argv[3]), getattr(time, sys.argv[4])
module.call_llm = stub
messages = json.load(open(sys.argv[1]))
seconds = []
for _ in range(repeats):
    engine = module.ContextCompressor(model="m", config_context_length=200000, quiet_mode=True)
    started = now()
    result = engine.compress(messages)
    seconds.append(now() - started)
figures = {"milliseconds": min(seconds) * 1000, "messages": len(result)}
print(json.dumps(figures | {"largest_prompt": max(prompts, default=0) // 4}))
"""


def peer_environment() -> Path:
    """Install the peer once into an environment of its own, and return its Python."""
    folder = Path(tempfile.gettempdir()) / "leporello-bench-peer"
    python = folder / "bin" / "python"
    if not (folder / "installed").exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", PEER], check=True)
        (folder / "installed").touch()
    return python


def peer(python: Path, messages: list[Message], repeats: int, clock: str) -> dict[str, Any]:
    """Time the peer on the same conversation."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "messages.json")
        data.write_text(json.dumps(messages))
        command = [str(python), "-c", PEER_SCRIPT, str(data), SUMMARY, str(repeats), clock]
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder)
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def _row(kind: str, length: int, mine: dict[str, Any], theirs: dict[str, Any] | None) -> str:
    row = [kind, length, f"{mine['milliseconds']:.1f}", mine["calls"], f"{mine['largest_prompt']:,}"]
    row += [f"{mine['peak_mb']:.1f}", f"{mine['messages']} messages, {mine['tokens']:,} tokens"]
    if theirs:
        ratio = theirs["milliseconds"] / mine["milliseconds"]
        row += [f"{theirs['milliseconds']:.1f}", f"{theirs['largest_prompt']:,}", f"{ratio:.1f} ×"]
    return "| " + " | ".join(str(cell) for cell in row) + " |"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-peer", action="store_true", help="time only ours")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--cpu", action="store_true", help="measure processor time instead of time")
    arguments = parser.parse_args(argv)
    clock = "process_time" if arguments.cpu else "perf_counter"
    python = None if arguments.no_peer else peer_environment()
    print(
        "| kind | messages | ours ms | calls | largest prompt (tokens) | peak MB | result "
        "| peer ms | peer's prompt | ratio |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for kind in KINDS:
        times: dict[int, float] = {}
        for length in SIZES:
            messages = conversation(kind, length)
            mine = ours(messages, arguments.repeats, clock)
            times[length] = mine["milliseconds"]
            theirs = peer(python, messages, arguments.repeats, clock) if python else None
            print(_row(kind, length, mine, theirs), flush=True)
        growth, ratio = times[10_000] / times[1_000], theirs["milliseconds"] / times[10_000] if theirs else 0
        print(
            f"| {kind} | growth from 1,000 to 10,000: {growth:.1f} × (bar: 12) | | | | | | | | {ratio:.1f} × (bar: 5) |"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
