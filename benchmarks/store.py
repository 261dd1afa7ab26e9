"""What storing costs, beside bare SQLite in the same run.

Two baselines write the same messages and the same prepared text, four messages to a transaction, synchronous=NORMAL,
with everything worked out beforehand: no hashes, no redaction, no recognition. "plain" has one table of role and JSON
and one FTS5 index; "same rows" has the columns and indexes of the store.

python benchmarks/store.py [--messages 20000] [--long 100000] [--data FOLDER]
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from statistics import median
from time import process_time
from typing import TYPE_CHECKING, Any, NamedTuple

from leporello.store.relational.rows import placeholders
from leporello.store.relational.writing import MESSAGE_COLUMNS, NewRow, columns_of, prepare
from leporello.store.search.prepare import FTS_DDL, prepared_text
from leporello.store.sqlite import SQLiteStore
from leporello.store.sqlite.index import row_text
from leporello.testing.conversations import conversation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BATCH = 4
BULK = 500
TURNS = 40


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=20_000, help="for the rate and the size")
    parser.add_argument("--long", type=int, default=100_000, help="length of the long history")
    parser.add_argument("--data", type=Path, help="a folder with JSON files or lines that have a field 'messages'")
    options = parser.parse_args(argv)
    messages = list(_messages(options.data, options.messages))
    with tempfile.TemporaryDirectory() as folder:
        _rates(messages, Path(folder))
        _turns(options.long, Path(folder))
        _memory(Path(folder) / "long.db", options.long)
    return 0


def _rates(messages: list[Any], folder: Path) -> None:
    raw = sum(len(json.dumps(message, ensure_ascii=False).encode("utf-8", "replace")) for message in messages)
    print(f"{len(messages):,} messages, {raw / len(messages):,.0f} bytes each on average; CPU time\n")
    seconds = dict.fromkeys(("plain", "same", "four", "bulk", "text"), 0.0)
    with (
        closing(_plain_tables(folder / "plain.db")) as plain,
        closing(_same_tables(folder / "same.db")) as same,
        SQLiteStore(folder / "ours.db") as ours,
        SQLiteStore(folder / "bulk.db") as bulk,
    ):
        for start in range(0, len(messages), BULK):  # in turns, so that a busy machine slows all of them alike
            block = messages[start : start + BULK]
            rows = [_finished(message, start + number) for number, message in enumerate(block, 1)]
            seconds["text"] += _timed(_prepare, block)
            seconds["plain"] += _timed(_write_plain, plain, block, rows)
            seconds["same"] += _timed(_write_same, same, rows)
            seconds["four"] += _timed(_append, ours, block, BATCH)
            seconds["bulk"] += _timed(_append, bulk, block, BULK)
    size = (folder / "ours.db").stat().st_size
    rate = {name: len(messages) / spent for name, spent in seconds.items()}
    _row("plain SQLite, rows per second", f"{rate['plain']:9,.0f}")
    _row("SQLite with the same rows, rows per second", f"{rate['same']:9,.0f}")
    for name, count in (("four", BATCH), ("bulk", BULK)):
        ratios = f"{rate[name] / rate['plain']:.2f} x plain, {rate[name] / rate['same']:.2f} x same rows"
        _row(
            f"append() of {count} messages, rows per second",
            f"{rate[name]:9,.0f}",
            ratios + (", bar 0.50" if name == "bulk" else ""),
        )
    _row("  of which redaction and index terms", f"{seconds['text'] / seconds['bulk']:9.0%}")
    _row("bytes on disk per raw byte", f"{size / raw:9.2f}", "bar 2.00")


class Finished(NamedTuple):
    """A message with everything that is stored with it."""

    columns: tuple[Any, ...]
    payloads: list[tuple[bytes, bytes]]
    text: str


def _finished(message: Any, seq: int) -> Finished:
    prepared = prepare(message, "message", {})
    row = NewRow(prepared=prepared, seq=seq, chain=b"c" * 16, place=float(seq), time=0.0, branch=1)
    encoded = prepared.encoded
    return Finished(columns_of(row), list(encoded.payloads.items()), row_text(prepared.text, 1, ""))


def _plain_tables(path: Path) -> sqlite3.Connection:
    connection = _connected(path)
    connection.execute("CREATE TABLE messages (id INTEGER PRIMARY KEY, role TEXT, body BLOB)")
    connection.execute(FTS_DDL)
    return connection


def _same_tables(path: Path) -> sqlite3.Connection:
    with SQLiteStore(path) as store:
        store.ensure("c")
    return _connected(path)


def _connected(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


def _write_plain(connection: sqlite3.Connection, messages: list[Any], rows: list[Finished]) -> None:
    for start in range(0, len(messages), BATCH):
        connection.execute("BEGIN IMMEDIATE")
        for message, finished in zip(messages[start : start + BATCH], rows[start : start + BATCH], strict=True):
            row = (message["role"], json.dumps(message).encode())
            number = connection.execute("INSERT INTO messages (role, body) VALUES (?, ?)", row).lastrowid
            connection.execute("INSERT INTO search (rowid, text) VALUES (?, ?)", (number, finished.text))
        connection.execute("COMMIT")


def _write_same(connection: sqlite3.Connection, rows: list[Finished]) -> None:
    marks = placeholders(MESSAGE_COLUMNS.split(","))
    insert = f"INSERT INTO messages ({MESSAGE_COLUMNS}) VALUES ({marks})"  # noqa: S608 - constants
    for start in range(0, len(rows), BATCH):
        connection.execute("BEGIN IMMEDIATE")
        for finished in rows[start : start + BATCH]:
            connection.executemany(
                "INSERT OR IGNORE INTO payloads (hash, uses, data) VALUES (?, 1, ?)", finished.payloads
            )
            number = connection.execute(insert, (None, 1, *finished.columns)).lastrowid
            connection.execute("INSERT INTO search (rowid, text) VALUES (?, ?)", (number, finished.text))
        connection.execute("COMMIT")


def _turns(long: int, folder: Path) -> None:
    """Time one turn of four new messages, at 1,000 messages and at `long`, by position and by the whole list."""
    whole = _plain(long + 8 * TURNS)
    lengths = (1_000, long)
    with SQLiteStore(folder / "short.db") as short, SQLiteStore(folder / "long.db") as far:
        stores = dict(zip(lengths, (short, far), strict=True))
        for length, store in stores.items():
            for start in range(0, length, 1_000):
                store.append("c", whole[start : min(start + 1_000, length)])
        first = _timed(far.ingest, "c", whole[:long])
        _row(f"\nfirst list of {long:,} messages after an open", f"{first / long * 1e6:9.1f}", "us per message")
        short.ingest("c", whole[:1_000])
        print(f"\n{'one turn of 4 messages, median CPU ms':50}{'1,000':>9}{long:>9,}{'ratio':>9}")
        _compare("append()", stores, lambda store, start: store.append("c", whole[start : start + BATCH]), 0)
        lists = {start: whole[: start + BATCH] for at in lengths for start in range(at, at + 8 * TURNS, BATCH)}
        _compare("ingest() of the whole list", stores, lambda store, start: store.ingest("c", lists[start]), 4 * TURNS)


def _compare(name: str, stores: dict[int, SQLiteStore], call: Callable[[SQLiteStore, int], object], done: int) -> None:
    spans: dict[int, list[float]] = {length: [] for length in stores}
    for turn in range(TURNS):
        for length, store in stores.items():
            spans[length].append(_timed(call, store, length + done + BATCH * turn) * 1e3)
    short, far = (median(times) for times in spans.values())
    print(f"{name:50}{short:9.2f}{far:9.2f}{far / short:9.2f}   bar 1.50 and 2 ms")


def _timed(work: Callable[..., object], *arguments: object) -> float:
    start = process_time()
    work(*arguments)
    return process_time() - start


def _prepare(messages: list[Any]) -> None:
    for message in messages:
        prepared_text(message)


def _append(store: SQLiteStore, messages: list[Any], count: int) -> None:
    for start in range(0, len(messages), count):
        store.append("c", messages[start : start + count])


def _row(name: str, value: str, note: str = "") -> None:
    print(f"{name:50}{value}   {note}")


def _plain(length: int) -> list[Any]:
    return conversation(1, turns=length // 4, payload=60)[:length]


def _messages(data: Path | None, limit: int) -> Iterator[Any]:
    """Return messages of real conversations, or made-up ones."""
    if data is None:
        yield from conversation(1, turns=limit // 3, payload=200)[:limit]
        return
    count = 0
    for path in sorted(data.rglob("*.json*")):
        for found in _conversations(path):
            for message in found:
                if isinstance(message, dict) and isinstance(message.get("role"), str):
                    yield message
                    count += 1
                    if count == limit:
                        return


def _conversations(path: Path) -> Iterator[list[Any]]:
    for line in (
        path.read_text(encoding="utf-8").splitlines() if path.suffix == ".jsonl" else [path.read_text(encoding="utf-8")]
    ):
        value = json.loads(line)
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, dict):
                found = item.get("messages", item.get("traj", item.get("message")))
                yield found if isinstance(found, list) else [found]


_WATCHED = """
import sys
from pathlib import Path
from time import perf_counter
from leporello.store import SearchFilter
from leporello.store.sqlite import SQLiteStore
def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
before = peak()
start = perf_counter()
with SQLiteStore(Path(sys.argv[1])) as store:
    store.candidates("error", filter=SearchFilter(conversation="c"), limit=10, newest_first=False)
    first = perf_counter() - start
    store.append("c", [{"role": "user", "content": "one more"}])
    for stored in store.messages("c"): pass
print(before, peak(), first * 1e3)
"""


def _memory(path: Path, length: int) -> None:
    """Measure, in a process of its own, what opening and then reading a whole long history takes."""
    done = subprocess.run([sys.executable, "-c", _WATCHED, str(path)], check=True, capture_output=True, text=True)
    before, after, first = map(float, done.stdout.split())
    print(f"\n{length:,} messages in a new process")
    _row("open and first search, ms", f"{first:9.1f}", "bar 100")
    _row("resident memory while all of them are read, MB", f"{after:9.0f}", f"bar 100; {before:.0f} before")


if __name__ == "__main__":
    sys.exit(main())
