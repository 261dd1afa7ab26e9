"""Move a store to another database while the copying is killed in the middle, and prove that it is the same one.

    python -m benchmarks.migration FROM TO [--kills 3]

`leporello store migrate` is killed with -9 when it has copied a quarter, a half, three quarters of the messages (for
three kills), and started again each time; what was copied until then must still be there. At the end every row of every
table that is copied, what the messages refer to, and the hits of some searches are compared, and both are verified.
"""

# ruff: noqa: S608, SLF001 - statements are put together from constants; rows are compared under the surface

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from benchmarks.search import QUERIES
from leporello.store import SearchFilter, open_store
from leporello.store.relational import copying
from leporello.store.search import search

if TYPE_CHECKING:
    from leporello.store.relational.store import RelationalStore

_TABLES = {
    "conversations": copying._CONVERSATION,
    "messages": f"id, conversation, {copying._MESSAGE.removeprefix('id, ')}",
    **{table: f"conversation, {columns}" for table, columns in copying._TABLES.items()},
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", metavar="FROM")
    parser.add_argument("target", metavar="TO")
    parser.add_argument("--kills", type=int, default=3)
    options = parser.parse_args(argv)
    source: Any = open_store(options.source)
    target: Any = open_store(options.target)
    last, before = _newest(source), _newest(target)
    start = time.perf_counter()
    for kill in range(1, options.kills + 1):
        if before >= last * kill / (options.kills + 1):
            continue  # an earlier run came so far
        process = _started(options)
        while (now := _newest(target)) < last * kill / (options.kills + 1):
            if process.poll() is not None:
                print(f"it ended before kill {kill}, with status {process.returncode}")
                return 1
            time.sleep(0.05)
        process.kill()
        process.wait()
        kept = _newest(target)
        print(
            f"- killed at message {now:,} of {last:,}; {kept:,} are there, after {before:,} at the last kill",
            flush=True,
        )
        if kept < before:
            return 1
        before = kept
    process = _started(options)
    told = json.loads(process.communicate()[0] or b"{}")
    print(f"- {told.get('conversations', 0)} conversations with {told.get('messages', 0):,} messages are copied")
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    seconds = time.perf_counter() - start
    print(f"- {seconds:,.0f} s in all, status {process.returncode}; load of the machine at the end: {load}", flush=True)
    return 0 if process.returncode == 0 and same(source, target) else 1


def _started(options: argparse.Namespace) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "leporello", "store", "migrate", options.source, options.target, "--json"]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def _newest(store: RelationalStore) -> int:
    with store._db.read() as connection:
        return int(connection.execute("SELECT coalesce(max(id), 0) FROM messages").fetchone()[0])


def same(source: Any, target: Any) -> bool:
    """Compare two stores, row by row, search by search, and verify both."""
    wrong = []
    for table, columns in _TABLES.items():
        one, other = (digest(store, table, columns) for store in (source, target))
        print(f"- {table}: {one[0]:,} rows {'the same' if one == other else f'DIFFERENT: {other[0]:,}'}", flush=True)
        wrong += [table] if one != other else []
    for text in [each for kind in QUERIES.values() for each in kind[:4]]:
        for scope in (SearchFilter(), SearchFilter(conversation="long")):
            hits = [search(store, text, filter=scope).hits for store in (source, target)]
            wrong += [text] if hits[0] != hits[1] else []
    findings = [
        finding
        for store in (source, target)
        for found in (
            store.check_file(),
            store.check_index(),
            *(store.check_chain(info.key, owner=info.owner) for info in store.conversations()),
        )
        for finding in found
    ]
    print(f"- different: {wrong or 'nothing'}; findings of verify: {findings or 'none'}")
    return not wrong and not findings


def digest(store: RelationalStore, table: str, columns: str) -> tuple[int, str]:
    """Return the number of rows of a table and a hash of them, in a fixed order."""
    hashed, count = sha256(), 0
    order = "1" if table in {"conversations", "messages"} else "1, 2, 3, 4" if columns.count(",") > 2 else "1, 2"
    with store._db.read() as connection:
        shown = f" c WHERE {connection.dialect.shown}" if table == "conversations" else ""
        for row in connection.walk(f"SELECT {columns} FROM {table}{shown} ORDER BY {order}"):
            hashed.update(repr(tuple(row)).encode())
            count += 1
        if table == "messages":
            payloads = {key for _, key, _ in connection.dialect.payload_uses(connection)}
            hashed.update(repr(sorted(payloads)).encode())
    return count, hashed.hexdigest()


if __name__ == "__main__":
    raise SystemExit(main())
