"""How long the command line takes to start, beside a bare Python: the best of several runs.

python -m benchmarks startup
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time

PROGRAM = [sys.executable, "-c", "from leporello.cli import main; main()"]
STARTS = {
    "python -c pass (baseline)": [sys.executable, "-c", "pass"],
    "leporello --help": [*PROGRAM, "--help"],
    "leporello chat --help": [*PROGRAM, "chat", "--help"],
    "leporello chat, up to the missing key": [*PROGRAM, "chat", "--model", "gpt-5", "hello"],
    "everything that a chat imports": [sys.executable, "-c", "import leporello.cli.chat.chat"],
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="how often each is started")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as home:
        best = {name: min(_start(command, home) for _ in range(options.runs)) for name, command in STARTS.items()}
    baseline = best["python -c pass (baseline)"][0]
    print(f"{'start':40} {'CPU ms':>8} {'ratio':>7} {'wall ms':>8}")
    for name, (cpu, wall) in best.items():
        print(f"{name:40} {1000 * cpu:8.0f} {cpu / baseline:7.1f} {1000 * wall:8.0f}")
    return 0


def _start(command: list[str], home: str) -> tuple[float, float]:
    """Run a command and return the seconds of CPU and of the clock that it took."""
    environ = {key: value for key, value in os.environ.items() if not key.endswith("_API_KEY")}
    before, start = _cpu(), time.perf_counter()
    subprocess.run(
        command,
        env=environ | {"LEPORELLO_HOME": home},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    return _cpu() - before, time.perf_counter() - start


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())
