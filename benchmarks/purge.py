"""What deleting costs in a small and in a large store, and how long a purge keeps others from writing.

A process writes a small message again and again, first alone, then while another deletes and purges conversations.

python benchmarks/purge.py [--messages 100000]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING

from leporello.store.sqlite import SQLiteStore
from leporello.store.sqlite.connection import Database
from leporello.testing.conversations import conversation

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator

LENGTH = 200
SMALL = 1_000
DELETED = 10

WRITER = """
import sys, time
from leporello.store import open_store
store = open_store(sys.argv[1])
store.append("writer", [{"role": "user", "content": "hello"}])
print("ready", flush=True)
sys.stdin.readline()
while True:
    start = time.monotonic()
    store.append("writer", [{"role": "user", "content": f"hello at {start}"}])
    print(time.monotonic() - start, flush=True)
    time.sleep(0.002)
"""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000, help="of the large store")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        small, large = Path(folder) / "small.db", Path(folder) / "large.db"
        _fill(small, SMALL + DELETED * LENGTH)
        _fill(large, options.messages)
        _deletions(small, large, options.messages)
        _purge(large)
    return 0


def _fill(path: Path, count: int) -> None:
    with SQLiteStore(path) as store:
        for number in range(count // LENGTH):
            store.append(f"c{number}", conversation(number, turns=LENGTH, payload=200)[:LENGTH])


def _deletions(small: Path, large: Path, messages: int) -> None:
    """Time the deletion of conversations of the same length in both stores, in turns."""
    times: dict[Path, list[float]] = {small: [], large: []}
    with SQLiteStore(small) as first, SQLiteStore(large) as second:
        for number in range(1, DELETED):
            for path, store in ((small, first), (large, second)):
                start = time.process_time()
                store.delete(f"c{number}")
                times[path].append((time.process_time() - start) * 1e3)
    few, many = (median(times[path]) for path in (small, large))
    print(f"{f'delete() of {LENGTH} messages, median CPU ms':50}{SMALL:>9,}{messages:>9,}{'ratio':>9}")
    print(f"{'':50}{few:9.1f}{many:9.1f}{many / few:9.2f}   bar 1.50\n")


def _purge(path: Path) -> None:
    held: list[tuple[float, float]] = []
    with _timed_writes(held), SQLiteStore(path) as store, _writer(path) as waits:
        time.sleep(3)
        alone = waits()
        held.clear()
        start = time.monotonic()
        store.delete("c0")
        store.purge()
        seconds = time.monotonic() - start
        slices = list(held)
        during = waits()
        complete = store.purge_status().complete
    print(f"purge of a store of {path.stat().st_size / 1e6:,.0f} MB: {seconds:.1f} s, {len(slices):,} slices,")
    print(f"complete: {complete}\n")
    _row("the lock is held for, ms", [elapsed for elapsed, _ in slices], "bar: longest 50")
    _row("  of which CPU time, ms", [spent for _, spent in slices])
    _row("a write alone takes, ms", alone)
    _row("a write meanwhile takes, ms", during, f"longest {max(during) / max(alone):.1f} x alone")


@contextmanager
def _timed_writes(held: list[tuple[float, float]]) -> Iterator[None]:
    """Note how long each writing transaction of this process holds the lock."""
    plain = Database.write

    @contextmanager
    def write(database: Database) -> Iterator[sqlite3.Connection]:
        with plain(database) as connection:
            start, spent = time.monotonic(), time.thread_time()
            yield connection
        held.append((time.monotonic() - start, time.thread_time() - spent))

    Database.write = write  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        Database.write = plain  # type: ignore[method-assign]


@contextmanager
def _writer(path: Path) -> Iterator[Callable[[], list[float]]]:
    """Run the process that writes; the function that is lent returns its times since the last call."""
    file = path.with_name("times")
    with file.open("a") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], stdin=subprocess.PIPE, stdout=output, text=True
        )
    assert process.stdin is not None
    while not file.read_text():
        time.sleep(0.01)
    seen = 1
    process.stdin.write("go\n")
    process.stdin.flush()

    def waits() -> list[float]:
        nonlocal seen
        lines = file.read_text().split("\n")[seen:-1]
        seen += len(lines)
        return sorted(map(float, lines))

    try:
        yield waits
    finally:
        process.terminate()
        process.wait()


def _row(name: str, seconds: list[float], note: str = "") -> None:
    middle, high = median(seconds) * 1e3, quantiles(seconds, n=100, method="inclusive")[98] * 1e3
    print(f"{name:32} median {middle:7.1f}   p99 {high:7.1f}   longest {max(seconds) * 1e3:7.1f}   {note}")


if __name__ == "__main__":
    sys.exit(main())
